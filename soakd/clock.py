"""The clock everything reads. A rehearsal runs it faster; a test turns it by hand; nothing else reads time."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RealClock:
    """Wall clock and monotonic clock of this machine."""

    speed: float = 1.0

    def wall_ns(self) -> int:
        return time.time_ns()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass(frozen=True, slots=True)
class FastClock:
    """A simulated clock: ``speed`` seconds pass for each real second after the origin.

    CLOCK_MONOTONIC is common to all processes of a host, so that children given the same origin agree on the time.
    """

    wall_origin_ns: int
    monotonic_origin_ns: int
    speed: float

    @classmethod
    def start(cls, speed: float) -> FastClock:
        return cls(time.time_ns(), time.monotonic_ns(), speed)

    def wall_ns(self) -> int:
        return self.wall_origin_ns + self._elapsed_ns()

    def monotonic_ns(self) -> int:
        return self.monotonic_origin_ns + self._elapsed_ns()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self.speed)

    def _elapsed_ns(self) -> int:
        return int((time.monotonic_ns() - self.monotonic_origin_ns) * self.speed)
