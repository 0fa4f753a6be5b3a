"""Readings summed up in blocks: what the judge works on, offline and online, whatever the number of readings.

A block keeps what can be merged with its neighbour, so that a series of any length stays within a fixed number of
blocks by doubling their width. Its level is its lowest reading (the second lowest of eight or more, so that a single
bad reading does not count): memory not given back shows in the minima.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from soakd.analysis.series import Floats

MOST_BLOCKS = 480
_MOST_SINGLE = 240
"""Readings up to which each is a block of its own."""

_FEWEST_BLOCKS = 120
_READINGS_A_BLOCK = 8
ROBUST_FROM = 8


@dataclass(frozen=True, slots=True)
class Blocks:
    """Arrays of one length in order of ``x``.

    ``x`` is the mean of the block's readings, ``first_x``/``last_x`` its ends, ``low`` its level, ``load`` the load
    when that was read, ``up``/``up_x`` the largest rise between neighbouring readings and where, ``down``/``down_x``
    the largest fall, ``square`` the sum of squared differences, ``width`` in units of ``x`` (0: each block is one
    reading).
    """

    x: Floats
    first_x: Floats
    last_x: Floats
    count: NDArray[np.int64]
    low: Floats
    high: Floats
    last: Floats
    up: Floats
    up_x: Floats
    down: Floats
    down_x: Floats
    square: Floats
    load: Floats | None
    width: float

    def __len__(self) -> int:
        return len(self.x)

    def part(self, keep: NDArray[np.bool_]) -> Blocks:
        """The blocks where ``keep``."""
        return Blocks(
            x=self.x[keep],
            first_x=self.first_x[keep],
            last_x=self.last_x[keep],
            count=self.count[keep],
            low=self.low[keep],
            high=self.high[keep],
            last=self.last[keep],
            up=self.up[keep],
            up_x=self.up_x[keep],
            down=self.down[keep],
            down_x=self.down_x[keep],
            square=self.square[keep],
            load=None if self.load is None else self.load[keep],
            width=self.width,
        )

    def coarser(self, factor: int) -> Blocks:
        """``factor`` neighbours merged into one (an incomplete group at the end is kept)."""
        starts = np.arange(0, len(self), factor)
        ends = np.append(starts[1:], len(self)) - 1
        owner = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(self))))
        count = np.add.reduceat(self.count, starts)
        up, down = np.maximum.reduceat(self.up, starts), np.minimum.reduceat(self.down, starts)
        low = np.minimum.reduceat(self.low, starts)
        load = None if self.load is None else self.load[_first_true(self.low == low[owner], starts)]
        return Blocks(
            x=np.add.reduceat(self.x * self.count, starts) / count,
            first_x=self.first_x[starts],
            last_x=self.last_x[ends],
            count=count,
            low=low,
            high=np.maximum.reduceat(self.high, starts),
            last=self.last[ends],
            up=up,
            up_x=self.up_x[_first_true(self.up == up[owner], starts)],
            down=down,
            down_x=self.down_x[_first_true(self.down == down[owner], starts)],
            square=np.add.reduceat(self.square, starts),
            load=load,
            width=float(self.last_x[-1] - self.first_x[0]) / len(starts),
        )

    @property
    def readings(self) -> int:
        return int(self.count.sum())


def clean(x: Floats, y: Floats, load: Floats | None = None) -> tuple[Floats, Floats, Floats | None]:
    """In order of ``x``, without what is not a number, one reading (the mean) for each ``x``.

    Raises ValueError where the lengths differ.
    """
    if len(x) != len(y) or (load is not None and len(load) != len(x)):
        raise ValueError(f"x has {len(x)} readings, y {len(y)}, load {'none' if load is None else len(load)}")
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    load = None if load is None else np.asarray(load, dtype=np.float64)
    good = np.isfinite(x) & np.isfinite(y)
    if load is not None:
        good &= np.isfinite(load)
    order = np.argsort(x[good], kind="stable")
    x, y = x[good][order], y[good][order]
    load = None if load is None else load[good][order]
    if len(x) and np.any(np.diff(x) == 0):
        x, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
        y = np.bincount(inverse, y) / counts
        load = None if load is None else np.bincount(inverse, load) / counts
    return x, y, load


def summarise(x: Floats, y: Floats, load: Floats | None = None, most: int = MOST_BLOCKS) -> Blocks:
    """Blocks of equal width over clean readings: one reading each up to 240 readings, else at most ``most``."""
    n = len(x)
    if n == 0:
        e = np.empty(0)
        return Blocks(e, e, e, np.empty(0, np.int64), e, e, e, e, e, e, e, e, None, 0.0)
    if n <= min(most, _MOST_SINGLE):
        starts, width = np.arange(n), 0.0
    else:
        wanted = int(np.clip(n // _READINGS_A_BLOCK, _FEWEST_BLOCKS, most))
        width = float(x[-1] - x[0]) / wanted
        index = np.minimum(((x - x[0]) / width).astype(np.int64), wanted - 1)
        starts = np.flatnonzero(np.diff(index, prepend=-1))
    ends = np.append(starts[1:], n)
    count = ends - starts
    rise = np.diff(y, prepend=y[0])
    up, down = np.maximum.reduceat(rise, starts), np.minimum.reduceat(rise, starts)
    owner = np.repeat(np.arange(len(starts)), count)
    low, high = np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)
    second, second_at = _second_lowest(y, owner, low, starts)
    robust = count >= ROBUST_FROM
    level_at = np.where(robust, second_at, _first_true(y == low[owner], starts))
    # mean x of the readings, not the block's middle: a block half in a gap stands where its readings are
    return Blocks(
        x=np.add.reduceat(x, starts) / count,
        first_x=x[starts],
        last_x=x[ends - 1],
        count=count,
        low=np.where(robust, second, low),
        high=high,
        last=y[ends - 1],
        up=up,
        up_x=x[_first_true(rise == up[owner], starts)],
        down=down,
        down_x=x[_first_true(rise == down[owner], starts)],
        square=np.add.reduceat(rise * rise, starts),
        load=None if load is None else load[level_at],
        width=width,
    )


def _first_true(flags: NDArray[np.bool_], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Index of the first True from each start on (each block has one)."""
    hits = np.flatnonzero(flags)
    return hits[np.searchsorted(hits, starts)]


