"""The journal's tables, one migration a version, and how its file is opened.

Row ids of ``hot``, ``event``, ``finding`` and ``blob`` are ``commit << 20 | n``: they order rows by commit and carry
the commit without a column of their own. A chunk keeps the commit of each of its rows inside its data.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from soakd.errors import JournalError

FILE_NAME = "journal.sqlite"
APPLICATION_ID = 0x736F616B
COMMIT_SHIFT = 20
ROWS_PER_COMMIT = 1 << COMMIT_SHIFT

_V1 = """
CREATE TABLE metric (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, unit TEXT NOT NULL, kind TEXT NOT NULL, help TEXT NOT NULL,
  source TEXT NOT NULL, label_names TEXT NOT NULL, codes TEXT NOT NULL, wraps_at INTEGER
);
CREATE TABLE labelset (id INTEGER PRIMARY KEY, labels TEXT NOT NULL UNIQUE);
CREATE TABLE run_ref (no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE);
CREATE TABLE series (
  id INTEGER PRIMARY KEY AUTOINCREMENT, metric_id INTEGER NOT NULL, labelset_id INTEGER NOT NULL,
  run_no INTEGER NOT NULL,
  UNIQUE (metric_id, labelset_id, run_no)
);
CREATE TABLE hot (
  id INTEGER PRIMARY KEY, series_id INTEGER NOT NULL, at_ns INTEGER NOT NULL, state INTEGER NOT NULL, value REAL
);
CREATE INDEX hot_by_series ON hot (series_id, id);
CREATE TABLE chunk (
  id INTEGER PRIMARY KEY AUTOINCREMENT, series_id INTEGER NOT NULL, from_commit INTEGER NOT NULL,
  to_commit INTEGER NOT NULL, from_ns INTEGER NOT NULL, to_ns INTEGER NOT NULL, count INTEGER NOT NULL,
  data BLOB NOT NULL
);
CREATE INDEX chunk_by_series ON chunk (series_id, from_ns, to_ns, count);
CREATE INDEX chunk_by_commit ON chunk (to_commit, from_commit);
CREATE INDEX chunk_by_age ON chunk (to_ns);
CREATE TABLE event (
  id INTEGER PRIMARY KEY, run_no INTEGER NOT NULL, at_ns INTEGER NOT NULL, kind TEXT NOT NULL,
  severity TEXT NOT NULL, what TEXT NOT NULL, labels TEXT NOT NULL, attrs TEXT NOT NULL
);
CREATE INDEX event_by_time ON event (at_ns);
CREATE TABLE finding (
  id INTEGER PRIMARY KEY, run_no INTEGER NOT NULL, at_ns INTEGER NOT NULL, source TEXT NOT NULL,
  severity TEXT NOT NULL, title TEXT NOT NULL, detail TEXT NOT NULL, labels TEXT NOT NULL, metric TEXT NOT NULL,
  value REAL, unit TEXT NOT NULL
);
CREATE INDEX finding_by_time ON finding (at_ns);
CREATE TABLE blob (
  id INTEGER PRIMARY KEY, kind TEXT NOT NULL, run_no INTEGER NOT NULL, from_ns INTEGER NOT NULL,
  to_ns INTEGER NOT NULL, count INTEGER NOT NULL, data BLOB NOT NULL
);
CREATE INDEX blob_by_run ON blob (run_no, kind, from_ns);
CREATE TABLE run (
  id TEXT PRIMARY KEY, started_ns INTEGER NOT NULL, ended_ns INTEGER, state TEXT NOT NULL, outcome TEXT NOT NULL,
  target TEXT NOT NULL, profile TEXT NOT NULL, simulated INTEGER NOT NULL, boot_id TEXT NOT NULL,
  config BLOB NOT NULL, report BLOB NOT NULL
);
CREATE TABLE commits (seq INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, rows INTEGER NOT NULL);
"""

_V2 = """
CREATE TABLE cursor (name TEXT PRIMARY KEY, head INTEGER NOT NULL, gaps TEXT NOT NULL, updated_ns INTEGER NOT NULL);
CREATE TABLE set_aside (
  id INTEGER PRIMARY KEY AUTOINCREMENT, sink TEXT NOT NULL, at_ns INTEGER NOT NULL, reason TEXT NOT NULL,
  line TEXT NOT NULL
);
CREATE INDEX set_aside_by_sink ON set_aside (sink, id);
CREATE TABLE rollup (
  id INTEGER PRIMARY KEY AUTOINCREMENT, series_id INTEGER NOT NULL, width_ns INTEGER NOT NULL,
  from_ns INTEGER NOT NULL, to_ns INTEGER NOT NULL, count INTEGER NOT NULL, data BLOB NOT NULL
);
CREATE INDEX rollup_by_series ON rollup (series_id, width_ns, from_ns);
CREATE INDEX rollup_by_age ON rollup (width_ns, to_ns);
"""

_V3 = """
CREATE TABLE kept (name TEXT PRIMARY KEY, updated_ns INTEGER NOT NULL, data BLOB NOT NULL);
"""

MIGRATIONS: tuple[str, ...] = (_V1, _V2, _V3)
VERSION = len(MIGRATIONS)


def open_writable(path: Path) -> sqlite3.Connection:
    """Create or open and migrate the file. Raises JournalError."""
    try:
        connection = sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise JournalError(f"can't open the journal {path}: {error}", hint="give a directory soakd can write") from None
    try:
        version = _checked_version(connection, path)
        if version == 0:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only takes effect before the first table
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {16 * 2**20}")
        migrate(connection, version)
    except sqlite3.Error as error:
        connection.close()
        raise JournalError(f"can't use the journal {path}: {error}", hint=_hint(error)) from None
    except JournalError:
        connection.close()
        raise
    return connection


def migrate(connection: sqlite3.Connection, version: int, to: int = VERSION) -> None:
    """Bring the file from ``version`` to ``to``, each step in a transaction of its own."""
    for step in range(version, to):
        statements = MIGRATIONS[step].split(";\n")
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in statements:
                if statement.strip():
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {step + 1}")
            connection.execute("COMMIT")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def open_readonly(path: Path) -> tuple[sqlite3.Connection, int]:
    """A connection that can't write, and the schema's version. Raises JournalError."""
    if not path.exists():
        raise JournalError(f"no journal at {path}", hint="name the data directory of a run or of the daemon")
    try:
        connection = _connect_readonly(path, "mode=ro")
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:
            # Read-only WAL needs -shm, which can't be made in a directory that is not writable; without a log beside
            # it the file is complete in itself
            connection.close()
            if path.with_name(path.name + "-wal").exists():
                raise
            connection = _connect_readonly(path, "mode=ro&immutable=1")
        version = _checked_version(connection, path)
    except sqlite3.Error as error:
        raise JournalError(f"can't read the journal {path}: {error}", hint=_hint(error)) from None
    if version == 0:
        connection.close()
        raise JournalError(f"{path} is not a journal of soakd", hint="it is an empty file")
    return connection, version


def _connect_readonly(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{mode}"
    return sqlite3.connect(uri, uri=True, timeout=10.0, isolation_level=None, check_same_thread=False)


def _checked_version(connection: sqlite3.Connection, path: Path) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    if tables and application != APPLICATION_ID:
        raise JournalError(f"{path} is an SQLite file, but not a journal of soakd", hint="choose another directory")
    if version > VERSION:
        raise JournalError(
            f"the journal {path} has schema {version}; this soakd knows up to {VERSION}",
            hint="a newer soakd wrote it: use that one, or another data directory",
        )
    return version


def _hint(error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_NOTADB:
        return "the file is not SQLite"
    if code == sqlite3.SQLITE_CORRUPT:
        return "the file is damaged: set it aside, and try `sqlite3 FILE .recover`"
    if code == sqlite3.SQLITE_FULL:
        return "the disk is full"
    return "is the directory writable?"
