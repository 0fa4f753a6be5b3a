"""Turns hot rows into compressed chunks, a bounded number a step; readers see hot and sealed rows as one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from soakd.journal.codec import Rows, encode_rows
from soakd.journal.schema import COMMIT_SHIFT

CHUNK_ROWS = 512
"""Rows a chunk takes when a series is busy: enough for deflate, few enough to decode for a short query."""
_IDLE_NS = 15 * 60 * 10**9
_MAX_AGE_NS = 6 * 3600 * 10**9


@dataclass(slots=True)
class _Hot:
    count: int
    since_ns: int
    last_ns: int


class Sealer:
    """Knows how many hot rows each series has. A series is sealed when it has CHUNK_ROWS of them, when nothing came
    for 15 minutes (a run that is over) or when its oldest hot row is 6 hours old (a slow series)."""

    def __init__(self, connection: sqlite3.Connection, now_ns: int) -> None:
        self._connection = connection
        self._hot: dict[int, _Hot] = {
            int(series): _Hot(int(count), now_ns, now_ns)
            for series, count in connection.execute("SELECT series_id, count(*) FROM hot GROUP BY series_id")
        }
        self._due: dict[int, None] = {s: None for s, h in self._hot.items() if h.count >= CHUNK_ROWS}

    @property
    def hot_rows(self) -> int:
        return sum(h.count for h in tuple(self._hot.values()))

    @property
    def due(self) -> int:
        """Series that wait to be sealed."""
        return len(self._due)

    def note(self, series_ids: Iterable[int], now_ns: int) -> None:
        """These series got one hot row each time they are named."""
        for series in series_ids:
            hot = self._hot.get(series)
            if hot is None:
                hot = self._hot[series] = _Hot(0, now_ns, now_ns)
            hot.count += 1
            hot.last_ns = now_ns
            if hot.count == CHUNK_ROWS:
                self._due[series] = None

    def note_old(self, now_ns: int) -> None:
        """Mark what is idle or old as due."""
        for series, hot in self._hot.items():
            if now_ns - hot.last_ns >= _IDLE_NS or now_ns - hot.since_ns >= _MAX_AGE_NS:
                self._due[series] = None

    def step(self, now_ns: int, chunks: int) -> int:
        """Seal at most ``chunks`` chunks in one transaction; says how many. Raises sqlite3.Error, then nothing
        happened."""
        chosen = tuple(self._due)[:chunks]
        if not chosen:
            return 0
        sealed: dict[int, int] = {}
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for series in chosen:
                sealed[series] = self._seal(series)
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        for series, count in sealed.items():
            self._settle(series, count, now_ns)
        return len(chosen)

    def _settle(self, series: int, count: int, now_ns: int) -> None:
        hot = self._hot[series]
        hot.count -= count
        hot.since_ns = now_ns
        if hot.count <= 0 or not count:
            del self._hot[series]
        if hot.count < CHUNK_ROWS or not count:
            self._due.pop(series, None)

    def _seal(self, series: int) -> int:
        found = self._connection.execute(
            "SELECT id, at_ns, state, value FROM hot WHERE series_id = ? ORDER BY id LIMIT ?", (series, CHUNK_ROWS)
        ).fetchall()
        if not found:
            return 0
        rows = rows_of(found)
        self._connection.execute(
            "INSERT INTO chunk (series_id, from_commit, to_commit, from_ns, to_ns, count, data) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                series, int(rows.commits[0]), int(rows.commits[-1]), int(rows.at_ns.min()), int(rows.at_ns.max()),
                len(rows), encode_rows(rows),
            ),
        )  # fmt: skip
        self._connection.execute("DELETE FROM hot WHERE series_id = ? AND id <= ?", (series, found[-1][0]))
        return len(rows)


def rows_of(found: list[tuple[int, int, int, float | None]]) -> Rows:
    """Rows of the table ``hot`` (id, at_ns, state, value) as columns."""
    ids, at_ns, states, values = zip(*found, strict=True) if found else ((), (), (), ())
    return Rows(
        np.array(ids, np.int64) >> COMMIT_SHIFT,
        np.array(at_ns, np.int64),
        np.array(states, np.uint8),
        np.array([np.nan if v is None else v for v in values], np.float64),
    )
