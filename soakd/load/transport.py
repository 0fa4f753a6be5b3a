"""The small interface between a request in flight and the bytes on the wire; two implementations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from soakd.errors import ConfigError, Problem
from soakd.load.failure import ErrorClass
from soakd.load.spec import TargetSpec, TransportKind


class Sink(Protocol):
    """Hears of one request. Times are monotonic nanoseconds, taken once for each read.

    After ``on_end`` or ``on_failure`` nothing more comes.
    """

    def on_sent(self, now_ns: int, reused: bool) -> None:
        """The request was written to a connection; ``reused`` when the connection had served one before."""
        ...

    def on_retry(self) -> None:
        """A reused connection was lost before the first byte of the answer: the request goes out once more."""
        ...

    def on_head(self, status: int, content_type: str, now_ns: int) -> None: ...
    def on_body(self, chunk: bytes, now_ns: int) -> None: ...
    def on_end(self, now_ns: int) -> None: ...
    def on_failure(self, error: ErrorClass, detail: str, now_ns: int) -> None: ...


class Handle(Protocol):
    """A request under way."""

    def abort(self) -> None:
        """Close its connection; the sink hears nothing more."""
        ...


class Transport(Protocol):
    """Sends requests to the replicas of a target."""

    def send(self, replica: int, body: bytes, sink: Sink) -> Handle:
        """Never raises for the network and never calls the sink before it returns, except for ``on_sent``."""
        ...

    async def warm(self, connections: int) -> None:
        """Open connections to each replica ahead of need. Failures are left to the first request."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one replica's requests go."""

    url: str
    host: str
    port: int
    target: str
    authority: str
    tls: bool


def endpoints(target: TargetSpec, path: str) -> tuple[Endpoint, ...]:
    """The replicas' endpoints. Raises ConfigError for a URL that is no http(s) URL."""
    return tuple(_endpoint(url, target.path or path) for url in target.urls)


def _endpoint(url: str, path: str) -> Endpoint:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _bad(url, str(error)) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _bad(url, f"found {url!r}")
    tls = parts.scheme == "https"
    base = parts.path.rstrip("/")
    if base and (path == base or path.startswith(base + "/")):
        base = ""
    host = parts.hostname
    shown = f"[{host}]" if ":" in host else host
    authority = shown if port is None else f"{shown}:{port}"
    target = base + path
    return Endpoint(f"{parts.scheme}://{authority}{target}", host, port or (443 if tls else 80), target, authority, tls)


def _bad(url: str, found: str) -> ConfigError:
    return ConfigError([Problem("target", None, "url", found, "a URL such as http://127.0.0.1:8000")])


def request_headers(target: TargetSpec) -> dict[str, str]:
    """The headers of every request; the user's own win."""
    headers = {
        "content-type": "application/json", "accept": "text/event-stream", "accept-encoding": "identity",
        "user-agent": "soakd",
    }  # fmt: skip
    if target.api_key:
        headers["authorization"] = f"Bearer {target.api_key}"
    return headers | {name.lower(): value for name, value in target.headers}


def pick(target: TargetSpec, wanted: TransportKind) -> TransportKind:
    """What ``auto`` means: raw where the URL is plain HTTP over TCP without a proxy, aiohttp elsewhere.

    Raises ConfigError when raw was asked for and can't be had.
    """
    plain = all(urlsplit(url).scheme == "http" for url in target.urls) and not (target.proxy or target.unix_socket)
    if wanted == "auto":
        return "raw" if plain else "aiohttp"
    if wanted == "raw" and not plain:
        raise ConfigError(
            [Problem("load", None, "transport", "found 'raw'", "'auto' or 'aiohttp' for TLS, proxies and sockets")]
        )
    return wanted


def make_transport(target: TargetSpec, path: str, wanted: TransportKind) -> Transport:
    """Needs the running loop. aiohttp is imported only when it is used: it weighs 25 MB."""
    if pick(target, wanted) == "raw":
        from soakd.load.raw_transport import RawTransport

        return RawTransport(endpoints(target, path), request_headers(target))
    from soakd.load.aiohttp_transport import AiohttpTransport

    return AiohttpTransport(target, endpoints(target, path), request_headers(target))
