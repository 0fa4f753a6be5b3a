"""What waits to be written: bounded, counted, filled by any thread and emptied by the writing one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError

from soakd.errors import JournalError
from soakd.journal.records import Blob
from soakd.journal.store import BlobBatch, ItemBatch, Store, StoredItem
from soakd.model import Sample

ROWS_PER_COMMIT = 20_000
_EVENT_RESERVE = 20_000
_BLOB_BYTES = 128 * 2**20
_OPERATIONS = 50_000

Operation = Callable[[Store], object]
Waiter = Future[None]
Entry = ItemBatch | BlobBatch | Operation | Waiter


class Inbox:
    """Entries in order. ``dropped`` counts what found no room or could not be stored."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changed = threading.Condition()
        self._entries: deque[Entry] = deque()
        self._operations = 0
        self._blob_bytes = 0
        self._urgent = False
        self._closed = False
        self.depth = 0
        self.dropped = 0

    def put_items(self, items: Iterable[StoredItem], run_id: str) -> None:
        """Samples that find no room are dropped; events and findings have a reserve, to outlive a flood of samples."""
        batch = tuple(items)
        with self._changed:
            room = self._limit - self.depth
            if len(batch) > room:
                kept = tuple(i for i in batch if not isinstance(i, Sample))[: max(0, room + _EVENT_RESERVE)]
                self.dropped += len(batch) - len(kept)
                batch = kept
            if not batch:
                return
            self._entries.append(ItemBatch(batch, run_id))
            self.depth += len(batch)
            if self.depth >= ROWS_PER_COMMIT:
                self._wake()

    def put_blob(self, blob: Blob) -> None:
        with self._changed:
            if self._blob_bytes + len(blob.data) > _BLOB_BYTES:
                self.dropped += 1
                return
            self._entries.append(BlobBatch(blob))
            self.depth += 1
            self._blob_bytes += len(blob.data)

    def put_operation(self, operation: Operation) -> None:
        with self._changed:
            if self._operations >= _OPERATIONS:
                self.dropped += 1
                return
            self._operations += 1
            self._entries.append(operation)

    def put_waiter(self) -> Waiter:
        """A future done when everything before it is committed. Raises JournalError when closed."""
        waiter: Waiter = Future()
        with self._changed:
            if self._closed:
                raise JournalError("the journal is closed")
            self._entries.append(waiter)
            self._wake()
        return waiter

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._wake()

    def wait(self, seconds: float) -> bool:
        """Wait for work that is urgent, or for ``seconds``; True when closed."""
        with self._changed:
            if not self._urgent:
                self._changed.wait(seconds)
            self._urgent = False
            return self._closed

    def take(self) -> list[Entry]:
        """The next entries up to the size of a commit: data first, then what followed it."""
        taken: list[Entry] = []
        rows, after_data = 0, False
        with self._changed:
            while self._entries and rows < ROWS_PER_COMMIT:
                entry = self._entries[0]
                is_data = isinstance(entry, ItemBatch | BlobBatch)
                if is_data and after_data:
                    break
                after_data = after_data or not is_data
                rows += entry.size if isinstance(entry, ItemBatch | BlobBatch) else 1
                taken.append(self._entries.popleft())
        return taken

    def put_back(self, entries: list[Entry]) -> None:
        with self._changed:
            self._entries.extendleft(reversed(entries))

    def settle(self, entries: Iterable[Entry], *, lost: bool = False) -> None:
        """These are written, or given up."""
        with self._changed:
            for entry in entries:
                if isinstance(entry, ItemBatch | BlobBatch):
                    self.depth -= entry.size
                    self.dropped += entry.size if lost else 0
                    self._blob_bytes -= len(entry.blob.data) if isinstance(entry, BlobBatch) else 0
                elif not isinstance(entry, Future):
                    self._operations -= 1
                    self.dropped += lost

    def fail_waiters(self, error: JournalError | None) -> None:
        with self._changed:
            waiters = [entry for entry in self._entries if isinstance(entry, Future)]
            for waiter in waiters:
                self._entries.remove(waiter)
        for waiter in waiters:
            resolve(waiter, error)

    def _wake(self) -> None:
        self._urgent = True
        self._changed.notify()


def resolve(waiter: Waiter, error: JournalError | None) -> None:
    try:
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)
    except InvalidStateError:
        pass  # whoever waited has gone