def _second_lowest(
    y: Floats, owner: NDArray[np.int64], low: Floats, starts: NDArray[np.int64]
) -> tuple[Floats, NDArray[np.int64]]:
    """The second lowest reading of each block (infinite where there is one only) and its index."""
    others = y.copy()
    others[_first_true(y == low[owner], starts)] = np.inf
    second = np.minimum.reduceat(others, starts)
    return second, _first_true(others == second[owner], starts)


@dataclass(slots=True)
class BlockBuilder:
    """Blocks of a growing series: constant time per reading, at most ``2 * MOST_BLOCKS`` rows of memory.

    Rows hold first_x, last_x, sum of x, count, lowest, second lowest, highest, last, up, up_x, down, down_x, square,
    load at the lowest and at the second lowest (NaN: unknown).
    """

    width: float = 0.0
    rows: list[list[float]] = field(default_factory=list)
    last_x: float = -np.inf
    last_y: float = np.nan
    refused: int = 0
    taken: int = 0

    def add(self, x: float, y: float, load: float | None = None) -> None:
        """A reading; one that is not a number, or older than the last, is counted in ``refused`` and left out."""
        if not (np.isfinite(x) and np.isfinite(y)) or x <= self.last_x:
            self.refused += 1
            return
        self.taken += 1
        rise = 0.0 if not self.rows else y - self.last_y
        self.last_x, self.last_y = x, y
        held = np.nan if load is None else load
        row = [x, x, x, 1.0, y, np.inf, y, y, rise, x, rise, x, rise * rise, held, np.nan]
        if self.rows and self.width > 0 and x < self.rows[-1][0] - self._offset(self.rows[-1][0]) + self.width:
            self.rows[-1] = _merge(self.rows[-1], row)
            return
        self.rows.append(row)
        if len(self.rows) > 2 * MOST_BLOCKS:
            self._widen()

    def copy(self) -> BlockBuilder:
        """As it is now. Rows are replaced and never changed, so that a list of the same rows is a copy."""
        return BlockBuilder(self.width, list(self.rows), self.last_x, self.last_y, self.refused, self.taken)

    def _offset(self, x: float) -> float:
        return (x - self.rows[0][0]) % self.width

    def _widen(self) -> None:
        span = self.last_x - self.rows[0][0]
        self.width = max(self.width * 2.0, span / MOST_BLOCKS)
        self.rows = _coarser(self.rows, self.width)

    def blocks(self) -> Blocks:
        """What has been read so far, in blocks of about eight readings and more where there are enough.

        Never more than MOST_BLOCKS of them: slow noise that rests on pages looks short-lived in finer ones, and passes
        for growth three times as often as it may.
        """
        if not self.rows:
            return summarise(np.empty(0), np.empty(0))
        rows, width = self.rows, self.width
        while self.taken < 0.75 * _READINGS_A_BLOCK * len(rows) and len(rows) > (
            _MOST_SINGLE if width else MOST_BLOCKS
        ):
            width = 2.0 * (width or (self.last_x - rows[0][0]) / len(rows))
            rows = _coarser(rows, width)
        while width and len(rows) > MOST_BLOCKS:
            width *= 2.0
            rows = _coarser(rows, width)
        a = np.array(rows)
        count = a[:, 3].astype(np.int64)
        robust = (count >= ROBUST_FROM) & np.isfinite(a[:, 5])
        load = np.where(robust, a[:, 14], a[:, 13])
        loaded = bool(np.isfinite(load).all())
        return Blocks(
            x=a[:, 2] / a[:, 3],
            first_x=a[:, 0],
            last_x=a[:, 1],
            count=count,
            low=np.where(robust, a[:, 5], a[:, 4]),
            high=a[:, 6],
            last=a[:, 7],
            up=a[:, 8],
            up_x=a[:, 9],
            down=a[:, 10],
            down_x=a[:, 11],
            square=a[:, 12],
            load=load if loaded else None,
            width=width,
        )


def _coarser(rows: list[list[float]], width: float) -> list[list[float]]:
    """Neighbouring rows merged into rows of ``width``."""
    origin = rows[0][0]
    merged: list[list[float]] = []
    place = -1
    for row in rows:
        mine = int((row[0] - origin) / width)
        if mine == place:
            merged[-1] = _merge(merged[-1], row)
        else:
            merged.append(row)
            place = mine
    return merged


def _merge(a: list[float], b: list[float]) -> list[float]:
    best, other = (a, b) if a[4] <= b[4] else (b, a)
    second, second_load = (best[5], best[14]) if best[5] <= other[4] else (other[4], other[13])
    up, up_x = (a[8], a[9]) if a[8] >= b[8] else (b[8], b[9])
    down, down_x = (a[10], a[11]) if a[10] <= b[10] else (b[10], b[11])
    return [
        a[0], b[1], a[2] + b[2], a[3] + b[3], best[4], second, max(a[6], b[6]), b[7],
        up, up_x, down, down_x, a[12] + b[12], best[13], second_load,
    ]  # fmt: skip
