"""From the journal to one sink: live data first, then what was missed, oldest first and at a bounded rate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from soakd.errors import JournalError
from soakd.forward.courier import Courier, Stopping
from soakd.forward.pacing import Allowance, backoff_s
from soakd.journal.records import Cursor
from soakd.journal.tail import Window
from soakd.ports import Clock
from soakd.sinks.delivery import DeliveryConfig

_MOST_GAPS = 16
_WINDOW_ROWS = 20_000
_MEASURE_EVERY_NS = 900_000_000


class Tail(Protocol):
    """What a route reads: ``soakd.journal.tail.JournalTail``. Methods raise JournalError."""

    def latest(self) -> int: ...
    def commit_at(self, at_ns: int) -> int: ...
    def lag(self, cursor: Cursor, now_ns: int) -> tuple[int, float]: ...
    def window(self, after: int, until: int, max_rows: int) -> Window: ...


class Route:
    """One sink's way. The cursor moves, and is saved, only past what the sink has taken or what is set aside."""

    def __init__(
        self,
        tail: Tail,
        courier: Courier,
        cursor: Cursor,
        config: DeliveryConfig,
        clock: Clock,
        save: Callable[[Cursor], None],
    ) -> None:
        self._tail = tail
        self._courier = courier
        self._config = config
        self._clock = clock
        self._save = save
        self._allowance = Allowance(config.catch_up_rows_per_s, 1.0, clock.monotonic_ns())
        self._measure_at_ns = 0
        self.cursor = cursor

    async def run(self) -> None:
        """Until the courier is stopped."""
        failures = 0
        try:
            while True:
                try:
                    wait = await self.step()
                    failures = 0
                except JournalError:
                    failures += 1
                    wait = backoff_s(failures, 1.0)
                if wait > 0:
                    await self._courier.pause(wait)
        except Stopping:
            return

    async def step(self) -> float:
        """Send one window of live data and one of the backlog; the seconds to wait before the next step."""
        latest = self._tail.latest()
        self._jump_ahead()
        more = False
        if self.cursor.head < latest:
            window = self._tail.window(self.cursor.head, latest, _WINDOW_ROWS)
            await self._courier.deliver(window.items)
            self._move(replace(self.cursor, head=window.to))
            more = window.to < latest
        wait = await self._catch_up() if self.cursor.gaps else self._config.every
        self.measure()
        return 0.0 if more else min(wait, self._config.every)

    def _jump_ahead(self) -> None:
        """Leave what is too old behind as a gap, so that new data does not wait for it."""
        cursor = self.cursor
        old = self._tail.commit_at(self._clock.wall_ns() - int(self._config.live_within * 1e9))
        if old > cursor.head and len(cursor.gaps) < _MOST_GAPS:
            self._move(replace(cursor, head=old, gaps=(*cursor.gaps, (cursor.head, old))))

    async def _catch_up(self) -> float:
        wait = self._allowance.wait_s(self._clock.monotonic_ns())
        if wait > 0:
            return wait
        (after, until), *others = self.cursor.gaps
        window = self._tail.window(after, until, self._config.batch_rows)
        await self._courier.deliver(window.items)
        self._allowance.spend(len(window.items))
        rest = [(window.to, until)] if window.to < until else []
        self._move(replace(self.cursor, gaps=(*rest, *others)))
        return 0.0

    def _move(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self._save(cursor)

    def measure(self) -> None:
        """Bring the lag in the status up to date; between steps of a route that waits for its sink, others call it."""
        now = self._clock.monotonic_ns()
        if now < self._measure_at_ns:
            return
        self._measure_at_ns = now + _MEASURE_EVERY_NS
        rows, seconds = self._tail.lag(self.cursor, self._clock.wall_ns())
        self._courier.status = replace(self._courier.status, lag_rows=rows, lag_seconds=seconds)
