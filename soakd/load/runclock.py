"""The run's clock inside a load worker: real monotonic time for everything measured, clock wall time for stamps."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from soakd.clock import FastClock


class RunClock:
    """``origin_ns`` is the real monotonic time at which stage 0 begins, ``now_ns`` tells the time now."""

    __slots__ = ("_fast", "now_ns", "origin_ns", "speed")

    def __init__(
        self, fast: FastClock | None, origin_ns: int = 0, now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._fast = fast
        self.now_ns = now_ns
        self.speed = fast.speed if fast is not None else 1.0
        self.origin_ns = origin_ns

    def wall_ns(self, monotonic_ns: int) -> int:
        """The clock's wall time at a real monotonic time. Steps of the real wall clock are followed."""
        if self._fast is not None:
            passed = monotonic_ns - self._fast.monotonic_origin_ns
            return self._fast.wall_origin_ns + int(passed * self._fast.speed)
        return time.time_ns() - (self.now_ns() - monotonic_ns)

    def real_ns(self, clock_s: float) -> int:
        """Real nanoseconds of a duration of clock time."""
        return int(clock_s * 1e9 / self.speed)

    def call_at(self, due_ns: int, call: Callable[[], object]) -> asyncio.TimerHandle:
        """Call at a monotonic time or up to a millisecond later, never before: event loops count whole
        milliseconds."""
        wait_ms = math.ceil(max(0, due_ns - self.now_ns()) / 1e6)
        return asyncio.get_running_loop().call_later(wait_ms / 1000, call)
