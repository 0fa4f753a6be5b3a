"""The one owner of a journal: takes items without blocking and commits them from a thread of its own."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path

from soakd.clock import RealClock
from soakd.errors import JournalError
from soakd.journal.capacity import explain, file_bytes, set_cap
from soakd.journal.inbox import Entry, Inbox, resolve
from soakd.journal.lock import DirectoryLock
from soakd.journal.records import Blob, Cursor, JournalStats, RunRecord, SetAside
from soakd.journal.retention import Retention, RetentionPolicy
from soakd.journal.schema import FILE_NAME
from soakd.journal.store import BlobBatch, ItemBatch, Store
from soakd.model import Event, Finding, Outcome, RunState, Sample, Severity, labels
from soakd.ports import Clock

COMMIT_EVERY_S = 0.5
RETRY_EVERY_S = 2.0
_TIDY_EVERY_S = 30.0
_TIDY_FOR_S = 0.1
_CHUNKS_PER_STEP = 16
_CLOSE_S = 5.0
_UNSTORABLE = (
    TypeError, ValueError, OverflowError, sqlite3.InterfaceError, sqlite3.ProgrammingError, sqlite3.IntegrityError,
    sqlite3.DataError,
)  # fmt: skip


class Journal:
    """The owner of ``<directory>/journal.sqlite``; the directory is locked for as long as it is open.

    Everything is committed within a second. One daemon thread does all the writing: a disk that hangs blocks neither
    the loop nor the end of the process.
    """

    def __init__(self, store: Store, lock: DirectoryLock, retention: Retention, inbox: Inbox, cap: int | None) -> None:
        self._store = store
        self._lock = lock
        self._retention = retention
        self._inbox = inbox
        self._cap = cap
        self._failure: JournalError | None = None
        self._dropped_before = 0
        self._rows = store.rows_kept()
        self._done: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        max_bytes: int | None = None,
        queue_limit: int = 200_000,
        clock: Clock | None = None,
        retention: RetentionPolicy | None = None,
    ) -> Journal:
        """Lock the directory, migrate the file and start the writing thread; runs left RUNNING become INTERRUPTED.

        ``max_bytes`` caps the file together with its log. Raises JournalError: directory not writable, locked by
        another process (named), not a journal, newer schema.
        """
        lock = DirectoryLock(directory)
        path = directory / FILE_NAME
        try:
            store = Store(path, clock or RealClock())
            try:
                cap = set_cap(store.connection, max_bytes)
                store.interrupt_open_runs()
                retain = Retention(store, retention or RetentionPolicy(), cap)
                journal = cls(store, lock, retain, Inbox(queue_limit), max_bytes)
            except sqlite3.Error as error:
                store.close()
                raise explain(error, path, max_bytes) from None
        except JournalError:
            lock.release()
            raise
        journal._thread.start()
        return journal

    def add(self, items: Iterable[Sample | Event | Finding], run_id: str | None = None) -> None:
        """Queue items. Never blocks and never raises; samples that find the queue full are dropped and counted.

        Events and findings have a reserve of their own, so that they outlive a flood of samples.
        """
        self._inbox.put_items(items, run_id or "")

    def add_blob(self, kind: str, run_id: str, from_ns: int, to_ns: int, count: int, data: bytes) -> None:
        """Queue packed records, under the same terms as ``add``."""
        self._inbox.put_blob(Blob(kind, run_id, from_ns, to_ns, count, data))

    def start_run(self, run: RunRecord) -> None:
        self._inbox.put_operation(lambda store: store.put_run(run))

    def update_run(self, run: RunRecord) -> None:
        """Replace what is known of a run (target found out, report so far)."""
        self._inbox.put_operation(lambda store: store.put_run(run))

    def finish_run(
        self, run_id: str, state: RunState, outcome: Outcome | None, ended_ns: int, report: bytes | None
    ) -> None:
        """Close a run; ``report`` None leaves the report as it is."""
        self._inbox.put_operation(lambda store: store.finish_run(run_id, state, outcome, ended_ns, report))

    def keep(self, name: str, data: bytes) -> None:
        """Remember one piece of state under a name (the alert rules' checkpoint); the last one stands."""
        self._inbox.put_operation(lambda store: store.put_kept(name, data))

    def set_cursor(self, cursor: Cursor) -> None:
        """Remember how far a sink has come; written with the next commit."""
        self._inbox.put_operation(lambda store: store.put_cursor(cursor))

    def keep_cursors(self, names: Iterable[str]) -> None:
        """Forget the cursors of all sinks but these."""
        wanted = tuple(names)
        self._inbox.put_operation(lambda store: store.keep_cursors(wanted))

    def set_aside(self, lines: Sequence[SetAside]) -> None:
        """Keep lines that a sink refused for good."""
        kept = tuple(lines)
        self._inbox.put_operation(lambda store: store.put_set_aside(kept))

    async def flush(self) -> None:
        """Return when everything added so far is committed. Raises JournalFullError or JournalError."""
        await asyncio.wrap_future(self._inbox.put_waiter())

    @property
    def failure(self) -> JournalError | None:
        """Why nothing can be written now (JournalFullError for a full disk or size cap), or None.

        Tried again every two seconds; when it works again, an event says how many items were lost.
        """
        return self._failure

    def stats(self) -> JournalStats:
        store = self._store
        return JournalStats(
            rows=self._rows,
            file_bytes=file_bytes(store.path),
            queue_depth=self._inbox.depth,
            dropped=self._inbox.dropped + store.invalid,
            commit_seq=store.commit_seq,
            last_commit_seconds=store.last_commit_seconds,
            hot_rows=store.sealer.hot_rows,
        )

    async def close(self) -> None:
        """Commit what is queued and stop. Bounded in time: raises JournalError if the disk does not answer or not
        everything could be written."""
        self._inbox.close()
        try:
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(self._done)), _CLOSE_S)
        except TimeoutError:
            raise JournalError(
                f"the journal {self._store.path} could not be closed within {_CLOSE_S:.0f} s",
                hint=f"the disk does not answer; {self._inbox.depth} items were not written",
            ) from None
        finally:
            if self._done.done():
                self._lock.release()

    # What follows runs in the writing thread.

    def _run(self) -> None:
        tidy_at = time.monotonic() + _TIDY_EVERY_S
        try:
            while True:
                closed = self._inbox.wait(RETRY_EVERY_S if self._failure else COMMIT_EVERY_S)
                if self._attempt(self._write_queue):
                    self._attempt(self._seal)
                if time.monotonic() >= tidy_at or self._failure is not None:
                    finished = self._attempt(self._tidy)
                    tidy_at = time.monotonic() + (_TIDY_EVERY_S if finished else 0.0)
                if closed:
                    self._finish()
                    return
        except BaseException as error:
            self._failure = JournalError(f"the journal's writing thread ended: {error!r}")
            self._inbox.fail_waiters(self._failure)
            resolve(self._done, self._failure)
            raise

    def _attempt(self, work: Callable[[], bool]) -> bool:
        """Run one piece of work; False for a failure, which is then told to those who wait."""
        try:
            return work()
        except sqlite3.Error as error:
            self._store.roll_back()
            if self._failure is None:
                self._failure = explain(error, self._store.path, self._cap)
                self._dropped_before = self._inbox.dropped
            self._inbox.fail_waiters(self._failure)
            return False

    def _write_queue(self) -> bool:
        while batch := self._inbox.take():
            try:
                self._write(batch)
            except _UNSTORABLE:
                self._write_apart(batch)
            except sqlite3.Error:
                self._inbox.put_back(batch)
                raise
        return True

    def _write(self, batch: list[Entry]) -> None:
        """Write the entries; ``batch`` keeps those that are not written yet."""
        data = [entry for entry in batch if isinstance(entry, ItemBatch | BlobBatch)]
        if data:
            self._store.commit(data)
            self._rows += sum(entry.size for entry in data if isinstance(entry, ItemBatch))
            self._inbox.settle(data)
            del batch[: len(data)]
            if self._failure is not None:
                self._recover()
        while batch:
            entry = batch[0]
            if isinstance(entry, Future):
                resolve(entry, None)
            elif not isinstance(entry, ItemBatch | BlobBatch):
                entry(self._store)
                self._inbox.settle([entry])
            del batch[0]

    def _write_apart(self, batch: list[Entry]) -> None:
        """Write each entry by itself, halved as long as it fails, so that only the item that can't be stored is
        lost."""
        while batch:
            part = [batch.pop(0)]
            try:
                self._write(part)
            except _UNSTORABLE:
                entry = part[0]
                if isinstance(entry, ItemBatch) and entry.size > 1:
                    batch[:0] = entry.halves()
                else:
                    self._inbox.settle(part, lost=True)
            except sqlite3.Error:
                self._inbox.put_back(part + batch)
                raise

    def _recover(self) -> None:
        lost, why = self._inbox.dropped - self._dropped_before, str(self._failure)
        self._failure = None
        what = f"the journal can be written again; {lost} items were lost ({why})"
        event = Event("journal.recovered", self._store.clock.wall_ns(), what, Severity.WARNING, attrs=labels(lost=lost))
        self._store.commit([ItemBatch((event,), "")])

    def _seal(self) -> bool:
        """Seal as much as keeps pace with the feed, in short transactions."""
        while self._store.sealer.step(self._store.clock.wall_ns(), _CHUNKS_PER_STEP):
            pass
        return True

    def _tidy(self) -> bool:
        """Retention, for a tenth of a second at a time; False where more is left to do."""
        now_ns = self._store.clock.wall_ns()
        self._store.sealer.note_old(now_ns)
        until = time.monotonic() + _TIDY_FOR_S
        while self._retention.step(now_ns):
            if time.monotonic() > until:
                return False
        return True

    def _finish(self) -> None:
        self._attempt(self._write_queue)
        lost = self._inbox.depth
        try:
            self._store.close()
        except sqlite3.Error as error:
            self._failure = self._failure or explain(error, self._store.path, self._cap)
        resolve(self._done, JournalError(f"{lost} items could not be written: {self._failure}") if lost else None)
