"""What a series of blocks looks like: lifetimes, jumps, sawteeth, staircases. Pure, over Blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.stats import poisson

from soakd.analysis.blocks import ROBUST_FROM, Blocks
from soakd.analysis.series import Floats

_MAD = 1.4826
_REACH = 3
"""Blocks on each side of a jump whose median says what the level was."""

_DEAD_SHARE = 0.15
"""Below this share of the level before, a process is gone, not smaller."""

_STEADY_BEFORE = 8
_STEADY_SHARE = 0.3
"""For so many blocks before its death a process was above this share of its level."""

_RARE = 0.1
"""Share of the blocks up to which dips are rare."""

FLOOR = 0.1
"""Quantile that stands for the floor of a stretch: bursts above it may reach its middle."""

_JUMP_SIGMAS = 6.0
_JUMP_PAGES = 3.0
_JUMP_SHARE = 0.002
_PASSES = 4
_PACE = 1.25
"""A gap this much longer than another is no longer as long."""


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Slices of the blocks that belong to one process each; ``died`` where one fell to near nothing."""

    spans: tuple[tuple[int, int], ...]
    died: bool
    declared: bool


@dataclass(frozen=True, slots=True)
class FoundJump:
    """A jump in block ``index``: the blocks after it are on another level by ``size``."""

    index: int
    x: float
    size: float


@dataclass(frozen=True, slots=True)
class Sawtooth:
    """Where a series that climbs and falls back falls (indices of blocks, and exact ``x``), and the troughs' ``x`` and
    level."""

    falls: tuple[int, ...]
    fall_x: Floats
    x: Floats
    low: Floats

    def age(self, b: Blocks) -> Floats:
        """How long each block has climbed since its last fall (units of ``x``); NaN before the first fall."""
        last = np.searchsorted(np.array(self.falls), np.arange(len(b)), side="right") - 1
        since = b.x - self.fall_x[np.maximum(last, 0)]
        return np.where(last >= 0, since, np.nan)


@dataclass(frozen=True, slots=True)
class Staircase:
    """Upward jumps that go on. ``p_value``: chance of as many (or more) late jumps if they were records of a steady
    demand, whose rate falls as 1/x. ``slope`` is over whole periods, ``slope_now`` over the last half, per unit of
    ``x``; ``spread`` is the standard error of ``slope``."""

    jumps: int
    late: int
    due: float
    p_value: float
    slope: float
    slope_now: float
    spread: float


def lifetimes(b: Blocks, starts: Sequence[float]) -> Lifetimes:
    """Cut at declared starts and at falls to near nothing; what is near nothing belongs to no lifetime."""
    n = len(b)
    inside = [s for s in starts if n and b.first_x[0] < s <= b.last_x[-1]]
    cuts = {int(np.searchsorted(b.first_x, s)) for s in inside}
    # a block that holds readings of both lifetimes belongs to neither
    mixed = {c - 1 for c, s in zip(sorted(cuts), sorted(inside), strict=False) if b.last_x[c - 1] >= s}
    cuts |= mixed
    declared = bool(cuts)
    level = np.maximum.accumulate(b.low) if n else b.low
    top = float(level[-1]) if n else 0.0
    dead = (b.low <= _DEAD_SHARE * level) & (top > 0) & (level > _DEAD_SHARE * top)
    for start in np.flatnonzero(np.diff(dead.astype(np.int8), prepend=0) == 1):
        # a small series may swing to near nothing and back all the time: that is its noise
        end = start + int(np.argmin(dead[start:])) if not dead[start:].all() else n
        before = b.low[max(0, start - _STEADY_BEFORE) : start]
        brief = b.width == 0.0 and end - start < (2 if end == n else 3)
        if brief or before.min() <= _STEADY_SHARE * level[start]:
            dead[start:end] = False
    edges = np.flatnonzero(np.diff(dead.astype(np.int8)) != 0) + 1
    cuts |= {int(e) for e in edges}
    bounds = [0, *sorted(c for c in cuts if 0 < c < n), n]
    spans = tuple((a, z) for a, z in pairwise(bounds) if z > a and not dead[a:z].all() and a not in mixed)
    return Lifetimes(spans, bool(dead.any()), declared)


