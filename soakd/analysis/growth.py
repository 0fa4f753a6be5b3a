"""Growth within the plateaus of one lifetime: slope, interval, p-value and whether it still goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import binom

from soakd.analysis.blocks import Blocks
from soakd.analysis.critical import critical_value, tail_probability
from soakd.analysis.series import Floats
from soakd.analysis.shape import FoundJump, Sawtooth, moves
from soakd.analysis.slope import TrendFit, fit_growth, fit_trend

FEWEST_BLOCKS = 8
INTERVAL_TAIL = 0.01
"""One-sided tail of the interval that is reported: 98 %."""

_POWER_DEVIATES = 2.33
"""Standard deviations above the critical value that a slope must lie to be found 99 times in 100."""

_CERTAIN = 0.5
"""Share of the evidence for a warm-up from which it is taken as certain."""

_FULL_SHARE, _LATE_SHARE = 0.8, 0.2
"""How the level is split between 'grew over the whole run' and 'grows in the last half'."""

WARMED_UP_TAUS = 4.0
"""Time constants after which a warm-up is over (98 %)."""

SLOWING_RATIO = 3.0
SLOWED_SHARE = 0.85
"""Last half's slope over the whole's below which a bend matters: a saturating fill with a time constant of up to 1.7
times the span is below it."""

PROOF_MOVES = 7
"""Moves of one page that must all go up before chance (2**-7 < 1 %) is ruled out."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Per unit of ``x``. ``ratio`` is how many ``sd`` of evidence; ``p_value`` is for growth at all, ``p_late`` that
    of the last half alone, ``reach`` the half-width of the 98 % interval. ``up``/``down`` count moves of the level,
    ``bend`` is the curvature over its standard deviation (below zero: it slows down), ``endless`` whether the warm-up
    is a logarithm, which never ends."""

    slope: float
    sd: float
    reach: float
    p_value: float
    p_late: float
    slope_now: float
    now_sd: float
    span: float
    points: int
    rho: float
    length: float
    noise: float
    warm: float
    tau: float | None
    curve_size: float
    load_effect: float | None
    detectable: float
    up: int
    down: int
    still: bool
    bend: float
    plain: bool
    endless: bool
    x: Floats
    fitted: Floats

    @property
    def low(self) -> float:
        return self.slope - self.reach

    @property
    def high(self) -> float:
        return self.slope + self.reach

    @property
    def slowing(self) -> bool:
        """Whether it bends down and no warm-up that has long ended explains that: it may be one still going on."""
        over = self.tau is not None and self.span >= WARMED_UP_TAUS * self.tau
        return self.bend < -SLOWING_RATIO and self.slope_now < SLOWED_SHARE * self.slope and not over

    def p_above(self, limit: float) -> float:
        """One-sided p-value of a slope above ``limit``."""
        if self.sd <= 0:
            return 0.0 if self.slope > limit else 1.0
        return tail_probability((self.slope - limit) / self.sd, self.length, self.points, plain=self.plain)


_GAP_BLOCKS, _GAP_SHARE = 8.0, 0.02
"""A gap counts from so many blocks and so much of the span on."""

_BESIDE_GAP = 20
"""Blocks on each side of a gap from which they can speak for themselves."""

_MOST_GAPS = 4


@dataclass(frozen=True, slots=True)
class _Part:
    b: Blocks
    fixed: Floats | None
    has_load: bool


def _columns(b: Blocks, jumps: Sequence[FoundJump], tooth: Sawtooth | None) -> _Part:
    """Drop each jump's own block and its neighbours (their level may be neither before nor after, as where two jumps
    fall in neighbouring blocks) and make a column for each jump and each long gap. Of a sawtooth, make one of the time
    since the last fall: what then grows is the line of the troughs."""
    single = b.width == 0.0
    keep = np.ones(len(b), dtype=bool)
    columns = []
    for j in jumps:
        if not single:
            keep[max(0, j.index - 1) : j.index + 2] = False
        columns.append((np.arange(len(b)) >= j.index).astype(np.float64))
    columns += [(np.arange(len(b)) >= g).astype(np.float64) for g in _gaps(b) if not _near(g, jumps)]
    if tooth is not None:
        age = tooth.age(b)
        keep &= np.isfinite(age)
        keep[list(tooth.falls)] = False
        columns.append(np.nan_to_num(age))
    part = b.part(keep)
    columns = [c[keep] for c in columns]
    columns = [c for c in columns if np.ptp(c) > 0]
    load = part.load
    has_load = load is not None and float(np.ptp(load)) > 0
    if has_load and load is not None:
        columns.append(load)
    return _Part(part, np.column_stack(columns) if columns else None, has_load)


def _gaps(b: Blocks) -> list[int]:
    """Indices of the first block after each long gap, the longest gaps only. The noise has forgotten its level by
    then: as one step between neighbours, what differs would pass for growth."""
    if len(b) < 2 * _BESIDE_GAP:
        return []
    distance = b.first_x[1:] - b.last_x[:-1]
    least = max(_GAP_BLOCKS * float(np.median(np.diff(b.x))), _GAP_SHARE * float(b.last_x[-1] - b.first_x[0]))
    found = [int(i) + 1 for i in np.argsort(-distance, kind="stable")[:_MOST_GAPS] if distance[i] > least]
    return [i for i in found if _BESIDE_GAP <= i <= len(b) - _BESIDE_GAP]


def _near(index: int, jumps: Sequence[FoundJump]) -> bool:
    return any(abs(j.index - index) <= 1 for j in jumps)


def within(jumps: Sequence[FoundJump], start: int, end: int) -> tuple[FoundJump, ...]:
    """The jumps inside blocks start..end, renumbered from start."""
    return tuple(replace(j, index=j.index - start) for j in jumps if start < j.index < end)


def measure_growth(
    b: Blocks,
    jumps: Sequence[FoundJump],
    page: float,
    origin: float,
    *,
    tooth: Sawtooth | None = None,
) -> Growth | None:
    """Fit the blocks with a step at each jump, the load and a warm-up; None where fewer than eight are left.

    ``origin`` is where the process began (units of ``x``).
    """
    part = _columns(b, jumps, tooth)
    if len(part.b) < FEWEST_BLOCKS or part.b.x[-1] <= part.b.x[0]:
        return None
    fit, tau = fit_growth(part.b.x, part.b.low, part.fixed, origin)
    span = float(part.b.last_x[-1] - part.b.first_x[0]) or 1.0
    # readings are known to a page: uniform error at both ends of a line
    sd = float(np.hypot(fit.sd, 0.29 * page / span))
    points = len(part.b)
    late = _late_half(part, origin)
    now, now_sd = (late.slope, late.sd) if late else (fit.slope, sd)
    up, down = _moves_between_jumps(part)
    plain = part.fixed is None and fit.warm < _CERTAIN
    critical = critical_value(INTERVAL_TAIL, fit.length, points, plain=plain)
    p = tail_probability(fit.slope / sd if sd > 0 else fit.ratio, fit.length, points, plain=plain)
    beside = _late_half(part, origin, tau) if tau and fit.warm >= _CERTAIN else late
    p_late = max(tail_probability(f.ratio, f.length, points // 2, plain=False) if f else 1.0 for f in (late, beside))
    still = _still_going(fit.slope, now, now_sd)
    return Growth(
        slope=fit.slope,
        sd=sd,
        reach=critical * sd,
        p_value=min(1.0, p / _FULL_SHARE, p_late / _LATE_SHARE),
        p_late=p_late,
        slope_now=now,
        now_sd=now_sd,
        span=span,
        points=points,
        rho=fit.rho,
        length=fit.length,
        noise=fit.noise,
        warm=fit.warm,
        tau=tau if 0 < tau < np.inf and fit.warm > 0.5 else None,
        curve_size=fit.curve_size,
        load_effect=fit.effects[-1] if part.has_load and fit.effects else None,
        detectable=(critical + _POWER_DEVIATES) * sd,
        up=up,
        down=down,
        still=still,
        bend=_bend(part),
        plain=plain,
        endless=tau == np.inf and fit.warm >= _CERTAIN,
        x=part.b.x,
        fitted=fit.fitted,
    )


def _late_half(part: _Part, origin: float, tau: float = 0.0) -> TrendFit | None:
    """The last half alone, with a ``tau`` beside the end of the warm-up that the whole shows: what is left of it there
    looks straight."""
    middle = (part.b.x[0] + part.b.x[-1]) / 2
    keep = part.b.x >= middle
    if keep.sum() < FEWEST_BLOCKS:
        return None
    b = part.b.part(keep)
    columns = [part.fixed[keep]] if part.fixed is not None else []
    if tau and np.isfinite(tau):
        # from the middle on, so that a warm-up long over does not vanish in rounding
        columns.append(np.exp(-(b.x - b.x[0]) / tau)[:, None])
    elif tau:
        columns.append(np.log(np.maximum(b.x - origin, 1e-9))[:, None])
    fixed = np.hstack(columns) if columns else None
    if fixed is not None:
        varied = np.ptp(fixed, axis=0) > 0
        fixed = fixed[:, varied] if varied.any() else None
    return fit_growth(b.x, b.low, fixed, origin)[0]


def _bend(part: _Part) -> float:
    since = part.b.x - part.b.x[0]
    straight = since[:, None] if part.fixed is None else np.column_stack([since, part.fixed])
    return fit_trend(since**2, part.b.low, straight).ratio


def _still_going(slope: float, now: float, now_sd: float) -> bool:
    """Whether the last half may still have half the slope of the whole: a fill that has ended does not."""
    return now + 1.64 * now_sd >= 0.5 * slope


def _moves_between_jumps(part: _Part) -> tuple[int, int]:
    """Ups and downs of the level, leaving out those at a jump's column."""
    if part.fixed is None:
        return moves(part.b.low)
    steps = part.fixed.shape[1] - (1 if part.has_load else 0)
    at_jump = np.zeros(len(part.b) - 1, dtype=bool)
    for c in range(steps):
        at_jump |= np.diff(part.fixed[:, c]) != 0
    change = np.diff(part.b.low)[~at_jump]
    return int((change > 0).sum()), int((change < 0).sum())


def sign_probability(up: int, down: int) -> float:
    """Chance of ``up`` or more rises among the moves, were a rise as likely as a fall."""
    total = up + down
    return float(binom.sf(up - 1, total, 0.5)) if total else 1.0


def is_quantised(growth: Growth, page: float) -> bool:
    """Whether the level rests between a few moves, all but all one way: then only the moves are evidence."""
    total = growth.up + growth.down
    return page > 0 and total < 30 and total < 0.5 * growth.points and growth.down <= 0.1 * total
