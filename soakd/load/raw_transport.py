"""Plain HTTP/1.1 over an asyncio.Protocol and httptools: the least work between a read and its time stamp."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import cast

import httptools

from soakd.load.failure import ErrorClass
from soakd.load.transport import Endpoint, Handle, Sink

_CONNECTING_AT_ONCE = 64


class RawTransport:
    """A pool of connections for each replica, grown as needed, never capped: the cap is on requests in flight."""

    def __init__(self, replicas: tuple[Endpoint, ...], headers: Mapping[str, str]) -> None:
        self._pools = tuple(_Pool(endpoint, headers) for endpoint in replicas)

    def send(self, replica: int, body: bytes, sink: Sink) -> Handle:
        exchange = _Sending(self._pools[replica], body, sink)
        exchange.go()
        return exchange

    async def warm(self, connections: int) -> None:
        await asyncio.gather(*(pool.warm(connections) for pool in self._pools))

    async def close(self) -> None:
        for pool in self._pools:
            pool.close()


class _Pool:
    """The connections to one replica. The most recently used is taken first, so that spare ones age out."""

    def __init__(self, endpoint: Endpoint, headers: Mapping[str, str]) -> None:
        self.endpoint = endpoint
        self.idle: list[_Connection] = []
        lines = [f"POST {endpoint.target} HTTP/1.1", f"host: {endpoint.authority}"]
        lines += [f"{name}: {value}" for name, value in headers.items() if name != "host"]
        self.head = ("\r\n".join(lines) + "\r\ncontent-length: ").encode("latin-1", errors="replace")

    def take(self) -> _Connection | None:
        while self.idle:
            connection = self.idle.pop()
            if connection.open:
                return connection
        return None

    async def connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(
            lambda: _Connection(self), self.endpoint.host, self.endpoint.port
        )  # fmt: skip
        return protocol

    async def warm(self, connections: int) -> None:
        gate = asyncio.Semaphore(_CONNECTING_AT_ONCE)

        async def one() -> None:
            async with gate:
                try:
                    self.idle.append(await self.connect())
                except OSError:
                    return

        await asyncio.gather(*(one() for _ in range(connections - len(self.idle))))

    def close(self) -> None:
        for connection in self.idle:
            connection.drop()
        self.idle.clear()


class _Sending:
    """One request: on a connection at once where one is idle, else through a task that opens one."""

    __slots__ = ("_body", "_connection", "_pool", "_pooled", "_retried", "_sink", "_task")

    def __init__(self, pool: _Pool, body: bytes, sink: Sink) -> None:
        self._pool = pool
        self._body = body
        self._sink: Sink | None = sink
        self._connection: _Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._retried = False
        self._pooled = False

    def go(self) -> None:
        connection = None if self._retried else self._pool.take()
        self._pooled = connection is not None
        if connection is None:
            self._task = asyncio.get_running_loop().create_task(self._connect())
        else:
            self._write(connection, reused=connection.served > 0)

    def lost_unanswered(self, now_ns: int, why: str) -> None:
        """The connection went away before a byte of the answer came."""
        self._connection = None
        sink = self._sink
        if sink is None:
            return
        if self._pooled and not self._retried:
            self._retried = True
            sink.on_retry()
            self.go()
        else:
            self._sink = None
            sink.on_failure(ErrorClass.RESET, why, now_ns)

    def abort(self) -> None:
        self._sink = None
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._connection is not None:
            self._connection.drop()
            self._connection = None

    def finished(self) -> None:
        """Let go of everything: a request that ended must not keep its neighbours alive."""
        self._connection = None
        self._sink = None
        self._body = b""

    async def _connect(self) -> None:
        try:
            connection = await self._pool.connect()
        except OSError as error:
            self._task = None
            if (sink := self._sink) is not None:
                self._sink = None
                sink.on_failure(ErrorClass.CONNECT, error.strerror or str(error), time.monotonic_ns())
            return
        self._task = None
        if self._sink is None:
            connection.drop()
        else:
            self._write(connection, reused=False)

    def _write(self, connection: _Connection, *, reused: bool) -> None:
        sink = self._sink
        if sink is None:
            return
        self._connection = connection
        body = self._body
        sink.on_sent(time.monotonic_ns(), reused)
        connection.request(self, sink, b"%s%d\r\n\r\n%s" % (self._pool.head, len(body), body))


class _Connection(asyncio.Protocol):
    """Serves one request after another. The time of a read is taken before anything is parsed."""

    def __init__(self, pool: _Pool) -> None:
        self._pool = pool
        self._wire: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._sending: _Sending | None = None
        self._sink: Sink | None = None
        self._now = 0
        self._status = 0
        self._content_type = ""
        self._encoding = ""
        self._bounded = False
        self._answered = False
        self._complete = False
        self._keep = False
        self.served = 0
        self.open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire = cast(asyncio.Transport, transport)
        self.open = True

    def request(self, sending: _Sending, sink: Sink, data: bytes) -> None:
        self._sending, self._sink = sending, sink
        self._parser = httptools.HttpResponseParser(self)
        self._status, self._content_type, self._encoding = 0, "", ""
        self._bounded = self._answered = self._complete = self._keep = False
        if self._wire is not None:
            self._wire.write(data)

    def drop(self) -> None:
        """Close without a word to the sink."""
        self._release()
        self.open = False
        if self._wire is not None:
            self._wire.abort()

    def data_received(self, data: bytes) -> None:
        self._now = time.monotonic_ns()
        parser, sink = self._parser, self._sink
        if parser is None or sink is None:
            self.drop()
            return
        self._answered = True
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self._sink is sink:
                self._fail(ErrorClass.MALFORMED_STREAM, f"not HTTP: {error}: {data[:60]!r}")
            return
        if self._complete:
            self._end(sink)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        now = time.monotonic_ns()
        self.open = False
        self._wire = None
        sending, sink = self._sending, self._sink
        self._release()
        if sending is None or sink is None:
            if self in self._pool.idle:
                self._pool.idle.remove(self)
            return
        if not self._answered:
            sending.lost_unanswered(now, str(exc) if exc else "the server closed the connection without an answer")
            return
        sending.finished()
        if self._status and not self._bounded and exc is None:
            sink.on_end(now)
        else:
            sink.on_failure(ErrorClass.TRUNCATED, str(exc) if exc else "the connection was closed in mid-answer", now)

    def on_header(self, name: bytes, value: bytes) -> None:
        key = name.lower()
        if key == b"content-type":
            self._content_type = value.decode("latin-1")
        elif key == b"content-length" or (key == b"transfer-encoding" and b"chunked" in value.lower()):
            self._bounded = True
        elif key == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            self._encoding = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code() if self._parser is not None else 0
        if status >= 200 and self._sink is not None:
            self._status = status
            if self._encoding and status == 200:
                self._fail(
                    ErrorClass.MALFORMED_STREAM, f"an answer compressed with {self._encoding}, against the request"
                )
                return
            self._sink.on_head(status, self._content_type, self._now)

    def on_body(self, chunk: bytes) -> None:
        if self._sink is not None:
            self._sink.on_body(chunk, self._now)

    def on_message_complete(self) -> None:
        if self._status:
            self._complete = True
            # asked here, because the parser forgets the headers once the message is over
            self._keep = self._parser is not None and self._parser.should_keep_alive()

    def _end(self, sink: Sink) -> None:
        if self._sink is not sink:
            return
        self.served += 1
        sending = self._sending
        self._release()
        if sending is not None:
            sending.finished()
        # the connection goes back before the sink hears of the end: a closed loop sends its next request from there
        if self._keep and self._wire is not None and not self._wire.is_closing():
            self._pool.idle.append(self)
        else:
            self.drop()
        sink.on_end(self._now)

    def _fail(self, error: ErrorClass, detail: str) -> None:
        sending, sink = self._sending, self._sink
        self.drop()
        if sending is not None:
            sending.finished()
        if sink is not None:
            sink.on_failure(error, detail, self._now)

    def _release(self) -> None:
        self._sending = self._sink = self._parser = None
