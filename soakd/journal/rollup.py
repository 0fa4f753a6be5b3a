"""Minute and hour steps out of readings, and coarser steps out of finer ones. Pure.

What a step keeps can be merged in any grouping without a change of the result: that is why it keeps the first and the
last reading and the gain between them, not a rate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from soakd.counters import gained
from soakd.journal.codec import Packer, Rows, Unpacker
from soakd.journal.records import Float64s, Int64s


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps in order of time, arrays of equal length; floats are NaN where ``count`` is 0. ``gain`` is what a counter
    gained between the first and the last reading of the step."""

    start_ns: Int64s
    count: Int64s
    unknown: Int64s
    minimum: Float64s
    maximum: Float64s
    total: Float64s
    first: Float64s
    last: Float64s
    gain: Float64s

    def __len__(self) -> int:
        return len(self.start_ns)

    def where(self, index: npt.NDArray[np.bool_] | Int64s) -> Steps:
        return Steps(*(getattr(self, name)[index] for name in Steps.__slots__))


def gains(values: Float64s, wraps_at: int | None) -> Float64s:
    """What a counter gained from each reading to the next (one shorter than ``values``), by ``counters.gained``."""
    return gained(values[:-1], values[1:], wraps_at)


def roll(rows: Rows, width_ns: int, wraps_at: int | None = None) -> Steps:
    """Steps of ``width_ns`` out of readings (any order)."""
    order = np.argsort(rows.at_ns, kind="stable")
    at_ns, known, values = rows.at_ns[order], rows.states[order] == 0, rows.values[order]
    starts, index = np.unique(at_ns // width_ns * width_ns, return_inverse=True)
    size = len(starts)
    count = np.bincount(index[known], minlength=size).astype(np.int64)
    unknown = np.bincount(index[~known], minlength=size).astype(np.int64)
    step, known_values = index[known], values[known]
    single = Steps(
        starts[step], np.ones(len(step), np.int64), np.zeros(len(step), np.int64), known_values, known_values,
        known_values, known_values, known_values, np.zeros(len(step)),
    )  # fmt: skip
    merged = _merge_known(single, step, wraps_at)
    filled = np.flatnonzero(count)
    columns = [_spread(column, filled, size) for column in merged]
    return Steps(starts, count, unknown, *columns)


def merge(parts: list[Steps], width_ns: int, wraps_at: int | None = None) -> Steps:
    """Coarser steps out of finer ones; parts of the same step may lie in several parts. Parts may come in any order,
    as long as each is in order and they don't interleave within a step."""
    joined = join_steps(sorted((p for p in parts if len(p)), key=lambda p: int(p.start_ns[0])))
    if not len(joined):
        return joined
    order = np.argsort(joined.start_ns, kind="stable")
    joined = joined.where(order)
    starts, index = np.unique(joined.start_ns // width_ns * width_ns, return_inverse=True)
    size = len(starts)
    count = np.bincount(index, weights=joined.count, minlength=size).astype(np.int64)
    unknown = np.bincount(index, weights=joined.unknown, minlength=size).astype(np.int64)
    known = np.flatnonzero(joined.count)
    merged = _merge_known(joined.where(known), index[known], wraps_at)
    filled = np.flatnonzero(count)
    return Steps(starts, count, unknown, *[_spread(column, filled, size) for column in merged])


def join_steps(parts: list[Steps]) -> Steps:
    if not parts:
        whole, real = np.empty(0, np.int64), np.empty(0, np.float64)
        return Steps(whole, whole, whole, real, real, real, real, real, real)
    return Steps(*(np.concatenate([getattr(p, name) for p in parts]) for name in Steps.__slots__))


def increases(steps: Steps, wraps_at: int | None) -> Float64s:
    """The gain of each step, with what was gained since the last reading before it."""
    result = np.where(steps.count > 0, np.nan_to_num(steps.gain), 0.0)
    known = np.flatnonzero(steps.count)
    if len(known) > 1:
        result[known[1:]] += gained(steps.last[known[:-1]], steps.first[known[1:]], wraps_at)
    return result


def encode_steps(steps: Steps) -> bytes:
    packer = Packer()
    for column in (steps.start_ns, steps.count, steps.unknown):
        packer.whole(column)
    known = steps.count > 0
    if known.any():
        for values in (steps.minimum, steps.maximum, steps.total, steps.first, steps.last, steps.gain):
            packer.floats(values[known])
    return packer.done()


def decode_steps(data: bytes, count: int) -> Steps:
    unpacker = Unpacker(data)
    start, counts, unknown = (unpacker.whole(count) for _ in range(3))
    filled = np.flatnonzero(counts)
    columns = [_spread(unpacker.floats(len(filled)), filled, count) for _ in range(6)] if len(filled) else [
        np.full(count, np.nan) for _ in range(6)]  # fmt: skip
    return Steps(start, counts, unknown, *columns)


def _merge_known(steps: Steps, index: Int64s, wraps_at: int | None) -> tuple[Float64s, ...]:
    """Reduce steps that all hold readings, by ascending group ``index``: minimum to gain, one each a group."""
    if not len(index):
        return tuple(np.empty(0) for _ in range(6))
    heads = np.flatnonzero(np.r_[True, np.diff(index) > 0])
    tails = np.r_[heads[1:], len(index)] - 1
    gain = steps.gain.copy()
    gain[1:] += np.where(np.diff(index) > 0, 0.0, gained(steps.last[:-1], steps.first[1:], wraps_at))
    return (
        np.minimum.reduceat(steps.minimum, heads),
        np.maximum.reduceat(steps.maximum, heads),
        np.add.reduceat(steps.total, heads),
        steps.first[heads],
        steps.last[tails],
        np.add.reduceat(gain, heads),
    )


def _spread(values: Float64s, where: Int64s, size: int) -> Float64s:
    result = np.full(size, np.nan)
    result[where] = values
    return result
