"""What there is to see in one series, before any verdict: lifetimes, warm-up, jumps, sawtooth, staircase, growth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from soakd.analysis.blocks import Blocks, clean, summarise
from soakd.analysis.growth import (
    Growth,
    is_quantised,
    measure_growth,
    sign_probability,
    within,
)
from soakd.analysis.series import SeriesQuestion
from soakd.analysis.shape import (
    FoundJump,
    Lifetimes,
    Sawtooth,
    Staircase,
    find_jumps,
    find_sawtooth,
    find_staircase,
    is_bursty,
    is_fast_sawtooth,
    is_one_sided,
    lifetimes,
    spread_out,
    stairs_stay,
    without_dips,
)

SECONDS_PER_HOUR = 3600.0
DEFAULT_WARMUP_S = 600.0
FEWEST_AFTER_WARMUP = 10
_FEWEST_COARSE = 16
_LAST_SHARE = 1.0 / 3.0
"""Share of what is judged that the last plateaus must span together."""

_REST_MOVES = 3
"""Moves that were due on a plateau (chance of none: 5 %) from which its rest says that growth has ended."""

_MOST_LIVES = 5
"""Lifetimes whose slopes are fitted, the longest first."""


@dataclass(frozen=True, slots=True)
class Examined:
    """The facts on one series. ``main`` is the longest lifetime, ``used`` what of it was judged (after the warm-up),
    ``jumps`` are all of the main lifetime, ``late_jumps`` those in ``used``, ``segment_slopes`` the slope of each of
    the longest lifetimes (per unit of ``x``). ``p_value`` is the smallest honest one for growth above the limit (or
    any), 1 where nothing could be tested."""

    question: SeriesQuestion
    points: int
    lives: Lifetimes
    blocks: Blocks
    main: Blocks
    used: Blocks
    jumps: tuple[FoundJump, ...]
    late_jumps: tuple[FoundJump, ...]
    sawtooth: Sawtooth | None
    fast_sawtooth: bool
    staircase: Staircase | None
    growth: Growth | None
    plateau: Growth | None
    segment_slopes: tuple[float | None, ...]
    p_value: float
    quantised: bool

    @property
    def per_factor(self) -> float:
        """From units of ``x`` to the unit of ``per``."""
        return SECONDS_PER_HOUR if self.question.per == "hour" else 1.0

    @property
    def grown(self) -> float:
        """How far the main lifetime's level rose from its lowest start to its end."""
        return float(self.main.low[-1] - self.main.low[0]) if len(self.main) else 0.0


def examine(question: SeriesQuestion) -> Examined:
    """Raises ValueError where the arrays differ in length."""
    x, y, load = clean(question.x, question.y, question.load)
    return examine_blocks(question, summarise(x, y, load))


def examine_blocks(question: SeriesQuestion, b: Blocks) -> Examined:
    """The same over blocks already made (``question``'s arrays are not read)."""
    points = b.readings
    b = without_dips(b)
    lives = lifetimes(b, question.starts)
    spans = sorted(lives.spans, key=lambda s: b.last_x[s[1] - 1] - b.first_x[s[0]], reverse=True)
    a, z = spans[0] if spans else (0, 0)
    main = _slice(b, a, z)
    page = question.page
    jumps = find_jumps(main, page, 1)
    begin = _begin(question, main, jumps)
    tooth = find_sawtooth(_slice(main, begin, len(main)), within(jumps, begin, len(main)))
    if tooth is None:
        main, jumps = _settled_blocks(main, page)
        begin = _begin(question, main, jumps)
    used = _slice(main, begin, len(main))
    late = within(jumps, begin, len(main))
    stairs = None
    growth = plateau = None
    if tooth is not None:
        growth = measure_growth(used, (), page, float(main.first_x[0]), tooth=tooth)
    elif len(used):
        growth = measure_growth(used, late, page, float(main.first_x[0]))
        stairs = _staircase(late, main, used)
        plateau = _last_plateau(used, late, page)
    longest = set(spans[:_MOST_LIVES])
    slopes = tuple(
        growth.slope if s == (a, z) and growth else _slope_of(question, _slice(b, *s)) if s in longest else None
        for s in lives.spans
    )
    quantised = tooth is None and growth is not None and is_quantised(growth, page)
    return Examined(
        question=question,
        points=points,
        lives=lives,
        blocks=b,
        main=main,
        used=used,
        jumps=jumps,
        late_jumps=late,
        sawtooth=tooth,
        fast_sawtooth=tooth is None and is_fast_sawtooth(used, page),
        staircase=stairs,
        growth=growth,
        plateau=plateau,
        segment_slopes=slopes,
        p_value=_p_value(question, growth, stairs, plateau, quantised),
        quantised=quantised,
    )


