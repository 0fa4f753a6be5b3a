"""The journal: SQLite in WAL mode, one file per data directory, one owner, any number of readers."""

from soakd.journal.reader import JournalReader
from soakd.journal.records import Blob, Buckets, Cursor, JournalStats, JournalSummary, RunRecord, SeriesKey, new_run_id
from soakd.journal.retention import RetentionPolicy
from soakd.journal.tail import JournalTail
from soakd.journal.writer import Journal

__all__ = [
    "Blob",
    "Buckets",
    "Cursor",
    "Journal",
    "JournalReader",
    "JournalStats",
    "JournalSummary",
    "JournalTail",
    "RetentionPolicy",
    "RunRecord",
    "SeriesKey",
    "new_run_id",
]
