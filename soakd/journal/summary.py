"""What `soakd journal` shows: how large the journal is, and how far behind each sink."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from soakd.journal.capacity import file_bytes
from soakd.journal.records import Cursor, CursorLag, JournalSummary
from soakd.journal.rows import cursor_from


def summarize(sql: sqlite3.Connection, path: Path, version: int) -> JournalSummary:
    """Call inside a transaction, for figures of one moment."""
    page = _one(sql, "PRAGMA page_size")
    oldest = sql.execute("SELECT min(at) FROM (SELECT min(from_ns) AS at FROM chunk UNION ALL SELECT min(at_ns) FROM "
                         "(SELECT at_ns FROM hot ORDER BY id LIMIT 1))").fetchone()[0]  # fmt: skip
    last = sql.execute("SELECT seq, at_ns FROM commits ORDER BY seq DESC LIMIT 1").fetchone()
    return JournalSummary(
        path=str(path),
        schema=version,
        file_bytes=file_bytes(path),
        used_bytes=(_one(sql, "PRAGMA page_count") - _one(sql, "PRAGMA freelist_count")) * page,
        hot_rows=_one(sql, "SELECT count(*) FROM hot"),
        sealed_rows=_one(sql, "SELECT coalesce(sum(count), 0) FROM chunk"),
        rollup_buckets=_one(sql, "SELECT coalesce(sum(count), 0) FROM rollup") if version > 1 else 0,
        events=_one(sql, "SELECT count(*) FROM event"),
        findings=_one(sql, "SELECT count(*) FROM finding"),
        runs=_one(sql, "SELECT count(*) FROM run"),
        oldest_raw_ns=None if oldest is None else int(oldest),
        commit_seq=int(last[0]) if last else 0,
        commit_at_ns=int(last[1]) if last else None,
        cursors=tuple(_lags(sql, int(last[1]) if last else 0)) if version > 1 else (),
    )


def cursor_lag(sql: sqlite3.Connection, cursor: Cursor, now_ns: int) -> tuple[int, float]:
    """Rows not yet forwarded, and the age in seconds of the oldest commit of them at ``now_ns``."""
    rows, oldest = 0, now_ns
    for start, end in (*cursor.gaps, (cursor.head, 2**62)):
        found = sql.execute(
            "SELECT coalesce(sum(rows), 0), min(at_ns) FROM commits WHERE seq > ? AND seq <= ? AND rows > 0",
            (start, end),
        ).fetchone()
        rows += int(found[0])
        oldest = min(oldest, oldest if found[1] is None else int(found[1]))
    return rows, max(0, now_ns - oldest) / 1e9 if rows else 0.0


def _lags(sql: sqlite3.Connection, now_ns: int) -> list[CursorLag]:
    lags = []
    for row in sql.execute("SELECT name, head, gaps FROM cursor ORDER BY name").fetchall():
        cursor = cursor_from(row)
        rows, seconds = cursor_lag(sql, cursor, now_ns)
        aside = sql.execute("SELECT count(*) FROM set_aside WHERE sink = ?", (cursor.name,)).fetchone()[0]
        lags.append(CursorLag(cursor, rows, seconds, int(aside)))
    return lags


def _one(sql: sqlite3.Connection, query: str) -> int:
    return int(sql.execute(query).fetchone()[0])
