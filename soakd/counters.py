"""Change of a counter over its epochs. Pure.

A counter restarts when the driver is reloaded or a device rescanned, and a narrow hardware counter wraps. Neither may
read as a burst: the change is what was counted, summed over the epochs, and the first reading is never an increase.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Readings = TypeVar("Readings", float, "npt.NDArray[np.float64]")


def gained(before: Readings, after: Readings, wraps_at: int | None) -> Readings:
    """What a counter counted between two readings; numbers or arrays of equal length.

    A decrease starts a new epoch: the counter began again at 0, so what it shows was counted since. A counter of
    ``wraps_at`` (2**32 for NVML's PCIe byte counters) that falls from its upper half into its lower half has wrapped
    instead. Two wraps between two readings can't be seen, which bounds what a sampling rate can tell.
    """
    fell = after < before
    if wraps_at is None:
        wrapped = fell & False
    else:
        wrapped = fell & (before > wraps_at / 2) & (after < wraps_at / 2)
    anew = fell ^ wrapped
    return after - before * (1 - anew) + (wraps_at or 0) * wrapped


class Increase:
    """The running change of one counter, in constant memory; ``epochs`` counts its restarts, the first one included."""

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
        step = gained(last, value, self._wraps_at)
        self.epochs += value < last and step == value
        self.total += step
        return step


def increase(values: Iterable[float], wraps_at: int | None = None) -> float:
    """Sum of the increases of a series in order of time; 0 for fewer than two readings."""
    counter = Increase(wraps_at)
    for value in values:
        counter.add(value)
    return counter.total