def without_dips(b: Blocks) -> Blocks:
    """Less the single blocks that fall to near nothing between neighbours that did not: a sensor that missed, no death
    of a process. Where that is common it is how the series is, and blocks whose level is their second lowest reading
    saw more than one."""
    if len(b) < _STEADY_BEFORE:
        return b
    level = np.minimum(b.low[:-2], b.low[2:])
    alike = level >= (1 - _DEAD_SHARE) * np.maximum(b.low[:-2], b.low[2:])
    dips = np.zeros(len(b), dtype=bool)
    few = (b.count[1:-1] < ROBUST_FROM) & ((b.count[1:-1] > 1) | (b.width == 0.0))
    dips[1:-1] = few & alike & (level > 0) & (b.low[1:-1] <= _DEAD_SHARE * level)
    return b if not dips.any() or dips.mean() > _RARE else b.part(~dips)


def step_scale(b: Blocks, page: float) -> float:
    """How much neighbouring readings differ when nothing happens; at least a page."""
    inner = b.count > 3
    if inner.sum() >= max(4, len(b) // 4):
        usual = (b.square - b.up**2 - b.down**2)[inner] / (b.count[inner] - 2)
        return max(float(np.sqrt(np.median(np.maximum(usual, 0.0)))), page)
    rise = np.where(b.up > 0, b.up, b.down)[1:]
    if not len(rise):
        return page
    return max(float(_MAD * np.median(np.abs(rise - np.median(rise)))), page)


def level_changes(low: Floats, single: bool) -> Floats:
    """For each block, the median level after it minus the median level before it, less what the usual slope makes of
    the distance (``single``: the block itself is after, since it is one reading)."""
    n = len(low)
    place = np.arange(n, dtype=np.float64)
    changes, distance = _across(low, single), _across(place, single)
    inner = distance > 0
    if not inner.any():
        return np.zeros(n)
    usual = float(np.median(changes[inner] / distance[inner]))
    return np.where(inner, changes - usual * distance, 0.0)


def _across(low: Floats, single: bool) -> Floats:
    n = len(low)
    padded = np.concatenate([np.full(_REACH, np.nan), low, np.full(_REACH + 1, np.nan)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, _REACH)
    shift = 0 if single else 1
    before, after = windows[:n], windows[_REACH + shift : _REACH + shift + n]
    changes = np.zeros(n)
    inside = slice(1, n if single else n - 1)
    changes[inside] = np.nanmedian(after[inside], axis=1) - np.nanmedian(before[inside], axis=1)
    return changes


def find_jumps(b: Blocks, page: float, passes: int = _PASSES) -> tuple[FoundJump, ...]:
    """Isolated sustained changes of level, up or down, that the noise between neighbours does not explain."""
    if len(b) < 6:
        return ()
    found: list[FoundJump] = []
    low = b.low.copy()
    for _ in range(passes):
        more = _jumps_once(b, low, page, {j.index for j in found})
        if not more:
            break
        found.extend(more)
        # with these taken out, neighbours that they hid come to light
        for j in more:
            low[j.index + (b.width > 0.0) :] -= j.size
    return _netted(sorted(found, key=lambda j: j.index), _least_jump(b, page))


def _least_jump(b: Blocks, page: float) -> float:
    return max(_JUMP_PAGES * page, _JUMP_SHARE * float(np.ptp(b.low)), 1e-9 * float(np.abs(b.low).max()))


def _netted(found: Sequence[FoundJump], least: float) -> tuple[FoundJump, ...]:
    """Neighbouring finds of one event (a jump and what a later pass corrected of it) as one jump."""
    merged: list[FoundJump] = []
    for j in found:
        last = merged[-1] if merged else None
        if last is not None and j.index - last.index <= _REACH and j.size * last.size < 0:
            larger = last if abs(last.size) >= abs(j.size) else j
            merged[-1] = FoundJump(larger.index, larger.x, last.size + j.size)
        else:
            merged.append(j)
    return tuple(j for j in merged if abs(j.size) > least)


def _jumps_once(b: Blocks, low: Floats, page: float, known: set[int]) -> list[FoundJump]:
    n = len(b)
    single = b.width == 0.0
    excess = level_changes(low, single)
    block_scale = max(float(_MAD * np.median(np.abs(excess))), page)
    raw = np.where(np.abs(b.up) >= np.abs(b.down), b.up, b.down)
    raw_usual = float(np.median(raw)) if single else 0.0
    raw_scale = step_scale(b, page)
    floor = _least_jump(b, page)
    by_level = np.abs(excess) > _JUMP_SIGMAS * block_scale
    sudden = np.abs(raw - raw_usual)
    by_rise = (sudden > (_JUMP_SIGMAS + 2) * raw_scale) & (excess * raw > 0) & (np.abs(excess) >= 0.5 * sudden)
    # a ramp is no jump: most of the change must fall on one block, or on one pair of neighbours
    steps = np.abs(np.diff(low, prepend=low[0]))
    steepest = np.maximum(steps, np.append(steps[1:], 0.0))
    wanted = (by_level & (steepest >= 0.5 * np.abs(excess)) | by_rise) & (np.abs(excess) > floor)
    found: list[FoundJump] = []
    wanted[list(known)] = False
    order = np.argsort(-np.where(wanted, np.maximum(np.abs(excess), sudden), 0.0), kind="stable")
    taken = np.zeros(n, dtype=bool)
    for i in order[: int(wanted.sum())]:
        if taken[i]:
            continue
        taken[max(0, i - _REACH) : i + _REACH + 1] = True
        # the change itself may lie at the edge of a neighbour
        near = range(max(0, i - 1), min(n, i + 2))
        place = (
            b.up_x[max(near, key=b.up.__getitem__)] if excess[i] > 0 else b.down_x[min(near, key=b.down.__getitem__)]
        )
        found.append(FoundJump(int(i), float(place), float(excess[i])))
    return found


def find_sawtooth(b: Blocks, jumps: Sequence[FoundJump]) -> Sawtooth | None:
    """Three or more falls, each after a climb of at least half its size, no half of which comes at once; None where
    there are fewer, or where what falls had jumped up (those are bursts)."""
    falls = [j for j in jumps if j.size < 0]
    if len(falls) < 3:
        return None
    bounds = [0, *(j.index for j in falls), len(b)]
    climbs = 0
    troughs: list[int] = []
    for a, z in pairwise(bounds):
        if z - a < 1:
            continue
        # the fall itself may lie at the end of the block before
        first, last = max(0, a - 1), max(a, z - 1)
        troughs.append(first + int(np.argmin(b.low[first:last])) if last > first else a)
    for fall, trough in zip(falls[1:], troughs[1:], strict=False):
        climb = float(b.low[trough : fall.index + 1].max() - b.low[trough])
        sudden = float(b.up[trough : fall.index + 1].max()) >= 0.5 * -fall.size
        climbs += climb >= 0.5 * -fall.size and not sudden
    jumped = sum(j.size for j in jumps if j.size > 0)
    if climbs < 2 or climbs < 0.6 * (len(falls) - 1) or jumped > -0.5 * sum(j.size for j in falls):
        return None
    # the stretch before the first fall starts at no trough of its own
    inner = np.array(troughs[1:])
    near = [range(max(0, j.index - 1), min(len(b), j.index + 2)) for j in falls]
    places = sorted({min(r, key=lambda i: float(b.down[i])) for r in near})
    return Sawtooth(tuple(places), b.down_x[places], b.x[inner], b.low[inner])


def is_bursty(jumps: Sequence[FoundJump]) -> bool:
    """Whether the level jumps up and back down: its floor shows in longer blocks only."""
    ups, downs = [j.size for j in jumps if j.size > 0], [-j.size for j in jumps if j.size < 0]
    return len(ups) >= 2 and len(downs) >= 2 and min(sum(ups), sum(downs)) > 0.3 * max(sum(ups), sum(downs))


def is_one_sided(low: Floats, jumps: Sequence[FoundJump]) -> bool:
    """Whether three or more falls were found that the level did not keep. In blocks about as long as what comes and
    goes only the falls of it may be found (its floor is seen once in two blocks): as steps they would leave a slope."""
    if sum(j.size < 0 for j in jumps) < 3:
        return False
    ended = float(np.median(low[-_REACH:]) - np.median(low[:_REACH]))
    return abs(ended - sum(j.size for j in jumps)) > 0.5 * sum(abs(j.size) for j in jumps)


def is_fast_sawtooth(b: Blocks, page: float) -> bool:
    """Climbs and falls too quick for the blocks: falls much larger than any rise between neighbouring readings."""
    if b.width == 0.0:
        return False
    swing = float(np.quantile(b.high, 0.9) - np.quantile(b.low, 0.1))
    fallen = b.down <= -0.5 * swing
    return swing > _JUMP_PAGES * page and int(fallen.sum()) >= 3 and float(b.up.max()) < 0.3 * swing


def find_staircase(jumps: Sequence[FoundJump], origin: float, start: float, end: float) -> Staircase | None:
    """Three or more upward jumps in (start, end], against records of a steady demand that began at ``origin``."""
    mine = [j for j in jumps if j.x > start]
    ups = [j for j in mine if j.size > 0]
    if len(ups) < 3 or sum(j.size for j in mine) < 0.6 * sum(j.size for j in ups):
        return None
    at = np.array([j.x for j in ups])
    size = np.array([j.size for j in ups])
    half = (start + end) / 2
    late = at > half
    begun = max(start - origin, 0.02 * (end - origin))
    due_all = float(np.log((end - origin) / begun))
    due_late = float(np.log((end - origin) / max(half - origin, begun)))
    p = min(1.0, 2.0 * min(poisson.sf(len(ups) - 1, due_all), poisson.sf(int(late.sum()) - 1, due_late)))
    gaps = np.diff(at)
    slope = float(size[1:].sum() / (at[-1] - at[0]))
    spread = float(np.std(gaps) / np.mean(gaps) + np.std(size) / np.mean(size)) * slope / np.sqrt(len(gaps))
    return Staircase(
        jumps=len(ups),
        late=int(late.sum()),
        due=due_late,
        p_value=float(p),
        slope=slope,
        slope_now=float(size[late].sum() / (end - half)),
        spread=max(spread, slope / len(ups)),
    )


def stairs_stay(low: Floats, jumps: Sequence[FoundJump]) -> bool:
    """Whether the level rose by at least half of what the jumps sum to, not only at the very end: bursts leave nothing.

    Floors of the first and the last quarter are compared, since bursts do not reach those.
    """
    quarter = max(3, len(low) // 4)
    stairs = np.zeros(len(low))
    for j in jumps:
        stairs[j.index :] += j.size
    rise, wanted = (float(np.quantile(y[-quarter:], FLOOR) - np.quantile(y[:quarter], FLOOR)) for y in (low, stairs))
    return rise >= 0.5 * wanted and wanted >= 0.25 * sum(j.size for j in jumps if j.size > 0)


def keeps_pace(jumps: Sequence[FoundJump], end: float) -> bool:
    """Whether three or more upward jumps come as often at the end as at the beginning, the next not being overdue:
    pools that fill thin out."""
    at = [j.x for j in jumps if j.size > 0]
    if len(at) < 3:
        return False
    gaps = np.diff(at)
    return bool(gaps[-1] <= _PACE * gaps[0] and end - at[-1] <= _PACE * float(np.median(gaps)))


def spread_out(jumps: Sequence[FoundJump], span: float) -> bool:
    """Whether upward jumps cover at least a third of the span."""
    ups = [j.x for j in jumps if j.size > 0]
    return len(ups) >= 3 and max(ups) - min(ups) >= span / 3


def moves(low: Floats) -> tuple[int, int]:
    """How many times the level went up and down between neighbouring blocks."""
    steps: NDArray[np.float64] = np.diff(low)
    return int((steps > 0).sum()), int((steps < 0).sum())
