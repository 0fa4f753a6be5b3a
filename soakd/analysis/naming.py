"""The name of a series in which no growth was proven, and what speaks against growth that was."""

from __future__ import annotations

import numpy as np

from soakd.analysis.blocks import Blocks
from soakd.analysis.examine import Examined
from soakd.analysis.growth import WARMED_UP_TAUS
from soakd.analysis.series import Floats, Shape
from soakd.analysis.shape import FLOOR, keeps_pace, stairs_stay

_FEWEST_FOR_END = 40
_FEWEST_BESIDE = 3
"""Blocks that a level must last to be the one before or after a step."""

_CURVE_SHARE = 0.3
"""Size of a warm-up over the linear growth beside it from which the one may be taken for the other."""


def doubt_about(facts: Examined) -> str:
    """Why growth that is beyond chance may still not be a leak; empty where nothing speaks against one."""
    g = facts.growth
    assert g is not None
    if g.slowing:
        return "it is slowing down, as a warm-up that goes on does"
    rising = -g.curve_size >= _CURVE_SHARE * max(g.slope * g.span, 0.0)
    if g.tau is not None and g.span < WARMED_UP_TAUS * g.tau and rising:
        return "what looks like a warm-up is not over yet"
    grown = max(g.slope * g.span, 0.0)
    falls = [-j.size for j in facts.jumps if j.size < 0]
    if falls and sum(falls) >= 0.5 * grown:
        return f"it fell back {'once' if len(falls) == 1 else f'{len(falls)} times'} and may again"
    return ""


def quiet_shape(facts: Examined) -> Shape:
    """The name of a series in which no growth was proven."""
    q, g = facts.question, facts.growth
    assert g is not None
    ups = [j for j in facts.late_jumps if j.size > 0]
    if facts.fast_sawtooth:
        return Shape.SAWTOOTH
    if not g.still and g.low * g.span > 2 * q.page:
        return Shape.WARM_UP
    middle = float(facts.used.first_x[0] + facts.used.last_x[-1]) / 2
    if len(ups) >= 3 and stairs_stay(facts.used.low, facts.late_jumps):
        thinned = sum(j.x > middle for j in ups) <= 1 and not keeps_pace(ups, float(facts.used.last_x[-1]))
        return Shape.WARM_UP if thinned else Shape.STAIRCASE
    if facts.late_jumps and _left_a_step(facts):
        return Shape.STEP
    tail = float(np.median(_without_load(facts.used, g.load_effect)))
    begun = float(np.median(_without_load(facts.main, g.load_effect)[: max(1, len(facts.main) // 100)]))
    least = max(3 * q.page, 4 * g.noise)
    if len(facts.used) < len(facts.main) and tail - begun > least:
        return Shape.WARM_UP
    if g.curve_size < 0 and g.warm > 0.8 and -g.curve_size > least:
        return Shape.WARM_UP
    if len(facts.used) == len(facts.main) and any(j.size > 0 for j in facts.jumps):
        return Shape.STEP
    return Shape.FLAT


def _left_a_step(facts: Examined) -> bool:
    """Whether the level after the jumps differs from that before by what they sum to: bursts leave nothing."""
    jumps, low = facts.late_jumps, facts.used.low
    total = sum(j.size for j in jumps)
    before, after = low[: max(jumps[0].index, 1)], low[min(jumps[-1].index + 1, len(low) - 1) :]
    if min(len(before), len(after)) < _FEWEST_BESIDE:
        return False
    # floors, since bursts reach the middle of what lies between them
    left = float(np.quantile(after, FLOOR) - np.quantile(before, FLOOR))
    largest = max(abs(j.size) for j in jumps)
    return abs(total) > 0.5 * largest and left * total > 0 and abs(left) > 0.5 * abs(total)


def _without_load(b: Blocks, effect: float | None) -> Floats:
    return b.low if effect is None or b.load is None else b.low - effect * b.load


def late_rise(facts: Examined) -> float:
    """How far all of the last twentieth lies above all that came before the last seventh, beyond noise and jumps; 0
    where it does not. A leak so young shows in no slope of the whole."""
    b, g = facts.used, facts.growth
    if g is None or facts.sawtooth is not None or len(b) < _FEWEST_FOR_END:
        return 0.0
    end, span = float(b.last_x[-1]), float(b.last_x[-1] - b.first_x[0])
    last, before = b.first_x >= end - span / 20, b.first_x < end - span / 7
    if not before.any():
        return 0.0
    level = _without_load(b, g.load_effect)
    jumped = sum(j.size for j in facts.late_jumps if j.x >= end - span / 6)
    rise = float(level[last].min() - level[before].max()) - max(jumped, 0.0)
    quiet = float(np.std(level[before]))
    return rise if rise > max(3 * facts.question.page, 4 * min(g.noise, quiet)) else 0.0


def endless_rise(facts: Examined) -> float:
    """How far a logarithm, the likeliest curve of this series, still rises over the last half; 0 where it is none."""
    g = facts.growth
    if g is None or not g.endless or facts.late_jumps or g.load_effect is not None:
        return 0.0
    rise = float(g.fitted[-1] - g.fitted[len(g.fitted) // 2])
    return rise if rise > max(3 * facts.question.page, 4 * g.noise) else 0.0
