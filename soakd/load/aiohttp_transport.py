"""The transport for TLS, proxies and Unix sockets, on aiohttp."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from types import SimpleNamespace

import aiohttp

from soakd.errors import ConfigError, Problem
from soakd.load.failure import ErrorClass
from soakd.load.spec import TargetSpec
from soakd.load.transport import Endpoint, Handle, Sink

_READ_BYTES = 1 << 20
_KEEP_S = 60.0


class AiohttpTransport:
    """One session for all replicas. Timeouts are left to the engine, which knows the phases."""

    def __init__(self, target: TargetSpec, replicas: tuple[Endpoint, ...], headers: Mapping[str, str]) -> None:
        self._replicas = replicas
        self._proxy = target.proxy
        self._session = aiohttp.ClientSession(
            connector=_connector(target),
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None),
            trace_configs=[_tracing()],
            read_bufsize=_READ_BYTES,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    def send(self, replica: int, body: bytes, sink: Sink) -> Handle:
        return _Sending(self._session, self._replicas[replica].url, body, sink, self._proxy)

    async def warm(self, connections: int) -> None:
        """aiohttp opens connections with requests only; the first requests open them."""

    async def close(self) -> None:
        await self._session.close()


def _connector(target: TargetSpec) -> aiohttp.BaseConnector:
    if target.unix_socket:
        return aiohttp.UnixConnector(target.unix_socket, limit=0, keepalive_timeout=_KEEP_S)
    context = _tls(target) if any(url.startswith("https:") for url in target.urls) else False
    return aiohttp.TCPConnector(limit=0, limit_per_host=0, keepalive_timeout=_KEEP_S, ssl=context)


def _tls(target: TargetSpec) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=target.ca_file)
    except (OSError, ssl.SSLError) as error:
        found = f"{target.ca_file}: {error}"
        raise ConfigError([Problem("target", None, "ca_file", found, "a readable PEM file")]) from None
    if not target.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class _Sending:
    """One request, in a task of its own from the moment it is sent."""

    __slots__ = ("_reused", "_sink", "_task")

    def __init__(
        self, session: aiohttp.ClientSession, url: str, body: bytes, sink: Sink, proxy: str | None
    ) -> None:  # fmt: skip
        self._sink: Sink | None = sink
        self._reused = False
        self._task = asyncio.get_running_loop().create_task(self._run(session, url, body, proxy))

    def abort(self) -> None:
        self._sink = None
        self._task.cancel()

    def on_connection(self, reused: bool) -> None:
        self._reused = reused
        if self._sink is not None:
            self._sink.on_sent(time.monotonic_ns(), reused)

    async def _run(self, session: aiohttp.ClientSession, url: str, body: bytes, proxy: str | None) -> None:
        for retried in (False, True):
            if not await self._once(session, url, body, proxy, retried):
                return

    async def _once(
        self, session: aiohttp.ClientSession, url: str, body: bytes, proxy: str | None, retried: bool
    ) -> bool:  # fmt: skip
        """True when the request is to go out once more."""
        answered = False
        try:
            async with session.post(
                url, data=body, proxy=proxy, trace_request_ctx=self, allow_redirects=False
            ) as response:  # fmt: skip
                answered = True
                if self._sink is not None:
                    self._sink.on_head(response.status, response.content_type, time.monotonic_ns())
                async for chunk in response.content.iter_any():
                    if self._sink is None:
                        return False
                    self._sink.on_body(chunk, time.monotonic_ns())
        except (aiohttp.ClientError, OSError, ValueError) as error:
            sink = self._sink
            if sink is None:
                return False
            kind = classify(error, answered)
            if kind is ErrorClass.RESET and self._reused and not retried:
                sink.on_retry()
                return True
            self._sink = None
            sink.on_failure(kind, str(error) or type(error).__name__, time.monotonic_ns())
            return False
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.on_end(time.monotonic_ns())
        return False


def classify(error: BaseException, answered: bool) -> ErrorClass:
    """The class of what aiohttp raised; ``answered`` once the response's head had come."""
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return ErrorClass.TLS
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ClientProxyConnectionError):
        return ErrorClass.CONNECT
    if isinstance(error, TimeoutError):
        return ErrorClass.CONNECT_TIMEOUT
    if answered:
        return ErrorClass.TRUNCATED
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return ErrorClass.CONNECT
    if isinstance(error, aiohttp.ClientResponseError | aiohttp.ClientPayloadError | ValueError):
        return ErrorClass.MALFORMED_STREAM
    return ErrorClass.RESET


def _tracing() -> aiohttp.TraceConfig:
    async def created(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
        _sending(context).on_connection(reused=False)

    async def reused(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
        _sending(context).on_connection(reused=True)

    config = aiohttp.TraceConfig()
    config.on_connection_create_end.append(created)
    config.on_connection_reuseconn.append(reused)
    return config


def _sending(context: SimpleNamespace) -> _Sending:
    found = context.trace_request_ctx
    assert isinstance(found, _Sending)
    return found
