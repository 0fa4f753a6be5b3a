"""The size cap of a journal's file, and what an error of SQLite means when a disk or the cap is full."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from soakd.errors import JournalError, JournalFullError

_LOW_SPACE = 2**20
_LEAST_PAGES = 128


def set_cap(connection: sqlite3.Connection, max_bytes: int | None) -> int | None:
    """Bound the file and its write-ahead log together; gives the bytes that leaves for the file."""
    if max_bytes is None:
        return None
    page = int(connection.execute("PRAGMA page_size").fetchone()[0])
    log = min(8 * 2**20, max_bytes // 4)
    pages = max(_LEAST_PAGES, (max_bytes - log) // page)
    connection.execute(f"PRAGMA max_page_count = {pages}").fetchall()
    connection.execute(f"PRAGMA wal_autocheckpoint = {max(16, min(1000, log // (4 * page)))}").fetchall()
    return pages * page


def explain(error: sqlite3.Error, path: Path, max_bytes: int | None) -> JournalError:
    """JournalFullError for a full disk, quota or cap; JournalError for anything else."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    room = _room(path)
    low = room is not None and room < _LOW_SPACE
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and low):
        if max_bytes is not None and not low:
            return JournalFullError(
                f"the journal {path} has reached its cap of {max_bytes} bytes", hint="raise the cap, or keep less"
            )
        return JournalFullError(f"the disk under the journal {path} is full", hint="what was written stays readable")
    return JournalError(f"the journal {path} can't be written: {error}")


def _room(path: Path) -> int | None:
    try:
        found = os.statvfs(path.parent)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize
