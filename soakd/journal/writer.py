"""The one owner of a journal: takes items without blocking and commits them from a thread of its own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from soakd.errors import JournalError
from soakd.journal.records import JournalStats, RunRecord
from soakd.model import Event, Finding, Outcome, RunState, Sample

FILE_NAME = "journal.sqlite"


class Journal:
    """The owner of ``<directory>/journal.sqlite``; the directory is locked for as long as it is open."""

    @classmethod
    def open(cls, directory: Path, *, max_bytes: int | None = None, queue_limit: int = 200_000) -> Journal:
        """Lock the directory, migrate the file and start the writing thread; runs left RUNNING become INTERRUPTED.

        Raises JournalError: directory not writable, locked by another process (named), not a journal, newer schema.
        """
        raise NotImplementedError

    def add(self, items: Iterable[Sample | Event | Finding], run_id: str | None = None) -> None:
        """Queue items. Never blocks and never raises; what finds the queue full is dropped and counted."""
        raise NotImplementedError

    def add_blob(self, kind: str, run_id: str, from_ns: int, to_ns: int, count: int, data: bytes) -> None:
        """Queue packed records, under the same terms as ``add``."""
        raise NotImplementedError

    def start_run(self, run: RunRecord) -> None:
        raise NotImplementedError

    def update_run(self, run: RunRecord) -> None:
        """Replace what is known of a run (target found out, report so far)."""
        raise NotImplementedError

    def finish_run(
        self, run_id: str, state: RunState, outcome: Outcome | None, ended_ns: int, report: bytes | None
    ) -> None:
        raise NotImplementedError

    async def flush(self) -> None:
        """Return when everything added so far is committed. Raises JournalFullError or JournalError."""
        raise NotImplementedError

    @property
    def failure(self) -> JournalError | None:
        """Why nothing can be written now (JournalFullError for a full disk or size cap), or None."""
        raise NotImplementedError

    def stats(self) -> JournalStats:
        raise NotImplementedError

    async def close(self) -> None:
        """Commit what is queued and stop. Bounded in time: raises JournalError if the disk does not answer."""
        raise NotImplementedError
