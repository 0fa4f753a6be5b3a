"""A streaming chat server of known timing, which measures its own lateness: the truth that load engines are held to.

``python bench/servers/known_timing.py --port 0 [--ttft-ms 50] [--itl-ms 10] [--tokens 64] [--core N]`` prints one JSON
line with its URL. ``GET /truth`` gives percentiles of what it really did since the last ``POST /reset``: TTFT from the
read that completed a request to the write of the first token, ITL between writes, in ms. Ends when its stdin closes.
"""

from __future__ import annotations

import argparse
import array
import asyncio
import json
import math
import os
import sys
import time
from collections.abc import Sequence
from typing import cast

import uvloop

_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_COMMON = (
    b'{"id":"chatcmpl-0123456789abcdef0123456789abcdef","object":"chat.completion.chunk","created":1700000000,'
    b'"model":"known-timing","choices":['
)
_WORST_KEPT = 4_000_000


def _chunk(payload: bytes) -> bytes:
    event = b"data: " + payload + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(event), event)


def _delta(delta: bytes, finish: bytes) -> bytes:
    return _chunk(
        _COMMON + b'{"index":0,"delta":' + delta + b',"logprobs":null,"finish_reason":' + finish + b'}],"usage":null}'
    )


_ROLE = _delta(b'{"role":"assistant","content":""}', b"null")
_TOKEN = _delta(b'{"content":" token"}', b"null")
_LAST = _delta(b'{"content":" token"}', b'"length"')


class Truth:
    """What the server did, in microseconds."""

    def __init__(self) -> None:
        self.ttft = array.array("Q")
        self.itl = array.array("Q")
        self.requests = 0
        self.peak = 0
        self.active = 0
        self.connections = 0

    def report(self) -> dict[str, object]:
        return {
            "requests": self.requests,
            "peak_streams": self.peak,
            "connections": self.connections,
            "ttft_ms": _percentiles(self.ttft),
            "itl_ms": _percentiles(self.itl),
        }

    def reset(self) -> None:
        active = self.active
        fresh = Truth()
        self.ttft, self.itl = fresh.ttft, fresh.itl
        self.requests = self.connections = 0
        self.peak = self.active = active


def _percentiles(values: array.array[int]) -> dict[str, float | None]:
    ordered = sorted(values)

    def at(q: float) -> float | None:
        return ordered[min(len(ordered) - 1, max(0, math.ceil(q * len(ordered)) - 1))] / 1000 if ordered else None

    return {"p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "count": float(len(ordered))}


class Wheel:
    """All streams due in a millisecond are written by one timer: 50,000 timers a second would be the limit."""

    def __init__(self) -> None:
        self._slots: dict[int, list[Stream]] = {}
        self._loop = asyncio.get_running_loop()
        self._next: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def add(self, stream: Stream) -> None:
        slot = -(-stream.due_ns // 1_000_000)
        self._slots.setdefault(slot, []).append(stream)
        if self._next is None or slot < self._next:
            self._arm(slot)

    def _arm(self, slot: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = slot
        wait = max(0, slot * 1_000_000 - time.monotonic_ns())
        self._timer = self._loop.call_later(math.ceil(wait / 1e6) / 1000, self._turn)

    def _turn(self) -> None:
        now = time.monotonic_ns() // 1_000_000
        self._next = self._timer = None
        for slot in sorted(slot for slot in self._slots if slot <= now):
            for stream in self._slots.pop(slot):
                stream.write()
        if self._slots and self._next is None:
            self._arm(min(self._slots))


class Stream:
    """One answer under way."""

    __slots__ = ("_connection", "_left", "due_ns", "last_ns", "received_ns")

    def __init__(self, connection: Connection, received_ns: int) -> None:
        server = connection.server
        self._connection = connection
        self._left = server.tokens
        self.received_ns = received_ns
        self.last_ns = 0
        self.due_ns = received_ns + server.ttft_ns
        server.wheel.add(self)

    def write(self) -> None:
        connection = self._connection
        server = connection.server
        if connection.wire is None or connection.wire.is_closing():
            server.truth.active -= 1
            return
        now = time.monotonic_ns()
        self._left -= 1
        truth = server.truth
        if self.last_ns:
            if len(truth.itl) < _WORST_KEPT:
                truth.itl.append((now - self.last_ns) // 1000)
            connection.wire.write(_TOKEN if self._left else _LAST + server.tail)
        else:
            truth.ttft.append((now - self.received_ns) // 1000)
            connection.wire.write(_HEAD + _ROLE + (_TOKEN if self._left else _LAST + server.tail))
        self.last_ns = now
        if self._left:
            self.due_ns += server.itl_ns
            server.wheel.add(self)
        else:
            truth.active -= 1
            truth.requests += 1


class Server:
    """What all connections share."""

    def __init__(self, ttft_ms: float, itl_ms: float, tokens: int) -> None:
        self.ttft_ns = int(ttft_ms * 1e6)
        self.itl_ns = int(itl_ms * 1e6)
        self.tokens = tokens
        self.wheel = Wheel()
        self.truth = Truth()
        usage = b'],"usage":{"prompt_tokens":16,"completion_tokens":%d,"total_tokens":%d}}' % (tokens, tokens + 16)
        self.tail = _chunk(_COMMON + usage) + _chunk(b"[DONE]") + b"0\r\n\r\n"


class Connection(asyncio.Protocol):
    """Just enough HTTP: one request at a time, a body by content-length."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.wire: asyncio.Transport | None = None
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.wire = cast(asyncio.Transport, transport)
        self.server.truth.connections += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.wire = None

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._buffer[:end].lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(self._buffer) < end + 4 + length:
            return
        self._buffer = self._buffer[end + 4 + length :]
        self._serve(head.split(b"\r\n", 1)[0], now)

    def _serve(self, line: bytes, now_ns: int) -> None:
        truth = self.server.truth
        if b"/chat/completions" in line:
            truth.active += 1
            truth.peak = max(truth.peak, truth.active)
            Stream(self, now_ns)
        elif b"/truth" in line:
            self._answer(truth.report())
        elif b"/reset" in line:
            truth.reset()
            self._answer({})
        elif b"/models" in line:
            self._answer({"object": "list", "data": [{"id": "known-timing", "object": "model", "owned_by": "bench"}]})
        else:
            self._answer({"status": "ok"})

    def _answer(self, document: dict[str, object]) -> None:
        body = json.dumps(document).encode()
        if self.wire is not None:
            self.wire.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
            )


async def serve(options: argparse.Namespace) -> None:
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    loop = asyncio.get_running_loop()
    server = Server(options.ttft_ms, options.itl_ms, options.tokens)
    listener = await loop.create_server(lambda: Connection(server), "127.0.0.1", options.port, backlog=4096)
    port = listener.sockets[0].getsockname()[1]
    print(json.dumps({"url": f"http://127.0.0.1:{port}", "pid": os.getpid()}), flush=True)
    await loop.run_in_executor(None, sys.stdin.buffer.read)
    listener.close()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="a streaming chat server of known timing")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ttft-ms", type=float, default=50.0)
    parser.add_argument("--itl-ms", type=float, default=10.0)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--core", type=int, default=None)
    uvloop.run(serve(parser.parse_args(arguments)))
    os._exit(0)


if __name__ == "__main__":
    main()
