"""Calls that may block for long, off the event loop, on one daemon thread that can never keep the process alive.

``asyncio.to_thread`` uses the loop's default executor, which ``asyncio.run`` joins at exit: one read that hangs in
the kernel would hang the whole program with it. A thread in such a read can't be ended either, so there is at
most one: while it is stuck, every further call is refused at once.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


class StillBlockedError(TimeoutError):
    """The call before this one has not come back yet; nothing was started."""


@dataclass(slots=True)
class _Call(Generic[T]):
    work: Callable[[], T]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[T]

    def run(self, release: Callable[[], None]) -> None:
        """Do the work, free the thread for the next call, then hand over the result: in this order, so that a
        caller that comes straight back is not refused."""
        result: T | None = None
        failure: BaseException | None = None
        try:
            result = self.work()
        except BaseException as error:  # noqa: BLE001  # carried to the caller, as a Future does
            failure = error
        release()
        self._settle(result, failure)

    def _settle(self, result: T | None, error: BaseException | None) -> None:
        def settle() -> None:
            if self.future.done():
                return
            if error is not None:
                self.future.set_exception(error)
            else:
                self.future.set_result(result)  # type: ignore[arg-type]

        try:
            self.loop.call_soon_threadsafe(settle)
        except RuntimeError:  # the loop closed while the call was stuck; nobody is waiting any more
            pass


class BlockingReader:
    """Runs blocking calls one at a time on a daemon thread of its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[_Call[object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._busy = threading.Event()

    async def call(self, work: Callable[[], T]) -> T:
        """The result of ``work()``. Raises what it raises, or StillBlockedError while an earlier call is stuck.

        A cancelled caller leaves the call running; only the thread is lost, and only until the call returns.
        """
        if self._busy.is_set():
            raise StillBlockedError(f"{self._name}: the read before this one is still stuck in the kernel")
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=f"soakd-{self._name}", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._busy.set()
        self._calls.put(_Call(work, loop, future))  # type: ignore[arg-type]
        return await future

    def close(self) -> None:
        """Let the thread end once it is free. Never waits."""
        if self._thread is not None:
            self._calls.put(None)
            self._thread = None

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run(self._busy.clear)
