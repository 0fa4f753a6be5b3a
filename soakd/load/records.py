"""One finished request in 80 bytes: what the journal keeps of each, packed by the worker and decoded when asked."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from soakd.load.failure import ErrorClass, Finish

_LAYOUT = struct.Struct("<qIIIIIIIIIIIHHBBBBI16s")
SIZE = _LAYOUT.size
_UNKNOWN = 0xFFFFFFFF
_TAG_BYTES = 16

USAGE_MISSING = 1
RETRIED = 2
REUSED_CONNECTION = 4
WARM_PREFIX = 8


@dataclass(frozen=True, slots=True)
class Record:
    """One request. ``due_ns`` is clock wall time; the other times are real seconds after it, None when not reached.

    ``tokens_*`` are the server's counts, None when it gave none; ``chunks`` are the deltas that carried tokens;
    ``max_gap_s`` the longest wait between two of them; ``status`` is HTTP's, 0 when no answer came; ``tag`` is the
    class of the prompt, cut to 16 bytes of UTF-8; ``flags`` are those above (WARM_PREFIX: a server with a
    prefix cache has most of the prompt); ``stage``, ``replica`` and ``worker`` are indexes.
    """

    due_ns: int
    sent_s: float | None
    first_byte_s: float | None
    first_token_s: float | None
    first_content_s: float | None
    last_s: float | None
    max_gap_s: float | None
    tokens_in: int | None
    tokens_out: int | None
    cached_tokens: int | None
    reasoning_tokens: int | None
    chunks: int
    status: int
    stage: int
    error: ErrorClass
    finish: Finish
    replica: int
    worker: int
    flags: int
    tag: str


def pack(record: Record) -> bytes:
    """SIZE bytes. Times are cut to whole microseconds, at most 71 minutes."""
    return _LAYOUT.pack(
        record.due_ns, _us(record.sent_s), _us(record.first_byte_s), _us(record.first_token_s),
        _us(record.first_content_s), _us(record.last_s), _us(record.max_gap_s), _number(record.tokens_in),
        _number(record.tokens_out), _number(record.cached_tokens), _number(record.reasoning_tokens), record.chunks,
        record.status & 0xFFFF, record.stage & 0xFFFF, record.error, record.finish, record.replica & 0xFF,
        record.worker & 0xFF, record.flags, cut_tag(record.tag),
    )  # fmt: skip


def decode(blob: bytes) -> Iterator[Record]:
    """The records of a blob, in the order in which the requests ended. Raises ValueError for a torn blob."""
    if len(blob) % SIZE:
        raise ValueError(f"{len(blob)} bytes are no whole number of records of {SIZE}")
    for row in _LAYOUT.iter_unpack(blob):
        due, sent, byte, token, content, last, gap, t_in, t_out, cached, reasoning, chunks = row[:12]
        status, stage, error, finish, replica, worker, flags, tag = row[12:]
        yield Record(
            due, _seconds(sent), _seconds(byte), _seconds(token), _seconds(content), _seconds(last), _seconds(gap),
            _known(t_in), _known(t_out), _known(cached), _known(reasoning), chunks, status, stage,
            ErrorClass(error), Finish(finish), replica, worker, flags, tag.rstrip(b"\0").decode(errors="ignore"),
        )  # fmt: skip


def cut_tag(tag: str) -> bytes:
    """At most 16 bytes, without half a character at the end."""
    return tag.encode()[:_TAG_BYTES].decode(errors="ignore").encode()


def _us(seconds: float | None) -> int:
    return _UNKNOWN if seconds is None else min(max(int(seconds * 1e6), 0), _UNKNOWN - 1)


def _number(count: int | None) -> int:
    return _UNKNOWN if count is None else min(max(count, 0), _UNKNOWN - 1)


def _seconds(us: int) -> float | None:
    return None if us == _UNKNOWN else us / 1e6


def _known(count: int) -> int | None:
    return None if count == _UNKNOWN else count
