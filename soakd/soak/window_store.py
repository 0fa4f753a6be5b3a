"""Load windows as the journal keeps them, and the totals of a run merged from them.

The load process's own totals are exact; these are for a run that ended without them (kill -9, power loss).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import Base64Bytes, TypeAdapter

from soakd.journal.records import Blob
from soakd.load.histogram import Histogram
from soakd.load.messages import (
    Counts,
    Done,
    Histograms,
    ReplicaCounts,
    SelfCheck,
    StageTotals,
    Window,
    merge_counts,
    merge_replicas,
)
from soakd.load.reports import pack_histograms, unpack_histograms

BLOB = "load.window"
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