def _begin(question: SeriesQuestion, main: Blocks, jumps: tuple[FoundJump, ...]) -> int:
    """Where judging begins: after the warm-up, and neither in a block in which a jump falls nor in the one after it
    (they may be on neither level, as where two jumps fall in neighbouring blocks)."""
    begin = _after_warmup(question, main)
    if begin == 0 or main.width == 0.0:
        return begin + (any(j.index == begin for j in jumps) and begin + 1 < len(main))
    past = [j.index + 2 for j in jumps if begin - 1 <= j.index <= begin]
    return min(max(past, default=begin), max(len(main) - 1, 0))


def _settled_blocks(main: Blocks, page: float) -> tuple[Blocks, tuple[FoundJump, ...]]:
    """Blocks long enough that bursts do not reach their minima, and the jumps that remain."""
    jumps = find_jumps(main, page)
    b, found = main, jumps
    while (restless := is_bursty(found) or is_one_sided(b.low, found)) and len(b) >= 2 * _FEWEST_COARSE:
        b = b.coarser(2)
        found = find_jumps(b, page)
    return (main, ()) if restless else (b, found)


def _slice(b: Blocks, start: int, end: int) -> Blocks:
    keep = np.zeros(len(b), dtype=bool)
    keep[start:end] = True
    return b.part(keep)


def _after_warmup(question: SeriesQuestion, main: Blocks) -> int:
    """Index of the first block after the warm-up; a short series is used whole, its warm-up is in the curves."""
    if not len(main):
        return 0
    span = float(main.last_x[-1] - main.first_x[0])
    if question.warmup is not None:
        skip = question.warmup
    else:
        skip = span / 4
        if question.per == "hour":
            skip = min(skip, DEFAULT_WARMUP_S)
    begin = int(np.searchsorted(main.first_x, main.first_x[0] + skip - 1e-9 * span))
    if question.warmup is None and len(main) - begin < FEWEST_AFTER_WARMUP:
        return 0
    return min(begin, len(main))


def _staircase(late: tuple[FoundJump, ...], main: Blocks, used: Blocks) -> Staircase | None:
    start, end = float(used.first_x[0]), float(used.last_x[-1])
    if not spread_out(late, end - start) or not stairs_stay(used.low, late):
        return None
    return find_staircase(late, float(main.first_x[0]), start, end)


def _last_plateau(used: Blocks, late: tuple[FoundJump, ...], page: float) -> Growth | None:
    """Growth since the last upward jump alone: what is said after pools have stopped growing. A plateau too short to
    speak for itself is taken with those before it, up to the last third, unless it rests where they would have moved.
    """
    ups = [j for j in late if j.size > 0]
    if not ups:
        return None
    end, origin = float(used.last_x[-1]), float(used.first_x[0])
    third = end - (end - origin) * _LAST_SHARE
    begin = next((j.index + 1 for j in reversed(ups) if j.x <= third), 0)
    together = measure_growth(_slice(used, begin, len(used)), within(late, begin, len(used)), page, origin)
    if ups[-1].x <= third:
        return together
    alone = measure_growth(_slice(used, ups[-1].index + 1, len(used)), (), page, origin)
    if together is None or alone is None or alone.up > 0:
        return together
    return alone if together.up * alone.span >= _REST_MOVES * together.span else together


def _slope_of(question: SeriesQuestion, life: Blocks) -> float | None:
    used = _slice(life, _after_warmup(question, life), len(life))
    growth = measure_growth(used, find_jumps(used, question.page), question.page, float(life.first_x[0]))
    return growth.slope if growth else None


def _p_value(
    question: SeriesQuestion,
    growth: Growth | None,
    stairs: Staircase | None,
    plateau: Growth | None,
    quantised: bool,
) -> float:
    p = 1.0
    factor = SECONDS_PER_HOUR if question.per == "hour" else 1.0
    limit = (question.limit or 0.0) / factor
    if growth is not None and growth.slope > 0 and growth.still:
        p = growth.p_value if limit <= 0 else growth.p_above(limit)
        if quantised:
            p = max(p, sign_probability(growth.up, growth.down))
        # what was found on plateaus cut short by jumps must show on the last one too
        if plateau is not None and is_quantised(plateau, question.page):
            p = max(p, sign_probability(plateau.up, plateau.down))
    if stairs is not None and stairs.slope > limit:
        p = min(1.0, 2.0 * min(p, stairs.p_value))
    return p
