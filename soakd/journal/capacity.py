"""The size cap of a journal's file, and what an error of SQLite means when a disk or the cap is full."""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
import tempfile
from pathlib import Path

from soakd.errors import JournalError, JournalFullError

_LOW_SPACE = 2**20
_LEAST_PAGES = 128
_PROBE_BYTES = 128 * 1024


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
    refused = code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR) and _no_room(path)
    if refused:
        return JournalFullError(f"the disk under the journal {path} is full", hint="what was written stays readable")
    if code == sqlite3.SQLITE_FULL:
        cap = f"its cap of {max_bytes} bytes" if max_bytes is not None else "its largest size"
        return JournalFullError(f"the journal {path} has reached {cap}", hint="raise the cap, or keep less")
    return JournalError(f"the journal {path} can't be written: {error}")


def _no_room(path: Path) -> bool:
    """Whether disk, quota or file size limit is what stands in the way: SQLite tells only the first from a fault."""
    try:
        found = os.statvfs(path.parent)
        if found.f_bavail * found.f_frsize < _LOW_SPACE:
            return True
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        if limit != resource.RLIM_INFINITY and file_bytes(path) + _LOW_SPACE > limit:
            return True
        with tempfile.TemporaryFile(dir=path.parent, buffering=0) as probe:
            probe.write(bytes(_PROBE_BYTES))
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return False


def file_bytes(path: Path) -> int:
    """The file and its write-ahead log."""
    return sum(_size(path.with_name(path.name + end)) for end in ("", "-wal"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
