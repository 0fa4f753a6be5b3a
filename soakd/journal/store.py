"""What the writing thread does to the file: commits, seals, runs, cursors. Used by one thread at a time."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from soakd.clock import RealClock
from soakd.journal.records import Blob, Cursor, RunRecord, SetAside
from soakd.journal.rows import (
    EVENT_COLUMNS,
    FINDING_COLUMNS,
    METRIC_COLUMNS,
    RUN_COLUMNS,
    event_row,
    finding_row,
    gaps_text,
    labels_text,
    metric_row,
    run_row,
)
from soakd.journal.schema import COMMIT_SHIFT, open_writable
from soakd.journal.sealing import Sealer
from soakd.model import Event, Finding, Labels, Outcome, RunState, Sample, State
from soakd.ports import Clock

_K = TypeVar("_K")
StoredItem = Sample | Event | Finding
_OK, _ABSENT = State.OK.code, State.ABSENT.code
_CACHE_LIMIT = 100_000
_MAX_TIME = 2**63 - 1
SET_ASIDE_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class ItemBatch:
    """What one call of ``add`` brought."""

    items: tuple[StoredItem, ...]
    run_id: str

    @property
    def size(self) -> int:
        return len(self.items)

    def halves(self) -> tuple[ItemBatch, ItemBatch]:
        middle = len(self.items) // 2
        return ItemBatch(self.items[:middle], self.run_id), ItemBatch(self.items[middle:], self.run_id)


@dataclass(frozen=True, slots=True)
class BlobBatch:
    blob: Blob
    size: int = 1


class Store:
    """The open file. Methods that write raise sqlite3.Error and leave nothing half done."""

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or RealClock()
        self.path = path
        self.connection = open_writable(path)
        self.commit_seq = int(self._one("SELECT coalesce(max(seq), 0) FROM commits"))
        self.last_commit_seconds = 0.0
        self.invalid = 0
        self._metrics: dict[str, int] = {}
        self._labelsets: dict[Labels, int] = {}
        self._runs: dict[str, int] = {"": 0}
        self._series: dict[tuple[str, Labels, int], int] = {}
        self.sealer = Sealer(self.connection, self.clock.wall_ns())

    def close(self) -> None:
        self.connection.close()

    def interrupt_open_runs(self) -> int:
        """Mark runs that nobody finished; they ended, as far as is known, with the last commit."""
        last = self._one("SELECT coalesce(max(at_ns), 0) FROM commits")
        return self.connection.execute(
            "UPDATE run SET state = ?, ended_ns = max(started_ns, ?) WHERE state = ?",
            (RunState.INTERRUPTED.value, last, RunState.RUNNING.value),
        ).rowcount

    def rows_kept(self) -> int:
        """Samples, events and findings committed and not yet given up."""
        return self._one("SELECT coalesce(sum(rows), 0) FROM commits")

    def commit(self, batches: Sequence[ItemBatch | BlobBatch]) -> None:
        """Write all of it in one transaction under the next commit number."""
        began = time.monotonic_ns()
        seq = self.commit_seq + 1
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            hot, forwardable, invalid = self._insert(batches, seq << COMMIT_SHIFT)
            self.connection.execute("INSERT INTO commits VALUES (?, ?, ?)", (seq, self.clock.wall_ns(), forwardable))
            self.connection.execute("COMMIT")
        except BaseException:
            self.roll_back()
            raise
        self.commit_seq = seq
        self.invalid += invalid
        self.sealer.note(hot, self.clock.wall_ns())
        self.last_commit_seconds = (time.monotonic_ns() - began) / 1e9

    def roll_back(self) -> None:
        """Undo what is open; ids given out inside the transaction are forgotten with it."""
        try:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        finally:
            self.forget_ids()

    def forget_ids(self) -> None:
        for cache in (self._metrics, self._labelsets, self._series):
            cache.clear()
        self._runs = {"": 0}

    def put_run(self, run: RunRecord) -> None:
        marks = ", ".join("?" * 11)
        self.connection.execute(f"INSERT OR REPLACE INTO run ({RUN_COLUMNS}) VALUES ({marks})", run_row(run))

    def finish_run(
        self, run_id: str, state: RunState, outcome: Outcome | None, ended_ns: int, report: bytes | None
    ) -> None:
        self.connection.execute(
            "UPDATE run SET state = ?, outcome = ?, ended_ns = ?, report = coalesce(?, report) WHERE id = ?",
            (state.value, outcome.value if outcome else "", ended_ns, report, run_id),
        )

    def put_cursor(self, cursor: Cursor) -> None:
        self.connection.execute(
            "INSERT OR REPLACE INTO cursor (name, head, gaps, updated_ns) VALUES (?, ?, ?, ?)",
            (cursor.name, cursor.head, gaps_text(cursor), self.clock.wall_ns()),
        )

    def put_kept(self, name: str, data: bytes) -> None:
        self.connection.execute(
            "INSERT OR REPLACE INTO kept (name, updated_ns, data) VALUES (?, ?, ?)", (name, self.clock.wall_ns(), data)
        )

    def keep_cursors(self, names: Iterable[str]) -> None:
        """Forget the cursors of sinks that are no longer configured: they would hold retention up for ever."""
        wanted = tuple(names)
        marks = ", ".join("?" * len(wanted))
        self.connection.execute(f"DELETE FROM cursor WHERE name NOT IN ({marks})", wanted)

    def put_set_aside(self, lines: Sequence[SetAside]) -> None:
        """Keep the newest lines of each sink, within bounds."""
        self.connection.executemany(
            "INSERT INTO set_aside (sink, at_ns, reason, line) VALUES (?, ?, ?, ?)",
            [(s.sink, s.at_ns, s.reason, s.line) for s in lines],
        )
        for sink in {s.sink for s in lines}:
            self.connection.execute(
                "DELETE FROM set_aside WHERE sink = ? AND id <= "
                "(SELECT id FROM set_aside WHERE sink = ? ORDER BY id DESC LIMIT 1 OFFSET ?)",
                (sink, sink, SET_ASIDE_LIMIT),
            )

    def _insert(self, batches: Sequence[ItemBatch | BlobBatch], first_id: int) -> tuple[list[int], int, int]:
        hot: list[tuple[int, int, int, int, float | None]] = []
        events: list[tuple[object, ...]] = []
        findings: list[tuple[object, ...]] = []
        blobs: list[tuple[object, ...]] = []
        invalid, row_id = 0, first_id
        for batch in batches:
            if isinstance(batch, BlobBatch):
                b = batch.blob
                blobs.append((row_id, b.kind, self._run_no(b.run_id), b.from_ns, b.to_ns, b.count, b.data))
                row_id += 1
                continue
            run_no = self._run_no(batch.run_id)
            for item in batch.items:
                if not -_MAX_TIME <= item.at_ns <= _MAX_TIME:
                    invalid += 1
                elif isinstance(item, Sample):
                    value, state = item.value, item.state.code
                    if value is not None and math.isnan(value):
                        value, state = None, _ABSENT  # a reading that is no number is unknown, whatever it claims
                    series = self._series_id(item, run_no)
                    hot.append((row_id, series, int(item.at_ns), state, None if value is None else float(value)))
                elif isinstance(item, Event):
                    events.append((row_id, run_no, *event_row(item)))
                else:
                    findings.append((row_id, run_no, *finding_row(item)))
                row_id += 1
        run = self.connection.executemany
        run("INSERT INTO hot (id, series_id, at_ns, state, value) VALUES (?, ?, ?, ?, ?)", hot)
        run(f"INSERT INTO event (id, run_no, {EVENT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", events)
        run(f"INSERT INTO finding (id, run_no, {FINDING_COLUMNS}) VALUES ({', '.join('?' * 11)})", findings)
        run("INSERT INTO blob (id, kind, run_no, from_ns, to_ns, count, data) VALUES (?, ?, ?, ?, ?, ?, ?)", blobs)
        return [row[1] for row in hot], len(hot) + len(events) + len(findings), invalid

    def _series_id(self, sample: Sample, run_no: int) -> int:
        key = (sample.metric.name, sample.labels, run_no)
        found = self._series.get(key)
        if found is None:
            metric, labelset = self._metric_id(sample), self._labelset_id(sample.labels)
            found = self._id_of(
                "SELECT id FROM series WHERE metric_id = ? AND labelset_id = ? AND run_no = ?",
                "INSERT INTO series (metric_id, labelset_id, run_no) VALUES (?, ?, ?)",
                (metric, labelset, run_no),
            )
            _remember(self._series, key, found)
        return found

    def _metric_id(self, sample: Sample) -> int:
        name = sample.metric.name
        found = self._metrics.get(name)
        if found is None:
            row = metric_row(sample.metric)
            self.connection.execute(
                f"INSERT INTO metric ({METRIC_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE "
                "SET unit = excluded.unit, kind = excluded.kind, help = excluded.help, source = excluded.source, "
                "label_names = excluded.label_names, codes = excluded.codes, wraps_at = excluded.wraps_at",
                row,
            )
            found = int(self._one("SELECT id FROM metric WHERE name = ?", name))
            _remember(self._metrics, name, found)
        return found

    def _labelset_id(self, labels: Labels) -> int:
        found = self._labelsets.get(labels)
        if found is None:
            found = self._id_of(
                "SELECT id FROM labelset WHERE labels = ?",
                "INSERT INTO labelset (labels) VALUES (?)",
                (labels_text(labels),),
            )
            _remember(self._labelsets, labels, found)
        return found

    def _run_no(self, run_id: str) -> int:
        found = self._runs.get(run_id)
        if found is None:
            found = self._id_of("SELECT no FROM run_ref WHERE id = ?", "INSERT INTO run_ref (id) VALUES (?)", (run_id,))
            _remember(self._runs, run_id, found)
        return found

    def _id_of(self, select: str, insert: str, values: tuple[object, ...]) -> int:
        row = self.connection.execute(select, values).fetchone()
        if row is not None:
            return int(row[0])
        return int(self.connection.execute(insert, values).lastrowid or 0)

    def _one(self, query: str, *values: object) -> int:
        return int(self.connection.execute(query, values).fetchone()[0])


def _remember(cache: dict[_K, int], key: _K, value: int) -> None:
    if len(cache) >= _CACHE_LIMIT:
        cache.clear()
    cache[key] = value
