"""``/healthz``, ``/status``, ``/metrics``, ``/runs``; and with the token ``POST /soaks`` and ``POST /gpu/...``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Protocol

import orjson
from aiohttp import web

from soakd.errors import SoakdError
from soakd.model import Labels, Sample
from soakd.web.auth import allowed
from soakd.web.exposition import Scrape, expose

_MAX_BODY = 256 * 1024


@dataclass(frozen=True, slots=True)
class Health:
    """``problems`` empty: healthy. Stale data is a problem: a monitor that stopped seeing must not look fine.

    ``hung``: nothing is read any more, which a restart may heal; it heals no full disk and no missing driver.
    """

    problems: tuple[str, ...]
    hung: bool = False


@dataclass(frozen=True, slots=True)
class SoakOrder:
    """A soak to start: a configuration file on this host, a profile, and dotted keys that win over both."""

    config: str | None = None
    profile: str | None = None
    sets: tuple[tuple[str, object], ...] = ()


class Backend(Protocol):
    """What the daemon offers to its web server."""

    constant_labels: Labels

    def health(self) -> Health: ...
    def status(self) -> dict[str, object]: ...
    def samples(self) -> tuple[Sample, ...]: ...
    async def runs(self) -> list[dict[str, object]]: ...
    async def soak(self, order: SoakOrder, tell: Callable[[dict[str, object]], Awaitable[None]]) -> None: ...
    async def gpu(self, verb: str) -> None: ...


def build_app(backend: Backend, token: str) -> web.Application:
    """The application; only POST changes anything, and every POST needs the token."""

    @web.middleware
    async def guard(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.method == "POST" and not allowed(request.headers.get("Authorization"), token):
            return _json(
                {"error": "this needs the daemon's token", "hint": "set SOAKD_TOKEN (Authorization: Bearer TOKEN)"}, 401
            )
        try:
            return await handler(request)
        except SoakdError as error:
            # an order that can't be carried out is the asker's to change; what can't be shown is not
            return _json({"error": error.message, "hint": error.hint}, 409 if request.method == "POST" else 503)

    async def healthz(_request: web.Request) -> web.Response:
        health = backend.health()
        return _json({"healthy": not health.problems, "problems": health.problems}, 503 if health.problems else 200)

    async def status(_request: web.Request) -> web.Response:
        return _json(backend.status())

    scrape = Scrape(backend.samples, lambda samples: expose(samples, backend.constant_labels))

    async def metrics(_request: web.Request) -> web.Response:
        body = await scrape.body()
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def runs(_request: web.Request) -> web.Response:
        return _json({"runs": await backend.runs()})

    async def soak(request: web.Request) -> web.StreamResponse:
        order = _order(await request.read())
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        started = False

        async def tell(message: dict[str, object]) -> None:
            nonlocal started
            if not started:
                await response.prepare(request)
                started = True
            await response.write(orjson.dumps(message) + b"\n")

        await backend.soak(order, tell)
        if not started:
            return _json({})
        await response.write_eof()
        return response

    async def gpu(request: web.Request) -> web.Response:
        await backend.gpu(request.match_info["verb"])
        return _json({"done": request.match_info["verb"]})

    app = web.Application(middlewares=[guard], client_max_size=_MAX_BODY)
    app.add_routes(
        [
            web.get("/healthz", healthz),
            web.get("/status", status),
            web.get("/metrics", metrics),
            web.get("/runs", runs),
            web.post("/soaks", soak),
            web.post("/gpu/{verb:release|acquire}", gpu),
        ]
    )
    return app


def _order(raw: bytes) -> SoakOrder:
    try:
        found = orjson.loads(raw or b"{}")
    except orjson.JSONDecodeError as error:
        raise SoakdError(f"the body is not JSON: {error}") from None
    if not isinstance(found, dict) or set(found) - {"config", "profile", "sets"}:
        raise SoakdError("the body is not an order", hint='{"config": PATH, "profile": NAME, "sets": {KEY: VALUE}}')
    sets = found.get("sets") or {}
    if not isinstance(sets, dict):
        raise SoakdError("sets is not a mapping of dotted keys")
    config, profile = found.get("config"), found.get("profile")
    return SoakOrder(str(config) if config else None, str(profile) if profile else None, tuple(sets.items()))


def _json(value: object, status: int = 200) -> web.Response:
    body = orjson.dumps(value, default=_plain, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)
    return web.Response(body=body, status=status, content_type="application/json")


def _plain(value: object) -> object:
    if hasattr(value, "__dataclass_fields__"):
        return asdict(value)  # type: ignore[call-overload]
    raise TypeError
