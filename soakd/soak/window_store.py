"""Load windows as the journal keeps them, and the totals of a run merged from them.

The load process's own totals are exact; these are for a run that ended without them (kill -9, power loss).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pydantic import Base64Bytes, TypeAdapter, ValidationError

from soakd.journal.records import Blob
from soakd.load.histogram import Histogram
from soakd.load.messages import (
    Counts,
    Done,
    Histograms,
    ReplicaCounts,
    SelfCheck,
    StageTotals,
    Tick,
    Window,
    merge_counts,
    merge_replicas,
)
from soakd.load.reports import pack_histograms, unpack_histograms

BLOB = "load.window"
TAIL = "load.tail"
_NOTHING = SelfCheck(None, None, None, None, None, None, None)


@dataclass(frozen=True, slots=True)
class StoredReplica:
    """One replica's share of a window, its histograms encoded."""

    url: str
    completed: int
    failed: int
    tokens_out: int
    ttft: Base64Bytes
    e2e: Base64Bytes

    @classmethod
    def of(cls, counts: ReplicaCounts) -> StoredReplica:
        return cls(counts.url, counts.completed, counts.failed, counts.tokens_out, counts.ttft.encode(),
                   counts.e2e.encode())  # fmt: skip

    def counts(self) -> ReplicaCounts:
        return ReplicaCounts(self.url, self.completed, self.failed, self.tokens_out, Histogram.decode(self.ttft),
                             Histogram.decode(self.e2e))  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredWindow:
    """One window without its request records; ``histograms`` are packed."""

    stage: str
    measured: bool
    real_s: float
    counts: Counts
    histograms: dict[str, Base64Bytes]
    concurrency: float
    concurrency_asked: float | None
    replicas: tuple[StoredReplica, ...] = ()


_ADAPTER: TypeAdapter[StoredWindow] = TypeAdapter(StoredWindow)


def encode(window: Window) -> bytes:
    stored = StoredWindow(
        window.stage, window.measured, window.real_s, window.counts, pack_histograms(window.histograms),
        window.concurrency, window.concurrency_asked, tuple(map(StoredReplica.of, window.replicas)),
    )  # fmt: skip
    return _ADAPTER.dump_json(stored)


@dataclass(frozen=True, slots=True)
class Tail:
    """The counts of a run as of its last second: what has ended since its last window is known from these alone."""

    run_id: str
    at_ns: int
    stage: str
    measured: bool
    offered: int
    started: int
    completed: int
    failed: int
    dropped: int

    @classmethod
    def of(cls, run_id: str, tick: Tick) -> Tail:
        return cls(run_id, tick.at_ns, tick.stage, tick.measured, tick.offered, tick.started, tick.completed,
                   tick.failed, tick.dropped)  # fmt: skip

    def to_json(self) -> bytes:
        return _TAIL.dump_json(self)


_TAIL: TypeAdapter[Tail] = TypeAdapter(Tail)


def tail_of(kept: bytes | None, run_id: str) -> Tail | None:
    """The tail that was last kept, if it is of this run."""
    if kept is None:
        return None
    try:
        tail = _TAIL.validate_json(kept)
    except ValidationError:
        return None
    return tail if tail.run_id == run_id else None


def with_tail(done: Done | None, tail: Tail | None) -> Done | None:
    """The totals with what ended after the last window, in the stage that the run was in. Its latencies, tokens and
    classes of error were lost, and ``incomplete`` says so."""
    if tail is None:
        return done
    base = done or Done(_Sum().totals("total"), (), (), _NOTHING, None, "", "soakd was killed", 0, None)
    windows = merge_counts([s.counts for s in base.stages])
    names = ("offered", "started", "completed", "failed", "dropped")
    more = Counts(**{n: max(0, getattr(tail, n) - getattr(windows, n)) for n in names})
    ended = more.completed + more.failed
    if not ended and not more.offered:
        return done
    if tail.measured:
        more = replace(more, usage_missing=more.completed)
        base = replace(base, total=replace(base.total, counts=merge_counts([base.total.counts, more])))
    last = next((s for s in base.stages if s.name == tail.stage), None) or replace(
        _Sum().totals(tail.stage), measured=tail.measured
    )
    others = tuple(s for s in base.stages if s.name != tail.stage)
    stages = (*others, replace(last, counts=merge_counts([last.counts, more])))
    why = f"{base.incomplete}; of {ended:,} requests that ended after the last window only the number is known"
    return replace(base, stages=stages, incomplete=why)


def totals(blobs: Iterable[Blob], why: str) -> tuple[Done | None, int]:
    """The totals of the windows that were kept (None when there are none) and the end of the last one, in ns.
    ``why`` says why they are not the whole.

    Windows are merged one at a time, however many there are.
    """
    stages: dict[str, _Sum] = {}
    total = _Sum()
    last_ns = 0
    for blob in blobs:
        last_ns = max(last_ns, blob.to_ns)
        window = _ADAPTER.validate_json(blob.data)
        stages.setdefault(window.stage, _Sum()).add(window)
        if window.measured:
            total.add(window)
    if not stages:
        return None, last_ns
    parts = tuple(part.totals(name) for name, part in stages.items())
    return Done(total.totals("total"), parts, (), _NOTHING, None, "", why, 0, None, total.replicas()), last_ns


class _Sum:
    def __init__(self) -> None:
        self._counts = Counts()
        self._histograms = Histograms()
        self._seconds = 0.0
        self._request_seconds = 0.0
        self._asked: float | None = None
        self._measured = False
        self._replicas: dict[str, ReplicaCounts] = {}

    def add(self, window: StoredWindow) -> None:
        self._counts = merge_counts([self._counts, window.counts])
        self._histograms.merge(unpack_histograms(dict(window.histograms)))
        self._seconds += window.real_s
        self._request_seconds += window.concurrency * window.real_s
        self._measured |= window.measured
        for replica in window.replicas:
            so_far = self._replicas.get(replica.url)
            counts = replica.counts()
            self._replicas[replica.url] = merge_replicas([so_far, counts]) if so_far else counts
        if window.concurrency_asked is not None:
            self._asked = max(self._asked or 0.0, window.concurrency_asked)

    def replicas(self) -> tuple[ReplicaCounts, ...]:
        return tuple(self._replicas.values())

    def totals(self, name: str) -> StageTotals:
        concurrency = self._request_seconds / self._seconds if self._seconds else None
        return StageTotals(
            name, self._measured, self._seconds, self._counts, self._histograms, concurrency, self._asked
        )
