"""A clock for tests: sleeping moves it at once, and nothing else does but the test."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(slots=True)
class HandClock:
    now_ns: int
    speed: float = 1.0
    slept_s: float = 0.0

    def wall_ns(self) -> int:
        return self.now_ns

    def monotonic_ns(self) -> int:
        return self.now_ns

    async def sleep(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)
        self.slept_s += seconds
        await asyncio.sleep(0)
