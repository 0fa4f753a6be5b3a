"""Keeps the journal bounded: raw readings become minute steps, those become hour steps, and a size cap holds.

Never given up: raw data of a run that is not over. Given up only by the size cap, and then said in an event: samples
that a sink has not got yet. Every step is one bounded transaction of the writing thread.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

import numpy as np

from soakd.journal.codec import decode_rows, join_rows
from soakd.journal.rollup import Steps, decode_steps, encode_steps, merge, roll
from soakd.journal.rows import cursor_from
from soakd.journal.store import ItemBatch, Store
from soakd.model import Event, RunState, Severity, labels

MINUTE_NS = 60 * 10**9
HOUR_NS = 60 * MINUTE_NS
DAY_NS = 24 * HOUR_NS
_CHUNKS_PER_STEP = 256
_ROLLUPS_PER_STEP = 64
_ROWS_PER_STEP = 5_000
_FREE_PAGES_KEPT = 2_000
_NEVER = 2**62
_SAY_EVERY_NS = 10 * MINUTE_NS


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """``raw_ns`` raw readings and request records, then ``minute_ns`` minute steps, then ``hour_ns`` hour steps.

    Events and findings live as long as hour steps; runs and their reports stay. ``high_water`` is the share of the
    size cap at which the oldest raw data starts to go.
    """

    raw_ns: int = 14 * DAY_NS
    minute_ns: int = 90 * DAY_NS
    hour_ns: int = 730 * DAY_NS
    high_water: float = 0.9


class Retention:
    """One pass is a sequence of steps; ``step`` says whether there is more to do now."""

    def __init__(self, store: Store, policy: RetentionPolicy, max_bytes: int | None) -> None:
        self._store = store
        self._sql = store.connection
        self._policy = policy
        self._cap = max_bytes
        self._said_ns = 0
        self._lost_rows = 0

    def step(self, now_ns: int) -> bool:
        """Do one bounded piece of work. Raises sqlite3.Error, then that piece did not happen."""
        self._sql.execute("BEGIN IMMEDIATE")
        try:
            worked = self._work(now_ns)
            self._sql.execute("COMMIT")
        except sqlite3.Error:
            self._store.roll_back()
            raise
        if not worked:
            self._give_back()
            self._tell(now_ns)
        return worked

    def used_bytes(self) -> int:
        """What data takes inside the file; free pages are used again first."""
        return (self._pragma("page_count") - self._pragma("freelist_count")) * self._pragma("page_size")

    def _work(self, now_ns: int) -> bool:
        policy = self._policy
        slack = min(6 * HOUR_NS, policy.raw_ns // 4)
        old = now_ns - policy.raw_ns
        forwarded = self._forwarded_to()
        return (
            self._roll_raw(old, forwarded, trigger_ns=old - slack)
            or self._roll_minutes(old - policy.minute_ns, now_ns)
            or self._drop_old(now_ns, forwarded)
            or self._hold_cap(forwarded)
        )

    def _roll_raw(self, before_ns: int, forwarded: int, trigger_ns: int) -> bool:
        """Roll up the chunks of one series that ended before ``before_ns``, once one ended before ``trigger_ns``."""
        row = self._sql.execute(
            f"SELECT series_id FROM chunk WHERE to_ns < ? AND to_commit <= ? AND {_OVER} ORDER BY to_ns LIMIT 1",
            (trigger_ns, forwarded),
        ).fetchone()
        if row is None:
            return False
        chunks = self._sql.execute(
            "SELECT id, count, data FROM chunk WHERE series_id = ? AND to_ns < ? AND to_commit <= ? "
            "ORDER BY from_ns LIMIT ?",
            (row[0], before_ns, forwarded, _CHUNKS_PER_STEP),
        ).fetchall()
        self._to_minutes(int(row[0]), chunks)
        return True

    def _to_minutes(self, series: int, chunks: list[tuple[int, int, bytes]]) -> None:
        rows = join_rows([decode_rows(data, count) for _, count, data in chunks])
        self._put_steps(series, MINUTE_NS, roll(rows, MINUTE_NS, self._wraps_at(series)))
        self._sql.executemany("DELETE FROM chunk WHERE id = ?", [(chunk_id,) for chunk_id, _, _ in chunks])

    def _roll_minutes(self, before_ns: int, now_ns: int) -> bool:
        row = self._sql.execute(
            "SELECT series_id FROM rollup WHERE width_ns = ? AND to_ns < ? ORDER BY to_ns LIMIT 1",
            (MINUTE_NS, before_ns),
        ).fetchone()
        if row is None:
            expired = now_ns - self._policy.raw_ns - self._policy.minute_ns - self._policy.hour_ns
            return self._delete("rollup", "width_ns = ? AND to_ns < ?", (HOUR_NS, expired))
        series = int(row[0])
        parts = self._sql.execute(
            "SELECT id, count, data FROM rollup WHERE series_id = ? AND width_ns = ? AND to_ns < ? "
            "ORDER BY from_ns LIMIT ?",
            (series, MINUTE_NS, before_ns, _ROLLUPS_PER_STEP),
        ).fetchall()
        steps = merge([decode_steps(data, count) for _, count, data in parts], HOUR_NS, self._wraps_at(series))
        self._put_steps(series, HOUR_NS, steps)
        self._sql.executemany("DELETE FROM rollup WHERE id = ?", [(part,) for part, _, _ in parts])
        return True

    def _put_steps(self, series: int, width_ns: int, steps: Steps) -> None:
        self._sql.execute(
            "INSERT INTO rollup (series_id, width_ns, from_ns, to_ns, count, data) VALUES (?, ?, ?, ?, ?, ?)",
            (
                series, width_ns, int(steps.start_ns[0]), int(np.max(steps.start_ns)) + width_ns - 1, len(steps),
                encode_steps(steps),
            ),
        )  # fmt: skip

    def _drop_old(self, now_ns: int, forwarded: int) -> bool:
        policy = self._policy
        raw = now_ns - policy.raw_ns
        last = now_ns - policy.raw_ns - policy.minute_ns - policy.hour_ns
        return (
            self._delete("blob", f"to_ns < ? AND {_OVER_RUN}", (raw,))
            or self._delete("event", "at_ns < ? AND id >> 20 <= ?", (last, forwarded))
            or self._delete("finding", "at_ns < ? AND id >> 20 <= ?", (last, forwarded))
            # Commits say what a sink still lacks: they go when their rows have gone. The last one keeps the sequence
            or self._delete(
                "commits",
                "at_ns < ? AND seq <= ? AND seq < (SELECT max(seq) FROM commits) AND seq < coalesce("
                "(SELECT min(from_commit) FROM (SELECT from_commit FROM chunk ORDER BY id LIMIT 1000)), 1 << 62)",
                (raw, forwarded),
                key="seq",
            )
            or self._drop_empty_series()
        )

    def _drop_empty_series(self) -> bool:
        deleted = self._delete(
            "series",
            f"{_OVER_RUN} "
            "AND run_no != 0 AND id NOT IN (SELECT series_id FROM chunk) AND id NOT IN (SELECT series_id FROM hot) "
            "AND id NOT IN (SELECT series_id FROM rollup)",
            (),
        )
        if deleted:
            self._store.forget_ids()
        return deleted

    def _hold_cap(self, forwarded: int) -> bool:
        if self._cap is None or self.used_bytes() < self._cap * self._policy.high_water:
            return False
        oldest = f"FROM chunk WHERE {_OVER} AND to_commit <= ? ORDER BY to_ns LIMIT 1"
        row = self._sql.execute(f"SELECT series_id {oldest}", (forwarded,)).fetchone()
        limit = forwarded
        if row is None and self._delete("blob", _OVER_RUN, (), order="to_ns", limit=16):
            return True
        if row is None:
            limit = _NEVER
            row = self._sql.execute(f"SELECT series_id {oldest}", (limit,)).fetchone()
        if row is None:
            return self._roll_minutes(_NEVER, _NEVER) or self._delete("rollup", "1", (), order="to_ns", limit=16)
        chunks = self._sql.execute(
            "SELECT id, count, data FROM chunk WHERE series_id = ? AND to_commit <= ? ORDER BY from_ns LIMIT 16",
            (row[0], limit),
        ).fetchall()
        if limit > forwarded:
            self._lost_rows += sum(count for _, count, _ in chunks)
        self._to_minutes(int(row[0]), chunks)
        return True

    def _tell(self, now_ns: int) -> None:
        if not self._lost_rows or now_ns - self._said_ns < _SAY_EVERY_NS:
            return
        what = (
            f"{self._lost_rows} samples that a sink has not got yet were reduced to minute steps: the journal is at "
            f"its cap of {self._cap} bytes"
        )
        attrs = labels(rows=self._lost_rows, cap_bytes=self._cap)
        event = Event("journal.unforwarded_dropped", now_ns, what, Severity.WARNING, attrs=attrs)
        self._store.commit([ItemBatch((event,), "")])
        self._said_ns, self._lost_rows = now_ns, 0

    def _give_back(self) -> None:
        free = self._pragma("freelist_count")
        if free > _FREE_PAGES_KEPT:
            self._sql.execute(f"PRAGMA incremental_vacuum({min(500, free - _FREE_PAGES_KEPT)})").fetchall()

    def _forwarded_to(self) -> int:
        """The commit that every sink has got; no sinks, no bound."""
        cursors = self._sql.execute("SELECT name, head, gaps FROM cursor").fetchall()
        return min((cursor_from(row).done_to for row in cursors), default=_NEVER)

    def _delete(
        self,
        table: str,
        where: str,
        values: tuple[object, ...],
        *,
        key: str = "id",
        order: str = "",
        limit: int = _ROWS_PER_STEP,
    ) -> bool:
        order_by = f"ORDER BY {order}" if order else ""
        return (
            self._sql.execute(
                f"DELETE FROM {table} WHERE {key} IN (SELECT {key} FROM {table} WHERE {where} {order_by} LIMIT ?)",
                (*values, limit),
            ).rowcount
            > 0
        )

    def _wraps_at(self, series: int) -> int | None:
        row = self._sql.execute(
            "SELECT wraps_at FROM metric JOIN series ON metric.id = metric_id WHERE series.id = ?", (series,)
        ).fetchone()
        return None if row is None or row[0] is None else int(row[0])

    def _pragma(self, name: str) -> int:
        return int(self._sql.execute(f"PRAGMA {name}").fetchone()[0])


_RUNNING = f"(SELECT no FROM run_ref JOIN run ON run.id = run_ref.id WHERE state = '{RunState.RUNNING.value}')"
_OVER = f"series_id NOT IN (SELECT id FROM series WHERE run_no IN {_RUNNING})"
_OVER_RUN = f"run_no NOT IN {_RUNNING}"
