"""Reads a journal, alone or while its owner writes. Every answer is one snapshot of hot and sealed rows."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from soakd.journal.records import Blob, Buckets, JournalSummary, RunRecord, SeriesKey
from soakd.model import Event, Finding, Labels, Series


class JournalReader:
    """Read-only. Methods block for the time of a query: call them from a thread where a loop runs.

    ``run_id`` None means every run and what was outside runs; ``from_ns`` is inclusive, ``to_ns`` exclusive.
    """

    def __init__(self, directory: Path) -> None:
        """Raises JournalError: no journal there, not a journal, newer schema."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> JournalReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def runs(self) -> tuple[RunRecord, ...]:
        """Every run, newest first."""
        raise NotImplementedError

    def run(self, which: str) -> RunRecord:
        """By id, by a prefix that only one has, or ``latest``. Raises JournalError that names what there is."""
        raise NotImplementedError

    def series(self, metric: str | None = None, run_id: str | None = None) -> tuple[SeriesKey, ...]:
        """What series there are, ordered by metric name and labels."""
        raise NotImplementedError

    def read(
        self,
        metric: str,
        labels: Labels | None = None,
        from_ns: int | None = None,
        to_ns: int | None = None,
        run_id: str | None = None,
    ) -> Series:
        """Raw readings in order of time, as numpy int64 and float64 arrays. ``labels`` may be None where the metric
        has only one series. Raises JournalError for an unknown series or an ambiguous one."""
        raise NotImplementedError

    def buckets(
        self,
        metric: str,
        labels: Labels | None = None,
        from_ns: int | None = None,
        to_ns: int | None = None,
        run_id: str | None = None,
        *,
        max_points: int = 1000,
        width_ns: int | None = None,
    ) -> Buckets:
        """The series in at most ``max_points`` steps (or in steps of ``width_ns``), raw and rolled-up data as one."""
        raise NotImplementedError

    def increase(
        self,
        metric: str,
        labels: Labels | None = None,
        from_ns: int | None = None,
        to_ns: int | None = None,
        run_id: str | None = None,
    ) -> float | None:
        """What a counter gained, summed over its epochs; None with fewer than two readings."""
        raise NotImplementedError

    def events(
        self,
        from_ns: int | None = None,
        to_ns: int | None = None,
        run_id: str | None = None,
        kind: str | None = None,
        limit: int = 10_000,
    ) -> tuple[Event, ...]:
        """In order of time; ``kind`` may be a dotted prefix. The newest ``limit``."""
        raise NotImplementedError

    def findings(
        self, from_ns: int | None = None, to_ns: int | None = None, run_id: str | None = None, limit: int = 10_000
    ) -> tuple[Finding, ...]:
        raise NotImplementedError

    def blobs(self, kind: str, run_id: str) -> tuple[Blob, ...]:
        """In order of time."""
        raise NotImplementedError

    def summary(self) -> JournalSummary:
        """Size, rows, cursors and their lag."""
        raise NotImplementedError
