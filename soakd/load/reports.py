"""What a worker tells its owner: one JSON document a frame, on stdout, with bytes as base64."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Base64Bytes, Field, TypeAdapter

from soakd.errors import WorkerError
from soakd.load.histogram import Histogram
from soakd.load.messages import HISTOGRAMS, Counts, Histograms

MAX_FRAME_BYTES = 256 * 1024 * 1024
_LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker has built its prompts and opened its connections. ``transport`` is the one it took."""

    transport: str
    kind: Literal["ready"] = "ready"


@dataclass(frozen=True, slots=True)
class ReplicaTick:
    """One replica in one real second. Times are clock wall nanoseconds, None when there was no such thing;
    ``back_ns`` is the first success of a request that was sent after a failure."""

    completed: int
    failed: int
    down: int
    retried: int
    first_down_ns: int | None
    back_ns: int | None
    why: str
    e2e: Base64Bytes


@dataclass(frozen=True, slots=True)
class TickPart:
    """Totals so far of one worker, and what the last real second brought for each replica."""

    second: int
    stage: int
    offered: int
    started: int
    completed: int
    failed: int
    dropped: int
    tokens_out: int
    in_flight: int
    backing_off: int
    loop_lag_max_s: float
    ttft: Base64Bytes
    replicas: tuple[ReplicaTick, ...]
    kind: Literal["tick"] = "tick"


@dataclass(frozen=True, slots=True)
class ReplicaTally:
    completed: int
    failed: int
    tokens_out: int
    ttft: Base64Bytes
    e2e: Base64Bytes


@dataclass(frozen=True, slots=True)
class Tally:
    """Requests of one stage that ended in a window."""

    stage: int
    counts: Counts
    histograms: dict[str, Base64Bytes]
    replicas: tuple[ReplicaTally, ...]


@dataclass(frozen=True, slots=True)
class WindowPart:
    """One worker's part of a window. ``in_flight_s`` and ``waiting_s`` are request-seconds in flight and
    stream-seconds thinking or backing off; ``draining`` is what comes after the last stage's end."""

    index: int
    stage: int
    start_ns: int
    end_ns: int
    real_s: float
    in_flight_s: float
    waiting_s: float
    asked: int | None
    cpu_s: float
    reads: int
    coalesced: int
    tallies: tuple[Tally, ...]
    draining: bool = False
    records: Base64Bytes = b""
    records_dropped: int = 0
    kind: Literal["window"] = "window"


@dataclass(frozen=True, slots=True)
class CanaryPart:
    """One complete canary answer; or ``error`` says how the question failed."""

    prompt_id: str
    at_ns: int
    text: str
    error: str = ""
    kind: Literal["canary"] = "canary"


@dataclass(frozen=True, slots=True)
class Fault:
    """Something a user can act on went wrong: the worker ends after it."""

    message: str
    kind: Literal["fault"] = "fault"


@dataclass(frozen=True, slots=True)
class Ended:
    """The worker's last word. ``stopped`` when it was told to stop before its stages were over."""

    stopped: bool
    rss_bytes: int
    kind: Literal["ended"] = "ended"


Report = Ready | TickPart | WindowPart | CanaryPart | Fault | Ended
_REPORT: TypeAdapter[Report] = TypeAdapter(Annotated[Report, Field(discriminator="kind")])


@dataclass(frozen=True, slots=True)
class Start:
    """To a worker that is ready: stage 0 begins at this monotonic time (real, shared by all processes)."""

    origin_ns: int
    kind: Literal["start"] = "start"


@dataclass(frozen=True, slots=True)
class Stop:
    """To a worker: send nothing more, and let what is in flight end within ``grace_s`` real seconds."""

    grace_s: float
    kind: Literal["stop"] = "stop"


Order = Start | Stop
_ORDER: TypeAdapter[Order] = TypeAdapter(Annotated[Order, Field(discriminator="kind")])


def encode_report(report: Report) -> bytes:
    return frame(_REPORT.dump_json(report))


def decode_report(raw: bytes) -> Report:
    """Raises pydantic.ValidationError."""
    return _REPORT.validate_json(raw)


def encode_order(order: Order) -> bytes:
    return frame(_ORDER.dump_json(order))


def decode_order(raw: bytes) -> Order:
    """Raises pydantic.ValidationError."""
    return _ORDER.validate_json(raw)


def frame(document: bytes) -> bytes:
    return len(document).to_bytes(_LENGTH_BYTES, "big") + document


async def read_frame(stream: asyncio.StreamReader) -> bytes | None:
    """The next document, None at the end of the stream (or in the middle of a frame that a dead process left)."""
    try:
        size = int.from_bytes(await stream.readexactly(_LENGTH_BYTES), "big")
        if size > MAX_FRAME_BYTES:
            raise WorkerError(f"a frame of {size} bytes from the other side of the pipe")
        return await stream.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def pack_histograms(histograms: Histograms) -> dict[str, bytes]:
    """Those that hold anything."""
    named = {name: getattr(histograms, name) for name in HISTOGRAMS}
    return {name: histogram.encode() for name, histogram in named.items() if histogram.count}


def unpack_histograms(packed: dict[str, bytes]) -> Histograms:
    """Raises ValueError."""
    return Histograms(**{name: Histogram.decode(raw) for name, raw in packed.items()})
