"""Reads a journal by commit: what a sink has not got yet, in windows, hot and sealed rows alike."""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from soakd.errors import JournalError
from soakd.journal.codec import Rows, decode_rows
from soakd.journal.records import Cursor
from soakd.journal.rows import (
    EVENT_COLUMNS,
    FINDING_COLUMNS,
    METRIC_COLUMNS,
    cursor_from,
    event_from,
    finding_from,
    labels_from,
    metric_from,
)
from soakd.journal.schema import COMMIT_SHIFT, FILE_NAME, open_readonly
from soakd.journal.sealing import rows_of
from soakd.journal.store import StoredItem
from soakd.journal.summary import cursor_lag
from soakd.model import Event, Finding, Labels, Metric, Sample, State

_Item = TypeVar("_Item", Event, Finding)
_CACHED_CHUNKS = 1500
_CACHED_SERIES = 100_000
_LOOK_AHEAD = 5000
_STATES = tuple(sorted(State, key=lambda state: state.code))


@dataclass(frozen=True, slots=True)
class Window:
    """Everything committed after ``after`` up to and including ``to``; samples series by series."""

    after: int
    to: int
    items: tuple[StoredItem, ...]


class JournalTail:
    """Read-only; methods block for the time of a query and belong to one thread. Every item carries the label ``run``
    where it belongs to a run. Reading again gives the same items."""

    def __init__(self, directory: Path) -> None:
        """Raises JournalError."""
        self._path = directory / FILE_NAME
        self._sql, version = open_readonly(self._path)
        if version < 2:
            raise JournalError(f"the journal {self._path} is of schema {version}", hint="its owner migrates it")
        self._series: dict[int, tuple[Metric, Labels]] = {}
        self._runs: dict[int, str] = {0: ""}
        self._chunks: OrderedDict[tuple[int, int], Rows] = OrderedDict()

    def close(self) -> None:
        self._sql.close()

    def cursor(self, name: str) -> Cursor:
        """As stored; a sink that is new starts at the beginning."""
        row = self._query("SELECT name, head, gaps FROM cursor WHERE name = ?", (name,))
        return cursor_from(row[0]) if row else Cursor(name)

    def latest(self) -> int:
        """The newest commit."""
        return int(self._query("SELECT coalesce(max(seq), 0) FROM commits")[0][0])

    def commit_at(self, at_ns: int) -> int:
        """The last commit before this time (0 where there is none)."""
        row = self._query("SELECT seq FROM commits WHERE at_ns < ? ORDER BY seq DESC LIMIT 1", (at_ns,))
        return int(row[0][0]) if row else 0

    def lag(self, cursor: Cursor, now_ns: int) -> tuple[int, float]:
        """Rows the cursor has not passed yet, and the age in seconds of the oldest of them."""
        try:
            return cursor_lag(self._sql, cursor, now_ns)
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def window(self, after: int, until: int, max_rows: int) -> Window:
        """The next commits after ``after``, at most up to ``until``: as many as hold ``max_rows``, but at least one."""
        try:
            self._sql.execute("BEGIN")
            try:
                to = self._window_end(after, until, max_rows)
                items: list[StoredItem] = [*self._samples(after, to)]
                items += [*self._events(after, to), *self._findings(after, to)]
            finally:
                self._sql.execute("COMMIT")
        except (sqlite3.Error, ValueError) as error:
            raise self._failed(error) from None
        return Window(after, to, tuple(items))

    def _window_end(self, after: int, until: int, max_rows: int) -> int:
        rows, to = 0, after
        for seq, count in self._query(
            "SELECT seq, rows FROM commits WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?", (after, until, _LOOK_AHEAD)
        ):
            rows += int(count)
            if rows > max_rows and to > after:
                break
            to = int(seq)
        return to if to > after else until

    def _samples(self, after: int, to: int) -> list[Sample]:
        low, high = (after + 1) << COMMIT_SHIFT, (to + 1) << COMMIT_SHIFT
        parts: list[tuple[int, Rows]] = []
        for chunk_id, series, from_commit, to_commit, count in self._query(
            "SELECT id, series_id, from_commit, to_commit, count FROM chunk WHERE to_commit > ? AND from_commit <= ?",
            (after, to),
        ):
            rows = self._chunk(int(chunk_id), int(from_commit), int(count))
            if from_commit <= after or to_commit > to:
                rows = rows.where((rows.commits > after) & (rows.commits <= to))
            parts.append((int(series), rows))
        by_series: dict[int, list[tuple[int, int, int, float | None]]] = {}
        for row_id, series, at_ns, state, value in self._query(
            "SELECT id, series_id, at_ns, state, value FROM hot WHERE id >= ? AND id < ? ORDER BY id", (low, high)
        ):
            by_series.setdefault(int(series), []).append((row_id, at_ns, state, value))
        parts += [(series, rows_of(found)) for series, found in by_series.items()]
        samples: list[Sample] = []
        for series, rows in sorted(parts, key=lambda part: part[0]):
            metric, labels = self._series_of(series)
            columns = (rows.at_ns.tolist(), rows.states.tolist(), rows.values.tolist())
            for at_ns, state, value in zip(*columns, strict=True):
                samples.append(Sample(metric, value if state == 0 else None, _STATES[state], at_ns, labels))
        return samples

    def _chunk(self, chunk_id: int, from_commit: int, count: int) -> Rows:
        key = (chunk_id, from_commit)
        rows = self._chunks.get(key)
        if rows is None:
            data = self._query("SELECT data FROM chunk WHERE id = ?", (chunk_id,))[0][0]
            rows = self._chunks[key] = decode_rows(data, count)
            if len(self._chunks) > _CACHED_CHUNKS:
                self._chunks.popitem(last=False)
        else:
            self._chunks.move_to_end(key)
        return rows

    def _events(self, after: int, to: int) -> list[Event]:
        found = self._between("event", EVENT_COLUMNS, after, to)
        events = [_in_run(event_from(row[1:]), self._run(int(row[0]))) for row in found]
        return list(_apart(events))

    def _findings(self, after: int, to: int) -> list[Finding]:
        found = self._between("finding", FINDING_COLUMNS, after, to)
        return [_in_run(finding_from(row[1:]), self._run(int(row[0]))) for row in found]

    def _between(self, table: str, columns: str, after: int, to: int) -> list[tuple[Any, ...]]:
        query = f"SELECT run_no, {columns} FROM {table} WHERE id >= ? AND id < ? ORDER BY id"
        return self._query(query, ((after + 1) << COMMIT_SHIFT, (to + 1) << COMMIT_SHIFT))

    def _series_of(self, series: int) -> tuple[Metric, Labels]:
        known = self._series.get(series)
        if known is None:
            if len(self._series) >= _CACHED_SERIES:
                self._series.clear()
            columns = ", ".join(f"metric.{column}" for column in METRIC_COLUMNS.split(", "))
            row = self._query(
                f"SELECT run_no, labelset.labels, {columns} FROM series JOIN metric ON metric.id = metric_id "
                "JOIN labelset ON labelset.id = labelset_id WHERE series.id = ?",
                (series,),
            )[0]
            labels = _with_run(labels_from(row[1]), self._run(int(row[0])))
            known = self._series[series] = (metric_from(row[2:]), labels)
        return known

    def _run(self, no: int) -> str:
        if no not in self._runs:
            self._runs[no] = str(self._query("SELECT id FROM run_ref WHERE no = ?", (no,))[0][0])
        return self._runs[no]

    def _query(self, query: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._sql.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def _failed(self, error: Exception) -> JournalError:
        return JournalError(f"can't read the journal {self._path}: {error}")


def _with_run(labels: Labels, run: str) -> Labels:
    if not run or any(name == "run" for name, _ in labels):
        return labels
    return tuple(sorted((*labels, ("run", run))))


def _in_run(item: _Item, run: str) -> _Item:
    return replace(item, labels=_with_run(item.labels, run)) if run else item


def _apart(events: Iterable[Event]) -> Iterable[Event]:
    """Two events of one kind, place and time are one point to a database: they are set a nanosecond apart, the same
    way at every reading."""
    seen: dict[tuple[str, Labels, int], int] = {}
    for event in events:
        key = (event.kind, event.labels, event.at_ns)
        shift = seen.get(key, 0)
        seen[key] = shift + 1
        yield replace(event, at_ns=event.at_ns + shift) if shift else event
