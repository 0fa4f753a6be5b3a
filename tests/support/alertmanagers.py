"""Real Alertmanagers on loopback, and a receiver for their webhooks."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import orjson
import pytest
from aiohttp import web

PROGRAM = "prometheus-alertmanager"


def needs(program: str) -> str:
    """The program's path; skips where it is missing, fails where services are required."""
    path = shutil.which(program)
    if path is None:
        why = f"{program} is not installed (apt-get install prometheus prometheus-alertmanager)"
        if os.environ.get("SOAKD_REQUIRE_SERVICES") == "1":
            pytest.fail(why)
        pytest.skip(why)
    return path


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass
class Receiver:
    """Keeps what is posted to it; ``until`` waits, within bounds, for a condition on it."""

    url: str = ""
    got: list[dict[str, object]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def alerts(self, status: str | None = None) -> list[dict[str, object]]:
        """Every alert of every message, as often as it was told."""
        found: list[dict[str, object]] = []
        for message in self.got:
            told = message["alerts"]
            assert isinstance(told, list)
            found += [a for a in told if status is None or a["status"] == status]
        return found

    def names(self, status: str | None = None) -> list[str]:
        return [_label(a, "alertname") for a in self.alerts(status)]

    async def until(self, holds: Callable[[Receiver], bool], within_s: float = 20.0) -> None:
        async with asyncio.timeout(within_s):
            while not holds(self):
                self.changed.clear()
                await self.changed.wait()


def _label(alert: dict[str, object], name: str) -> str:
    labels = alert["labels"]
    assert isinstance(labels, dict)
    return str(labels.get(name, ""))


@asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    here = Receiver()

    async def take(request: web.Request) -> web.Response:
        here.got.append(orjson.loads(await request.read()))
        here.changed.set()
        return web.Response()

    app = web.Application()
    app.router.add_post("/", take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    here.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    try:
        yield here
    finally:
        await runner.cleanup()


@dataclass
class Alertmanager:
    """One process. ``stop`` and ``start`` again keep port and storage; ``forget`` empties the storage."""

    folder: Path
    config: str
    port: int
    cluster: tuple[str, ...] = ("--cluster.listen-address=",)
    process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "alertmanager.yml").write_text(self.config)
        self.process = await asyncio.create_subprocess_exec(
            needs(PROGRAM), f"--config.file={self.folder / 'alertmanager.yml'}",
            f"--storage.path={self.folder / 'data'}", f"--web.listen-address=127.0.0.1:{self.port}", *self.cluster,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        async with aiohttp.ClientSession() as session, asyncio.timeout(20):
            while True:
                try:
                    async with session.get(f"{self.url}/-/ready") as response:
                        if response.status == 200:
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.05)

    async def stop(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    def forget(self) -> None:
        shutil.rmtree(self.folder / "data", ignore_errors=True)

    async def alerts(self) -> list[dict[str, object]]:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.url}/api/v2/alerts?silenced=true&inhibited=true&active=true") as response,
        ):
            found: list[dict[str, object]] = await response.json()
            return found

    async def until(self, holds: Callable[[Sequence[dict[str, object]]], bool], within_s: float = 20.0) -> None:
        async with asyncio.timeout(within_s):
            while not holds(await self.alerts()):  # noqa: ASYNC110  # a process: there is no event to wait on
                await asyncio.sleep(0.1)


def webhook_config(url: str, group_by: str = "[alertname, gpu]", max_alerts: int = 0) -> str:
    """Notify as soon as can be, of firing and resolved, and not again."""
    return (
        f"route:\n  receiver: here\n  group_by: {group_by}\n  group_wait: 0s\n  group_interval: 1s\n"
        f"  repeat_interval: 1h\nreceivers:\n  - name: here\n    webhook_configs:\n      - url: {url}\n"
        f"        send_resolved: true\n        max_alerts: {max_alerts}\n"
    )


@dataclass
class Cable:
    """A TCP connection to a port that can be cut: open ones die, new ones are refused."""

    to_port: int
    port: int = field(default_factory=free_port)
    server: asyncio.Server | None = None
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def plug(self) -> None:
        self.server = await asyncio.start_server(self._carry, "127.0.0.1", self.port)

    async def cut(self) -> None:
        if self.server is not None:
            self.server.close()
        for writer in tuple(self.writers):
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.to_port)
        self.writers |= {writer, far_writer}
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer), return_exceptions=True)
        self.writers -= {writer, far_writer}


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
