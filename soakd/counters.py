"""Change of a counter over its epochs. Pure.

A counter restarts when the driver is reloaded or a device rescanned, and a narrow hardware counter wraps. Neither may
read as a burst: the change is what was counted, summed over the epochs, and the first reading is never an increase.
"""

from __future__ import annotations

from collections.abc import Iterable


class Increase:
    """The running change of one counter, in constant memory.

    Without ``wraps_at`` a decrease starts a new epoch, and what the counter shows then was counted since its restart
    at zero. With ``wraps_at`` (2**32 for NVML's PCIe byte counters) a decrease is read as one wrap; two wraps between
    two readings can't be seen, which bounds what a sampling rate can tell.
    """

    __slots__ = ("_last", "_wraps_at", "epochs", "total")

    def __init__(self, wraps_at: int | None = None) -> None:
        self._wraps_at = wraps_at
        self._last: float | None = None
        self.total = 0.0
        self.epochs = 0

    def add(self, value: float) -> float:
        """Take a reading and return its increase over the one before (0 for the first)."""
        last, self._last = self._last, value
        if last is None:
            self.epochs = 1
            return 0.0
        step = value - last
        if step < 0:
            if self._wraps_at is not None and last < self._wraps_at:
                step += self._wraps_at
            else:
                self.epochs += 1
                step = value
        self.total += step
        return step


def increase(values: Iterable[float], wraps_at: int | None = None) -> float:
    """Sum of the increases of a series in order of time; 0 for fewer than two readings."""
    counter = Increase(wraps_at)
    for value in values:
        counter.add(value)
    return counter.total
