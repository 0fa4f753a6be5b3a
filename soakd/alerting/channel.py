"""One channel at work: its outbox, its notifier, and the patience between attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import structlog

from soakd.alerting.outbox import Outbox
from soakd.ports import Clock, Notifier

_FIRST_RETRY_S, _LAST_RETRY_S, _HOPELESS_RETRY_S = 1.0, 60.0, 300.0
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ChannelStatus:
    """``problem`` is empty while the channel takes what it is given; ``failures`` counts attempts since the start."""

    name: str
    waiting: int
    known: int
    sent: int
    dropped: int
    failures: int
    problem: str
    hopeless: bool


class Channel:
    """``wake`` after anything was put into the outbox. ``jitter`` gives numbers in [0, 1)."""

    def __init__(self, notifier: Notifier, outbox: Outbox, clock: Clock, jitter: Callable[[], float]) -> None:
        self.name = notifier.name
        self.outbox = outbox
        self.heartbeat = notifier.heartbeat
        self._notifier = notifier
        self._clock = clock
        self._jitter = jitter
        self._wake = asyncio.Event()
        self._not_before_ns = 0
        self._in_a_row = 0
        self._failures = 0
        self._problem = ""
        self._hopeless = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"alerts to {self.name}")
        self._task.add_done_callback(self._ended)

    def wake(self) -> None:
        self._wake.set()

    async def stop(self, within_s: float) -> None:
        """One last attempt to tell what waits, bounded in time; what is left is in the checkpoint."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self.outbox.waiting and not self._in_a_row:
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._tell()
        await self._notifier.close()

    def status(self) -> ChannelStatus:
        box = self.outbox
        return ChannelStatus(
            self.name, box.waiting, len(box), box.sent, box.dropped, self._failures, self._problem, self._hopeless
        )

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._problem, self._hopeless = f"ended by a fault of soakd: {type(error).__name__}: {error}", True
            log.error("a channel for alerts has ended", channel=self.name, why=self._problem)

    async def _run(self) -> None:
        while True:
            await self._until_due()
            await self._tell()

    async def _until_due(self) -> None:
        while True:
            self._wake.clear()
            at_ns = self.outbox.next_ns()
            now_ns = self._clock.monotonic_ns()
            wait_ns = None if at_ns is None else max(at_ns, self._not_before_ns) - now_ns
            if wait_ns is not None and wait_ns <= 0:
                return
            timeout = None if wait_ns is None else wait_ns / 1e9 / self._clock.speed
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), timeout)

    async def _tell(self) -> None:
        notices = self.outbox.due(self._clock.monotonic_ns())
        if not notices:
            return
        told = await self._notifier.notify(notices)
        now_ns = self._clock.monotonic_ns()
        self.outbox.told(notices, told, now_ns)
        self._take(told.problem, told.hopeless)
        wait_s = self._notifier.pause_s
        if told.retry_after_s is not None:
            wait_s = max(wait_s, told.retry_after_s)
        elif told.problem:
            wait_s = max(wait_s, self._backoff_s())
        self._not_before_ns = now_ns + int(wait_s * self._clock.speed * 1e9)

    def _take(self, problem: str, hopeless: bool) -> None:
        if problem and not self._problem:
            log.warning("alerts can't be delivered", channel=self.name, why=problem)
        elif self._problem and not problem:
            log.info("alerts are delivered again", channel=self.name)
        self._problem, self._hopeless = problem, hopeless
        self._in_a_row = self._in_a_row + 1 if problem else 0
        self._failures += bool(problem)

    def _backoff_s(self) -> float:
        """Between half and all of a wait that doubles."""
        most = _HOPELESS_RETRY_S if self._hopeless else _LAST_RETRY_S
        wait = min(most, _FIRST_RETRY_S * 2.0 ** min(self._in_a_row - 1, 16))
        return wait * (0.5 + 0.5 * self._jitter())
