"""The v2 write API before InfluxDB 1.6, which lacks it; and every way in which a database can be unwell.

``/api/v2/write?org=&bucket=DB`` goes on to ``/write?db=DB&precision=ns``: parse errors, partial writes and type
conflicts are InfluxDB's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

TOKEN = "right-token"
_OF_ITSELF = ("soakd_forward", "soakd_events")


@dataclass(slots=True)
class Shim:
    """``mode`` is what it does with the next request: ok, 401, 429, 500, 503, hang, slow, drop; ``largest`` bounds a
    body in bytes (413). ``lines`` is what InfluxDB took, but for what the forwarder says of itself and events."""

    upstream: str
    url: str = ""
    mode: str = "ok"
    largest: int = 10**9
    slow_s: float = 0.0
    requests: int = 0
    lines: set[str] = field(default_factory=set)
    repeated: int = 0
    keep_lines: bool = True
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _client: aiohttp.ClientSession | None = None

    async def until(self, done: Callable[[], bool], within_s: float = 300.0) -> None:
        """Return once ``done`` holds; it is asked as a request comes and as it is answered."""
        async with asyncio.timeout(within_s), self._changed:
            await self._changed.wait_for(done)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        await self._tell()
        answer = await self._answer(request)
        await self._tell()
        return answer

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if self.mode == "hang":
            await asyncio.sleep(3600)
        if self.mode == "drop" and request.transport is not None:
            request.transport.abort()
        if self.mode == "slow":
            await asyncio.sleep(self.slow_s)
        if request.headers.get("Authorization") != f"Token {TOKEN}" or self.mode == "401":
            return web.json_response({"code": "unauthorized", "message": "unauthorized access"}, status=401)
        if self.mode.isdigit():
            headers = {"Retry-After": "1"} if self.mode in ("429", "503") else {}
            return web.json_response({"message": f"told to say {self.mode}"}, status=int(self.mode), headers=headers)
        if len(body) > self.largest:
            return web.json_response({"message": "request too large"}, status=413)
        return await self._forward(request, body)

    async def _forward(self, request: web.Request, body: bytes) -> web.StreamResponse:
        assert self._client is not None
        parameters = {"db": request.query["bucket"], "precision": request.query["precision"]}
        async with self._client.post(f"{self.upstream}/write", params=parameters, data=body) as answer:
            said = await answer.read()
            if answer.status == 204 and self.keep_lines:
                lines = [line for line in body.decode().split("\n") if not line.startswith(_OF_ITSELF)]
                self.repeated += sum(line in self.lines for line in lines)
                self.lines.update(lines)
            return web.Response(status=answer.status, body=said, content_type="application/json")


@asynccontextmanager
async def shim(upstream: str, port: int = 0) -> AsyncIterator[Shim]:
    made = Shim(upstream)
    application = web.Application(client_max_size=10**9)
    application.router.add_post("/api/v2/write", made.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.2)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with aiohttp.ClientSession() as made._client:
        try:
            yield made
        finally:
            await runner.cleanup()
