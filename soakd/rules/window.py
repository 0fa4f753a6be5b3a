"""Sums over a sliding window in bounded memory: sixty steps, whatever the rate of readings."""

from __future__ import annotations

from dataclasses import dataclass, field

_STEPS = 60


@dataclass(slots=True)
class Sliding:
    """Amounts of the last ``within_ns``, as [step, amount] pairs, oldest first."""

    within_ns: int
    steps: list[tuple[int, float]] = field(default_factory=list)

    def add(self, at_ns: int, amount: float) -> None:
        step = at_ns // self._width
        if self.steps and self.steps[-1][0] >= step:
            last, so_far = self.steps[-1]
            self.steps[-1] = (last, so_far + amount)
        elif amount:
            self.steps.append((step, amount))
        self._expire(step)

    def total(self, now_ns: int) -> float:
        self._expire(now_ns // self._width)
        return sum(amount for _, amount in self.steps)

    @property
    def _width(self) -> int:
        return max(1, self.within_ns // _STEPS)

    def _expire(self, step: int) -> None:
        keep = 0
        while keep < len(self.steps) and self.steps[keep][0] <= step - _STEPS:
            keep += 1
        del self.steps[:keep]


@dataclass(slots=True)
class Counter:
    """The last reading of one counter, and when it was read."""

    value: float
    at_ns: int


def inside(step: float, gap_ns: int, within_ns: int) -> float:
    """The share of an increase that fell into the window: after a gap longer than it, only that part can be in it."""
    return step if gap_ns <= within_ns else step * within_ns / gap_ns
