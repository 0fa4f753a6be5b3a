"""Gets one batch into one sink, whatever it takes: waits out failures, cuts what is too large, isolates what is bad."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from soakd.forward.pacing import backoff_s
from soakd.forward.status import Condition, SinkStatus
from soakd.journal.records import SetAside
from soakd.model import Event, Severity, labels
from soakd.ports import Clock
from soakd.sinks.delivery import (
    LineSink,
    Record,
    SinkError,
    SinkRefusedError,
    SinkRejectedError,
    SinkTooLargeError,
    SinkUnavailableError,
)

log = structlog.get_logger(__name__)
_SAID_AFTER = 3


class Stopping(Exception):
    """The forwarder is to end; what is under way is repeated at the next start."""


class Courier:
    """Keeps the sink's status. A change of its condition is logged and told once, and again on recovery."""

    def __init__(
        self,
        name: str,
        sink: LineSink,
        batch_rows: int,
        clock: Clock,
        tell: Callable[[Event], None],
        keep_aside: Callable[[Sequence[SetAside]], None],
        jitter: Callable[[], float],
    ) -> None:
        self._sink = sink
        self._clock = clock
        self._tell = tell
        self._keep_aside = keep_aside
        self._jitter = jitter
        self._stop = asyncio.Event()
        self._failures = 0
        self._said = False
        self.status = SinkStatus(name, since_ns=clock.wall_ns(), batch_rows=batch_rows)

    def stop(self) -> None:
        self._stop.set()

    async def stopped(self) -> None:
        await self._stop.wait()

    async def deliver(self, records: Sequence[Record]) -> None:
        """Return when every record is in the sink or set aside. Raises Stopping."""
        step = self.status.batch_rows
        waiting = [records[at : at + step] for at in range(0, len(records), step)]
        waiting.reverse()
        aside: list[SetAside] = []
        try:
            while waiting:
                batch = waiting.pop()
                if len(batch) > self.status.batch_rows:
                    waiting += _halves(batch)
                    continue
                try:
                    await self._write(batch)
                except SinkTooLargeError as error:
                    if len(batch) > 1:
                        self._shrink(len(batch) // 2)
                        waiting += _halves(batch)
                    else:
                        aside.append(self._aside(batch[0], error))
                except SinkRejectedError as error:
                    if len(batch) > 1:
                        waiting += _halves(batch)
                    else:
                        aside.append(self._aside(batch[0], error))
        finally:
            if aside:
                self._keep_aside(aside)
                self._say_aside(aside)

    async def pause(self, seconds: float) -> None:
        """Wait, but not longer than until the stop. Raises Stopping."""
        if self._stop.is_set():
            raise Stopping
        sleeping = asyncio.ensure_future(self._clock.sleep(seconds))
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((sleeping, stopped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            stopped.cancel()
        if self._stop.is_set():
            raise Stopping

    async def _write(self, batch: Sequence[Record]) -> None:
        """Write until the sink answers to the batch itself. Raises SinkTooLargeError, SinkRejectedError, Stopping."""
        while True:
            if self._stop.is_set():
                raise Stopping
            try:
                await self._sink.write(batch)
            except (SinkTooLargeError, SinkRejectedError):
                self._answered()
                raise
            except SinkError as error:
                await self._failed(error)
                continue
            self._answered()
            self.status = replace(self.status, rows=self.status.rows + len(batch), batches=self.status.batches + 1)
            return

    async def _failed(self, error: SinkError) -> None:
        self._failures += 1
        refused = isinstance(error, SinkRefusedError)
        condition = Condition.REFUSED if refused else Condition.UNAVAILABLE
        if self.status.condition is not condition:
            self.status = replace(self.status, condition=condition, since_ns=self._clock.wall_ns())
            self._said = False
        self.status = replace(self.status, why=str(error), retries=self.status.retries + 1)
        if not self._said and (refused or self._failures >= _SAID_AFTER):
            self._said = True
            self._say(f"forward.{condition.name.lower()}", str(error), Severity.WARNING)
        wish = error.retry_after_s if isinstance(error, SinkUnavailableError) else None
        await self.pause(backoff_s(self._failures, self._jitter(), retry_after_s=wish, refused=refused))

    def _answered(self) -> None:
        self._failures = 0
        if self.status.condition is Condition.OK:
            return
        now = self._clock.wall_ns()
        seconds = (now - self.status.since_ns) / 1e9
        was_said, self._said = self._said, False
        why = self.status.why
        self.status = replace(self.status, condition=Condition.OK, since_ns=now, why="")
        if was_said:
            self._say("forward.recovered", f"takes data again after {seconds:.0f} s ({why})", Severity.INFO)

    def _shrink(self, rows: int) -> None:
        if rows < self.status.batch_rows:
            self.status = replace(self.status, batch_rows=max(1, rows))
            log.warning("batches are too large for the sink", sink=self.status.name, rows_now=self.status.batch_rows)

    def _aside(self, record: Record, error: SinkError) -> SetAside:
        self.status = replace(self.status, rejected=self.status.rejected + 1)
        return SetAside(self.status.name, record.at_ns, str(error), self._sink.line(record))

    def _say_aside(self, aside: Sequence[SetAside]) -> None:
        what = f"refused {len(aside)} of the lines for good; the first: {aside[0].reason}"
        self._say("forward.rejected", what, Severity.WARNING)

    def _say(self, kind: str, what: str, severity: Severity) -> None:
        name = self.status.name
        level = log.info if severity is Severity.INFO else log.warning
        level(kind, sink=name, what=what)
        self._tell(Event(kind, self._clock.wall_ns(), f"sink {name}: {what}", severity, labels(sink=name)))


def _halves(batch: Sequence[Record]) -> list[Sequence[Record]]:
    """In the order in which they are to be taken from the end of a list."""
    middle = len(batch) // 2
    return [batch[middle:], batch[:middle]]
