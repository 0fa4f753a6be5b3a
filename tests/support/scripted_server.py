"""A TCP server on loopback that does to each request what a script says: the faults that real servers have."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.fake_load import DONE, HEAD, STOP, TOKEN, usage

EVENT_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
ANSWER = (HEAD, TOKEN, TOKEN, STOP, usage(2), DONE)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"
WHOLE = EVENT_STREAM + b"".join(chunk(part) for part in ANSWER) + LAST_CHUNK


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as the server saw it. ``number`` counts all requests from 0, ``nth`` those of its connection."""

    number: int
    nth: int
    head: bytes
    body: bytes


@dataclass(slots=True)
class Seen:
    url: str = ""
    port: int = 0
    connections: int = 0
    active: int = 0
    peak: int = 0
    asked: list[Asked] = field(default_factory=list)


Script = Callable[[Asked, asyncio.StreamWriter], Awaitable[bool]]
"""Writes the answer; True keeps the connection."""


async def whole_answer(asked: Asked, writer: asyncio.StreamWriter) -> bool:
    writer.write(WHOLE)
    return True


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with a RST rather than a FIN, as a dying process does."""
    writer.transport.abort()


@contextlib.asynccontextmanager
async def scripted(
    script: Script = whole_answer, tls: ssl.SSLContext | None = None, socket: Path | None = None
) -> AsyncIterator[Seen]:
    """Serve until the block ends; what was seen is in the result."""
    seen = Seen()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.connections += 1
        nth = 0
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while asked := await _request(reader, seen, nth):
                seen.asked.append(asked)
                nth += 1
                seen.active += 1
                seen.peak = max(seen.peak, seen.active)
                try:
                    keep = await script(asked, writer)
                finally:
                    seen.active -= 1
                if not keep:
                    break
        writer.close()

    if socket is None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls, backlog=2000)
        seen.port = server.sockets[0].getsockname()[1]
        seen.url = f"{'https' if tls else 'http'}://127.0.0.1:{seen.port}"
    else:
        server = await asyncio.start_unix_server(serve, socket)
        seen.url = "http://localhost"
    try:
        yield seen
    finally:
        server.close()


async def _request(reader: asyncio.StreamReader, seen: Seen, nth: int) -> Asked | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    at = head.lower().find(b"content-length:")
    length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
    body = await reader.readexactly(length)
    return Asked(len(seen.asked), nth, head, body)
