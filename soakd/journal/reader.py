"""Reads a journal, alone or while its owner writes. Every answer is one snapshot of hot and sealed rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import cast

import numpy as np

from soakd.errors import JournalError
from soakd.journal.codec import Rows, decode_rows, join_rows
from soakd.journal.records import Blob, Buckets, Cursor, JournalSummary, RunRecord, SeriesKey, SetAside
from soakd.journal.rollup import Steps, decode_steps, gains, increases, merge, roll
from soakd.journal.rows import (
    EVENT_COLUMNS,
    FINDING_COLUMNS,
    METRIC_COLUMNS,
    RUN_COLUMNS,
    cursor_from,
    event_from,
    finding_from,
    labels_from,
    labels_text,
    metric_from,
    run_from,
)
from soakd.journal.schema import FILE_NAME, open_readonly
from soakd.journal.sealing import rows_of
from soakd.journal.summary import summarize
from soakd.model import Event, Finding, Labels, Metric, Series, State

_EVER = (-(2**63), 2**63 - 1)


@dataclass(frozen=True, slots=True)
class _Found:
    """A series asked for, and the ids of its parts (one a run)."""

    metric: Metric
    labels: Labels
    ids: tuple[int, ...]


class JournalReader:
    """Read-only. Methods block for the time of a query: call them from a thread where a loop runs, one at a time.

    ``run_id`` None means every run and what was outside runs; ``from_ns`` is inclusive, ``to_ns`` exclusive.
    """

    def __init__(self, directory: Path) -> None:
        """Raises JournalError: no journal there, not a journal, newer schema."""
        self._path = directory / FILE_NAME
        self._sql, self._version = open_readonly(self._path)

    def close(self) -> None:
        self._sql.close()

    def __enter__(self) -> JournalReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def runs(self, *, limit: int | None = None, brief: bool = False) -> tuple[RunRecord, ...]:
        """Every run, or the newest ``limit`` of them, newest first; ``brief`` leaves configuration and report out."""
        columns = RUN_COLUMNS.replace("config, report", "x'', x''") if brief else RUN_COLUMNS
        query = f"SELECT {columns} FROM run ORDER BY started_ns DESC, id DESC LIMIT ?"
        with self._snapshot():
            return tuple(run_from(row) for row in self._sql.execute(query, (-1 if limit is None else limit,)))

    def run(self, which: str) -> RunRecord:
        """By id, by a prefix that only one has, or ``latest``. Raises JournalError that names what there is."""
        if which == "latest" and (newest := self.runs(limit=1)):
            return newest[0]
        runs = self.runs(brief=True)
        exact = [run for run in runs if run.id == which]
        matches = exact or [run for run in runs if which and run.id.startswith(which)]
        if len(matches) == 1:
            with self._snapshot():
                query = f"SELECT {RUN_COLUMNS} FROM run WHERE id = ?"
                return run_from(self._sql.execute(query, (matches[0].id,)).fetchone())
        if matches:
            names = ", ".join(run.id for run in matches[:5])
            raise JournalError(f"{len(matches)} runs begin with {which!r}: {names}", hint="give more of the id")
        there = f"there are {', '.join(run.id for run in runs[:5])}" if runs else "there are no runs yet"
        raise JournalError(f"no run {which!r} in {self._path}", hint=there)

    def series(self, metric: str | None = None, run_id: str | None = None) -> tuple[SeriesKey, ...]:
        """What series there are, ordered by metric name and labels."""
        with self._snapshot():
            counts: dict[tuple[str, Labels], int] = {}
            metrics: dict[str, Metric] = {}
            for series, found, labels in self._series_rows(metric, None, run_id):
                key = (found.name, labels)
                metrics[found.name] = found
                counts[key] = counts.get(key, 0) + self._count(series)
        return tuple(SeriesKey(metrics[name], labels, count) for (name, labels), count in sorted(counts.items()))

    def read(
        self,
        metric: str,
        labels: Labels | None = None,
        from_ns: int | None = None,
        to_ns: int | None = None,
        run_id: str | None = None,
    ) -> Series:
        """Raw readings in order of time, as numpy int64 and float64 arrays.

        ``labels`` may be None where the metric has only one series. Raises JournalError for an unknown series or an
        ambiguous one.
        """
        with self._snapshot():
            found = self._find(metric, labels, run_id)
            rows = self._rows(found.ids, from_ns, to_ns)
        known = rows.states == 0
        codes, counts = np.unique(rows.states, return_counts=True)
        return Series(
            metric=found.metric,
            labels=found.labels,
            at_ns=cast("Sequence[int]", rows.at_ns[known]),
            values=cast("Sequence[float]", rows.values[known]),
            unknown=int((~known).sum()),
            states={State.from_code(int(code)): int(n) for code, n in zip(codes, counts, strict=True)},
        )

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
        with self._snapshot():
            found = self._find(metric, labels, run_id)
            rows = self._rows(found.ids, from_ns, to_ns)
            rolled = self._rolled(found.ids, from_ns, to_ns)
        wraps_at = found.metric.wraps_at
        if width_ns is None:
            width_ns = _width([rows.at_ns, *(steps.start_ns for _, steps in rolled)], max_points)
        width_ns = max(width_ns, *(width for width, _ in rolled), 1) if rolled else max(width_ns, 1)
        parts = [merge([steps], width_ns, wraps_at) for _, steps in rolled]
        if len(rows):
            parts.append(roll(rows, width_ns, wraps_at))
        steps = merge(parts, width_ns, wraps_at)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(steps.count > 0, steps.total / steps.count, np.nan)
        return Buckets(
            found.metric, found.labels, width_ns, steps.start_ns, steps.count, steps.unknown, steps.minimum, mean,
            steps.maximum, steps.last, increases(steps, wraps_at),
        )  # fmt: skip

    def increase(
        self,
        metric: str,
        labels: Labels | None = None,
        from_ns: int | None = None,
        to_ns: int | None = None,
        run_id: str | None = None,
    ) -> float | None:
        """What a counter gained, summed over its epochs; None with fewer than two readings."""
        series = self.read(metric, labels, from_ns, to_ns, run_id)
        values = np.asarray(series.values, np.float64)
        return float(gains(values, series.metric.wraps_at).sum()) if len(values) > 1 else None

    def events(
        self,
        from_ns: int | None = None,
        to_ns: int | None = None,
        run_id: str | None = None,
        kind: str | None = None,
        limit: int = 10_000,
    ) -> tuple[Event, ...]:
        """In order of time, the newest ``limit`` of them; ``kind`` may be a dotted prefix."""
        where, values = self._bounds(from_ns, to_ns, run_id)
        if kind is not None:
            where += " AND (kind = ? OR substr(kind, 1, ?) = ?)"
            values += (kind, len(kind) + 1, f"{kind}.")
        query = f"SELECT {EVENT_COLUMNS} FROM event WHERE {where} ORDER BY at_ns DESC, id DESC LIMIT ?"
        with self._snapshot():
            return tuple(event_from(row) for row in reversed(self._sql.execute(query, (*values, limit)).fetchall()))

    def findings(
        self, from_ns: int | None = None, to_ns: int | None = None, run_id: str | None = None, limit: int = 10_000
    ) -> tuple[Finding, ...]:
        """In order of time, the newest ``limit`` of them."""
        where, values = self._bounds(from_ns, to_ns, run_id)
        query = f"SELECT {FINDING_COLUMNS} FROM finding WHERE {where} ORDER BY at_ns DESC, id DESC LIMIT ?"
        with self._snapshot():
            return tuple(finding_from(row) for row in reversed(self._sql.execute(query, (*values, limit)).fetchall()))

    def blobs(self, kind: str, run_id: str) -> Iterator[Blob]:
        """In order of time, one at a time: a run may hold more of them than fits in memory."""
        query = (
            "SELECT blob.id, from_ns, to_ns, count, data FROM blob JOIN run_ref ON no = run_no "
            "WHERE kind = ? AND run_ref.id = ? AND (from_ns, blob.id) > (?, ?) ORDER BY from_ns, blob.id LIMIT 16"
        )
        after = (_EVER[0], 0)
        while True:
            with self._snapshot():
                page = self._sql.execute(query, (kind, run_id, *after)).fetchall()
            for _, start, end, count, data in page:
                yield Blob(kind, run_id, int(start), int(end), int(count), bytes(data))
            if not page:
                return
            after = (int(page[-1][1]), int(page[-1][0]))

    def kept(self, name: str) -> bytes | None:
        """What was last kept under a name."""
        with self._snapshot():
            query = "SELECT data FROM kept WHERE name = ?"
            found = self._sql.execute(query, (name,)).fetchone() if self._version > 2 else None
            return bytes(found[0]) if found else None

    def cursors(self) -> tuple[Cursor, ...]:
        with self._snapshot():
            found = self._sql.execute("SELECT name, head, gaps FROM cursor ORDER BY name") if self._version > 1 else ()
            return tuple(cursor_from(row) for row in found)

    def set_aside(self, sink: str | None = None, limit: int = 1000) -> tuple[SetAside, ...]:
        """Lines that sinks refused for good, the newest ``limit`` in order."""
        query = (
            "SELECT sink, at_ns, reason, line FROM set_aside WHERE ?1 IS NULL OR sink = ?1 ORDER BY id DESC LIMIT ?2"
        )
        with self._snapshot():
            found = self._sql.execute(query, (sink, limit)).fetchall() if self._version > 1 else []
        return tuple(SetAside(str(name), int(at), str(why), str(line)) for name, at, why, line in reversed(found))

    def summary(self) -> JournalSummary:
        """Size, rows, cursors and their lag."""
        with self._snapshot():
            return summarize(self._sql, self._path, self._version)

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        try:
            self._sql.execute("BEGIN")
            try:
                yield
            finally:
                self._sql.execute("COMMIT")
        except (sqlite3.Error, ValueError) as error:
            raise JournalError(f"can't read the journal {self._path}: {error}") from None

    def _series_rows(
        self, metric: str | None, labels: Labels | None, run_id: str | None
    ) -> list[tuple[int, Metric, Labels]]:
        columns = ", ".join(f"metric.{column}" for column in METRIC_COLUMNS.split(", "))
        query = (
            f"SELECT series.id, labelset.labels, {columns} FROM series JOIN metric ON metric.id = metric_id "
            "JOIN labelset ON labelset.id = labelset_id LEFT JOIN run_ref ON run_ref.no = run_no "
            "WHERE (?1 IS NULL OR metric.name = ?1) AND (?2 IS NULL OR labelset.labels = ?2) "
            "AND (?3 IS NULL OR run_ref.id = ?3) ORDER BY metric.name, labelset.labels"
        )
        text = None if labels is None else labels_text(labels)
        found = self._sql.execute(query, (metric, text, run_id))
        return [(int(row[0]), metric_from(row[2:]), labels_from(row[1])) for row in found]

    def _find(self, metric: str, labels: Labels | None, run_id: str | None) -> _Found:
        rows = self._series_rows(metric, labels, run_id)
        distinct = sorted({found for _, _, found in rows})
        if len(distinct) == 1:
            return _Found(rows[0][1], distinct[0], tuple(series for series, _, _ in rows))
        where = f" in run {run_id}" if run_id else ""
        if distinct:
            some = "; ".join(_shown(found) for found in distinct[:5])
            raise JournalError(f"{metric} has {len(distinct)} series{where}: {some}", hint="give its labels")
        raise JournalError(f"no readings of {metric}{_shown(labels) if labels else ''}{where}")

    def _rows(self, ids: Sequence[int], from_ns: int | None, to_ns: int | None) -> Rows:
        low, high = _range(from_ns, to_ns)
        parts: list[Rows] = []
        for series in ids:
            for count, data in self._sql.execute(
                "SELECT count, data FROM chunk WHERE series_id = ? AND from_ns < ? AND to_ns >= ? ORDER BY from_ns",
                (series, high, low),
            ):
                parts.append(decode_rows(data, count))
            hot = self._sql.execute(
                "SELECT id, at_ns, state, value FROM hot WHERE series_id = ? AND at_ns >= ? AND at_ns < ? ORDER BY id",
                (series, low, high),
            ).fetchall()
            if hot:
                parts.append(rows_of(hot))
        rows = join_rows(parts)
        rows = rows.where((rows.at_ns >= low) & (rows.at_ns < high))
        return rows.where(np.argsort(rows.at_ns, kind="stable"))

    def _rolled(self, ids: Sequence[int], from_ns: int | None, to_ns: int | None) -> list[tuple[int, Steps]]:
        if self._version < 2:
            return []
        low, high = _range(from_ns, to_ns)
        parts: list[tuple[int, Steps]] = []
        for series in ids:
            for width, count, data in self._sql.execute(
                "SELECT width_ns, count, data FROM rollup WHERE series_id = ? AND from_ns < ? AND to_ns >= ? "
                "ORDER BY from_ns",
                (series, high, low),
            ):
                steps = decode_steps(data, count)
                parts.append((int(width), steps.where((steps.start_ns + width > low) & (steps.start_ns < high))))
        return parts

    def _count(self, series: int) -> int:
        query = (
            "SELECT (SELECT coalesce(sum(count), 0) FROM chunk WHERE series_id = ?1) "
            "+ (SELECT count(*) FROM hot WHERE series_id = ?1)"
        )
        return int(self._sql.execute(query, (series,)).fetchone()[0])

    def _bounds(self, from_ns: int | None, to_ns: int | None, run_id: str | None) -> tuple[str, tuple[object, ...]]:
        where, values = "at_ns >= ? AND at_ns < ?", (*_range(from_ns, to_ns),)
        if run_id is None:
            return where, values
        return f"{where} AND run_no = (SELECT no FROM run_ref WHERE id = ?)", (*values, run_id)


def _range(from_ns: int | None, to_ns: int | None) -> tuple[int, int]:
    return (_EVER[0] if from_ns is None else int(from_ns), _EVER[1] if to_ns is None else int(to_ns))


def _width(times: list[np.typing.NDArray[np.int64]], max_points: int) -> int:
    ends = [(int(t.min()), int(t.max())) for t in times if len(t)]
    if not ends:
        return 1
    span = max(high for _, high in ends) - min(low for low, _ in ends)
    # Steps start at multiples of their width, so that a span may touch one step more than fits in it
    return span // max(1, max_points - 1) + 1


def _shown(labels: Labels) -> str:
    return "{" + ", ".join(f"{name}={value}" for name, value in labels) + "}"
