"""Cutting a response body into payloads as it arrives, whatever the reads split it into.

`SseParser` follows the WHATWG event stream grammar: LF, CRLF and CR end lines, several ``data`` lines make one
payload, comments and unknown fields are skipped, a byte order mark is skipped. Beyond it, llama.cpp's ``error:``
field and ``event: error`` come out as a payload with an ``error`` key, and a last event whose line is complete counts
although the empty line after it is missing.
"""

from __future__ import annotations

from typing import Protocol

import orjson

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""The largest event taken; above it the stream is malformed rather than held in memory."""

DONE = b"[DONE]"
_BOM = b"\xef\xbb\xbf"


class EventTooLarge(ValueError):
    """An event above the cap."""


class Framer(Protocol):
    """Takes reads, gives payloads."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The payloads that this read completed. Raises EventTooLarge."""
        ...

    def finish(self) -> list[bytes]:
        """The body has ended: what was complete but not yet terminated."""
        ...


class SseParser:
    """Server-sent events."""

    __slots__ = ("_clean", "_data", "_event", "_limit", "_size", "_skip_lf", "_start", "_tail")

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._tail: list[bytes] = []
        self._data: list[bytes] = []
        self._event = b""
        self._size = 0
        self._skip_lf = False
        self._start = True
        self._clean = False

    def feed(self, chunk: bytes) -> list[bytes]:
        # nearly every read of a stream under load is whole events of one data line each
        if self._clean and chunk[:6] == b"data: " and chunk[-2:] == b"\n\n" and b"\r" not in chunk:
            lines = chunk.count(b"\n")
            if lines == 2:
                return [chunk[6:-2]]
            events = chunk[:-2].split(b"\n\n")
            if lines == 2 * len(events) and all(event[:6] == b"data: " for event in events):
                return [event[6:] for event in events]
        return self._feed(chunk)

    def finish(self) -> list[bytes]:
        rest = b"".join(self._tail)
        self._tail = []
        if rest == b"data: " + DONE or rest == b"data:" + DONE:
            self._data.append(DONE)
        out: list[bytes] = []
        self._dispatch(out)
        return out

    def _feed(self, chunk: bytes) -> list[bytes]:
        if not chunk:
            return []
        if self._start:
            chunk = self._without_mark(chunk)
            if self._start:
                return []
        if self._skip_lf and chunk[:1] == b"\n":
            chunk = chunk[1:]
        self._skip_lf = False
        if b"\r" in chunk:
            self._skip_lf = chunk[-1:] == b"\r"
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._size += len(chunk)
        if b"\n" not in chunk:
            self._check()
            self._tail.append(chunk)
            self._clean = False
            return []
        self._tail.append(chunk)
        *lines, rest = b"".join(self._tail).split(b"\n")
        self._tail = [rest] if rest else []
        out: list[bytes] = []
        for line in lines:
            self._line(line, out)
        self._size = len(rest) + sum(map(len, self._data)) + len(self._data)
        self._check()
        self._clean = not (rest or self._data or self._event)
        return out

    def _without_mark(self, chunk: bytes) -> bytes:
        """Holds the first bytes back while they may still be the beginning of a byte order mark."""
        head = b"".join(self._tail) + chunk
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._tail = [head]
            return b""
        self._tail = []
        self._start = False
        return head.removeprefix(_BOM)

    def _check(self) -> None:
        if self._size > self._limit:
            raise EventTooLarge(f"an event of more than {self._limit} bytes")

    def _line(self, line: bytes, out: list[bytes]) -> None:
        if not line:
            self._dispatch(out)
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value
        elif name == b"error":
            self._data.append(_as_error(value))

    def _dispatch(self, out: list[bytes]) -> None:
        if self._data:
            payload = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            out.append(_as_error(payload) if self._event == b"error" else payload)
            self._data = []
        self._event = b""


class JsonLinesParser:
    """JSON documents ended by NUL (vLLM's first API server) or newline (its successor)."""

    __slots__ = ("_limit", "_size", "_tail")

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._tail: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        chunk = chunk.replace(b"\0", b"\n")
        self._tail.append(chunk)
        if b"\n" not in chunk:
            self._size += len(chunk)
        else:
            *documents, rest = b"".join(self._tail).split(b"\n")
            self._tail = [rest] if rest else []
            self._size = len(rest)
            return [document for document in documents if document.strip()]
        if self._size > self._limit:
            raise EventTooLarge(f"a document of more than {self._limit} bytes")
        return []

    def finish(self) -> list[bytes]:
        rest = b"".join(self._tail).strip()
        self._tail = []
        return [rest] if rest.endswith(b"}") else []


def _as_error(payload: bytes) -> bytes:
    try:
        document = orjson.loads(payload)
    except orjson.JSONDecodeError:
        document = payload.decode(errors="replace")
    if isinstance(document, dict) and "error" in document:
        return payload
    return orjson.dumps({"error": document})
