"""An event loop whose time is turned by its own timers: hours pass in milliseconds, and nothing ever waits."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import TypeVar

from soakd.clock import FastClock
from soakd.load.runclock import RunClock

T = TypeVar("T")
WALL_NS = 1_700_000_000_000_000_000


class _Selector(selectors.DefaultSelector):
    """Where a real selector would sleep, this one moves the time on."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout:
            self.now += timeout
        if not ready and timeout is None:
            raise RuntimeError("everything waits for something that never comes")
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now

    def now_ns(self) -> int:
        return round(self._virtual.now * 1e9)

    def block(self, seconds: float) -> None:
        """Time passes in which the loop does nothing: a stall."""
        self._virtual.now += seconds


def run_virtual(main: Coroutine[object, object, T]) -> T:
    """Run to the end on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def virtual_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def virtual_clock(speed: float = 1.0) -> RunClock:
    """A run that begins now on the running virtual loop, at WALL_NS of the clock."""
    loop = virtual_loop()
    return RunClock(FastClock(WALL_NS, loop.now_ns(), speed), loop.now_ns(), loop.now_ns)
