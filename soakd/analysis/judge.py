"""The verdict on one series, and on a family of them. Pure: arrays in, judgement out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from soakd.analysis.examine import Examined, examine
from soakd.analysis.exhibits import evidence_of
from soakd.analysis.growth import FEWEST_BLOCKS, PROOF_MOVES, sign_probability
from soakd.analysis.naming import doubt_about, endless_rise, late_rise, quiet_shape
from soakd.analysis.series import (
    Evidence,
    Jump,
    Leak,
    Segment,
    SeriesJudgement,
    SeriesQuestion,
    Shape,
)
from soakd.analysis.shape import keeps_pace
from soakd.analysis.wording import amount, rate, span_text

__all__ = [
    "Evidence",
    "Jump",
    "Leak",
    "Segment",
    "SeriesJudgement",
    "SeriesQuestion",
    "Shape",
    "decide",
    "holm",
    "judge_family",
    "judge_series",
]

DEFAULT_ALPHA = 0.01

_SUGGESTIVE = 0.05
"""Above this p-value nothing points to growth; between it and alpha it is not settled."""

FEWEST_READINGS = 4

_AGAINST = 2.33
"""Standard deviations by which the last half must differ from the whole before growth is called uneven (98 %)."""

_HOPELESS = 100.0
"""Runs more than this many times longer are not worth naming."""


def judge_series(question: SeriesQuestion, alpha: float = DEFAULT_ALPHA) -> SeriesJudgement:
    """Judge one series: LEAK at one-sided level ``alpha``. Raises ValueError where ``x`` and ``y`` differ in length."""
    return decide(examine(question), alpha)


def judge_family(questions: Sequence[SeriesQuestion], alpha: float = DEFAULT_ALPHA) -> tuple[SeriesJudgement, ...]:
    """Judge many series so that the chance of any false LEAK among them stays ``alpha`` (Holm), in the order given."""
    facts = [examine(q) for q in questions]
    levels = holm([f.p_value for f in facts], alpha)
    return tuple(decide(f, level) for f, level in zip(facts, levels, strict=True))


def holm(p_values: Sequence[float], alpha: float) -> list[float]:
    """The level each p-value is held to by Holm's step-down procedure; 0 for those after the first that fails."""
    order = np.argsort(p_values, kind="stable")
    levels = [0.0] * len(p_values)
    for rank, i in enumerate(order):
        level = alpha / (len(p_values) - rank)
        if p_values[int(i)] > level:
            break
        levels[int(i)] = level
    return levels


@dataclass(frozen=True, slots=True)
class _Answer:
    verdict: Leak
    shape: Shape
    why: str
    used: int


def decide(facts: Examined, alpha: float = DEFAULT_ALPHA) -> SeriesJudgement:
    """The verdict on what was examined; LEAK where the p-value is at most ``alpha`` and every condition holds."""
    slopes = _slopes(facts, alpha)
    answer = _answer(facts, alpha, slopes)
    answer = _within_cap(facts, answer, slopes)
    if facts.lives.died or facts.lives.declared:
        answer = _with_restart(facts, answer)
    return _judgement(facts, answer, slopes)


@dataclass(frozen=True, slots=True)
class _Slopes:
    """Per unit of ``x``; None where nothing was fitted."""

    slope: float | None = None
    low: float | None = None
    high: float | None = None
    now: float | None = None
    detectable: float | None = None
    span: float = 0.0


def _slopes(facts: Examined, alpha: float) -> _Slopes:
    g, page = facts.growth, facts.question.page
    if g is None:
        return _Slopes(span=float(np.ptp(facts.main.x)) if len(facts.main) else 0.0)
    slope, low, high, now = g.slope, g.low, g.high, g.slope_now
    stairs = facts.staircase
    if stairs is not None and stairs.p_value <= alpha / 2:
        slope, now = slope + stairs.slope, now + stairs.slope_now
        half = float(np.hypot(g.reach, 2.33 * stairs.spread))
        low, high = slope - half, slope + half
    reach = _AGAINST * g.now_sd
    if now + reach < low or now - reach > high:
        # not one line: the interval is not to exclude the slope that it has now
        low, high = min(low, now), max(high, now)
    page_slope = page / g.span
    detectable = max(g.detectable, (PROOF_MOVES if facts.quantised or g.up + g.down == 0 else 1.0) * page_slope)
    return _Slopes(slope, min(low, slope), max(high, slope + 0.5 * page_slope), now, detectable, g.span)


def _answer(facts: Examined, alpha: float, s: _Slopes) -> _Answer:
    if facts.points < FEWEST_READINGS:
        why = f"{facts.points} readings prove nothing; it takes at least {FEWEST_READINGS}"
        return _Answer(Leak.INCONCLUSIVE, Shape.UNKNOWN, why, facts.points)
    if facts.sawtooth is not None:
        return _on_sawtooth(facts, alpha, s)
    if facts.growth is None:
        return _on_few(facts)
    return _on_growth(facts, alpha, s)


def _on_few(facts: Examined) -> _Answer:
    """Four to seven readings: a sign test can't reach 1 %, so they clear a series or leave it open."""
    b, q = facts.main, facts.question
    low, n = b.low, len(b)
    if n >= FEWEST_BLOCKS:
        why = f"{facts.used.readings} of its {b.readings} readings are left after the warm-up, too few to judge"
        return _Answer(Leak.INCONCLUSIVE, Shape.UNKNOWN, why, facts.used.readings)
    if n < FEWEST_READINGS:
        return _Answer(Leak.INCONCLUSIVE, Shape.UNKNOWN, f"{n} readings in the longest lifetime prove nothing", n)
    steps = np.diff(low)
    up, down = int((steps > 0).sum()), int((steps < 0).sum())
    if float(np.ptp(low)) <= q.page:
        return _Answer(Leak.NO_LEAK, Shape.FLAT, f"the {n} readings stay within {amount(float(np.ptp(low)), q)}", n)
    late = low[n // 2 :]
    grown = float(low[-1] - low[0])
    if grown <= q.page:
        return _Answer(Leak.NO_LEAK, Shape.FLAT, f"it ends {amount(-grown, q)} below its start after {n} readings", n)
    settled = float(late.max()) <= float(low[: n // 2 + 1].max()) + q.page
    if settled or float(np.ptp(late)) <= max(q.page, 0.02 * grown):
        why = f"it rose by {amount(grown, q)} and stopped: the last {len(late)} of {n} readings no longer rise"
        return _Answer(Leak.NO_LEAK, Shape.WARM_UP, why, n)
    why = (
        f"{up} of {up + down} moves go up, which chance does in {100 * sign_probability(up, down):.2g} % of series; "
        f"{n} readings are too few to prove growth"
    )
    return _Answer(Leak.INCONCLUSIVE, Shape.UNKNOWN, why, n)


def _on_sawtooth(facts: Examined, alpha: float, s: _Slopes) -> _Answer:
    q, tooth, g = facts.question, facts.sawtooth, facts.growth
    assert tooth is not None
    n = facts.used.readings
    if g is None:
        rising = bool(np.all(np.diff(tooth.low) > q.page)) and len(tooth.low) >= 3
        verdict = Leak.INCONCLUSIVE if rising else Leak.NO_LEAK
        end = "each trough is above the one before, too few to tell" if rising else "the troughs do not rise"
        return _Answer(verdict, Shape.SAWTOOTH, f"it falls back {len(tooth.falls)} times; {end}", n)
    if facts.p_value <= alpha and g.low * g.span > q.page and g.still:
        why = f"its {len(tooth.low)} troughs rise by {rate(g.slope, facts)} ({_interval(s, facts)})"
        return _Answer(Leak.LEAK, Shape.SAWTOOTH, why, n)
    why = f"it falls back {len(tooth.falls)} times and the troughs' slope, {_interval(s, facts)}, does not exclude zero"
    return _Answer(_unsettled(facts, s), Shape.SAWTOOTH, why, n)


def _on_growth(facts: Examined, alpha: float, s: _Slopes) -> _Answer:
    q, g, stairs = facts.question, facts.growth, facts.staircase
    assert g is not None
    n = facts.used.readings
    shape = quiet_shape(facts)
    steady = g.slope * g.span > q.page and g.low * g.span > q.page and g.still
    late = g.slope_now > 0 and g.p_late / 0.2 <= alpha and g.slope_now * g.span / 2 > q.page
    climbing = stairs is not None and stairs.p_value <= alpha / 2
    proven = facts.p_value <= alpha
    doubt = doubt_about(facts)
    if proven and climbing and stairs is not None:
        why = (
            f"{stairs.jumps} upward jumps, {stairs.late} of them in the last half where a pool that fills would have "
            f"shown about {stairs.due:.1g}: {rate(stairs.slope, facts)} over whole periods, "
            f"{rate(stairs.slope_now, facts)} now"
        )
        return _Answer(Leak.LEAK, Shape.STAIRCASE, why, n)
    if proven and (steady or late) and doubt:
        why = f"it grew by {rate(g.slope, facts)} ({_interval(s, facts)}), but {doubt}"
        return _Answer(Leak.INCONCLUSIVE, shape if shape is not Shape.FLAT else Shape.UNKNOWN, why, n)
    if proven and (steady or late):
        shape = Shape.SAWTOOTH if facts.fast_sawtooth else Shape.LINEAR
        count = len(facts.late_jumps)
        where = f" on the plateaus between {count} {'step' if count == 1 else 'steps'}" if count else ""
        beyond = f", above the limit of {rate((q.limit or 0) / facts.per_factor, facts)}" if q.limit else ""
        if not steady:
            why = (
                f"it grows by {rate(g.slope_now, facts)} in the last half{where}, which the first half did not{beyond}"
            )
            return _Answer(Leak.LEAK, shape, why, n)
        uneven = s.slope is not None and s.now is not None and abs(s.now - s.slope) > g.reach + _AGAINST * g.now_sd
        lately = f", {rate(g.slope_now, facts)} in the last half," if uneven else ""
        goes_on = "has not stopped" if g.slope_now > _AGAINST * g.now_sd else "may go on"
        why = f"it grows by {rate(g.slope, facts)} ({_interval(s, facts)}){lately}{where} and {goes_on}{beyond}"
        return _Answer(Leak.LEAK, shape, why, n)
    verdict = _unsettled(facts, s)
    if shape is Shape.FLAT and steady and g.p_value <= DEFAULT_ALPHA:
        shape = Shape.LINEAR
    why = _quiet_why(facts, verdict, shape, s)
    if verdict is Leak.NO_LEAK and q.limit and steady and g.p_value <= DEFAULT_ALPHA and not g.slowing:
        within = f"within the limit of {rate(q.limit / facts.per_factor, facts)}"
        shape, why = Shape.LINEAR, f"it grows by {rate(g.slope, facts)} ({_interval(s, facts)}), {within}"
    rise = late_rise(facts)
    if rise and (not q.limit or rise * facts.per_factor > q.limit * g.span / 7):
        why = f"it rose by {amount(rise, q)} at the very end; {why}"
        return _Answer(Leak.INCONCLUSIVE, Shape.UNKNOWN if shape is Shape.FLAT else shape, why, n)
    return _Answer(verdict, shape, why, n)


def _unsettled(facts: Examined, s: _Slopes) -> Leak:
    """NO_LEAK or INCONCLUSIVE where no leak was proven."""
    q, g = facts.question, facts.growth
    assert g is not None
    assert s.high is not None
    if q.limit:
        page_slope = q.page / g.span
        highest = max(s.high, page_slope) * facts.per_factor
        risen = sum(j.size for j in facts.late_jumps if j.size > 0) / g.span * facts.per_factor
        slowly = endless_rise(facts) / (g.span / 2) * facts.per_factor
        open_end = slowly > q.limit or (_stairs_open(facts) and highest + risen > q.limit)
        return Leak.NO_LEAK if highest <= q.limit and not open_end else Leak.INCONCLUSIVE
    if g.p_value <= _SUGGESTIVE and g.slope * g.span > q.page and g.still:
        return Leak.INCONCLUSIVE
    if facts.quantised and g.down == 0 and g.up >= 2 and float(np.ptp(facts.used.low)) > q.page:
        return Leak.INCONCLUSIVE
    return Leak.INCONCLUSIVE if _stairs_open(facts) or endless_rise(facts) else Leak.NO_LEAK


def _stairs_open(facts: Examined) -> bool:
    """Pools that jumped late, that keep their pace, or a staircase with more than one late jump, may not be done."""
    ups = [j for j in facts.late_jumps if j.size > 0]
    if not ups:
        return False
    start, end = float(facts.used.first_x[0]), float(facts.used.last_x[-1])
    recent = ups[-1].x > end - (end - start) / 4 and len(ups) >= 2
    return recent or keeps_pace(ups, end) or (facts.staircase is not None and facts.staircase.late > 1)


def _quiet_why(facts: Examined, verdict: Leak, shape: Shape, s: _Slopes) -> str:
    q, g = facts.question, facts.growth
    assert g is not None
    assert s.detectable is not None
    parts = []
    ups = [j for j in facts.late_jumps if j.size > 0]
    if ups:
        sizes = ", ".join(amount(j.size, q) for j in ups[:4])
        parts.append(f"{len(ups)} upward {'jump' if len(ups) == 1 else 'jumps'} ({sizes}), not counted as slope")
    elif endless_rise(facts):
        parts.append(f"it rose by {amount(endless_rise(facts), q)} in the last half, ever more slowly")
    elif shape is Shape.WARM_UP and not g.still:
        parts.append(f"it grew by {amount(g.slope * g.span, q)}, but no longer does in the last half")
    elif shape is Shape.WARM_UP:
        parts.append(f"it rose by {amount(facts.grown, q)} while warming up")
    if facts.quantised and g.up + g.down > 0 and g.up < PROOF_MOVES:
        parts.append(f"{g.up} moves up and {g.down} down, where {PROOF_MOVES} up and none down would prove growth")
    elif g.up + g.down == 0:
        parts.append("it did not move after the warm-up")
    else:
        parts.append(f"slope {_interval(s, facts)}")
    parts.append(f"smallest detectable {rate(s.detectable, facts)}")
    if verdict is Leak.INCONCLUSIVE:
        need = _needed_span(facts, s)
        if need is not None and need > s.span:
            parts.append(f"would need {span_text(need, q)}")
    return "; ".join(parts)


def _interval(s: _Slopes, facts: Examined) -> str:
    if s.low is None or s.high is None:
        return "unknown"
    return f"98 % interval {rate(s.low, facts)} to {rate(s.high, facts)}"


def _needed_span(facts: Examined, s: _Slopes) -> float | None:
    """How much ``x`` it takes to detect the limit, or without one the slope found. The error of a slope falls with
    the 1.5th power of the span."""
    q = facts.question
    target: float | None = q.limit / facts.per_factor if q.limit else s.slope
    if s.detectable is None or target is None or target <= 0 or s.span <= 0:
        return None
    by_noise = s.span * float((s.detectable / target) ** (2 / 3))
    skipped = float(facts.used.first_x[0] - facts.main.first_x[0]) if len(facts.used) else 0.0
    need = max(by_noise, PROOF_MOVES * q.page / target) + skipped
    return need if need < _HOPELESS * (s.span + skipped) else None


def _within_cap(facts: Examined, answer: _Answer, s: _Slopes) -> _Answer:
    cap = facts.question.cap
    if cap is None or answer.verdict is not Leak.LEAK:
        return answer
    left = cap - facts.grown
    if left <= 0:
        return replace(answer, why=f"{answer.why}; it is {amount(-left, facts.question)} past its declared cap")
    when = ""
    if s.slope is not None and s.slope > 0:
        when = f", which it would reach in {span_text(left / s.slope, facts.question)} more"
    why = f"{answer.why}; but {amount(facts.grown, facts.question)} is inside the declared cap of "
    return replace(answer, verdict=Leak.INCONCLUSIVE, why=f"{why}{amount(cap, facts.question)}{when}")


def _with_restart(facts: Examined, answer: _Answer) -> _Answer:
    lives = len(facts.lives.spans)
    what = "the process died: it fell to near nothing" if facts.lives.died else f"{lives} lifetimes, cut at each start"
    verdict = answer.verdict
    if facts.lives.died and verdict is Leak.INCONCLUSIVE and facts.growth is None:
        verdict = Leak.NO_LEAK
    why = f"{what}; in the longest lifetime {answer.why}"
    return replace(answer, shape=Shape.RESTART, why=why, verdict=verdict)


def _judgement(facts: Examined, answer: _Answer, s: _Slopes) -> SeriesJudgement:
    q, f = facts.question, facts.per_factor
    last = float(facts.blocks.last[-1]) if len(facts.blocks) else None
    headroom = q.total - last if q.total is not None and last is not None else None
    growing = answer.verdict is not Leak.NO_LEAK and s.slope is not None and s.slope > 0
    slope = s.slope if growing else None
    cap_left = q.cap - facts.grown if q.cap is not None else None

    def scaled(value: float | None) -> float | None:
        return None if value is None else value * f

    per_hour = q.total and s.slope is not None and q.per == "hour"
    return SeriesJudgement(
        verdict=answer.verdict,
        shape=answer.shape,
        per=q.per,
        why=answer.why,
        points=facts.points,
        used_points=answer.used,
        slope=scaled(s.slope),
        slope_low=scaled(s.low),
        slope_high=scaled(s.high),
        slope_now=scaled(s.now),
        percent_per_hour=100.0 * s.slope * f / q.total if per_hour and q.total and s.slope is not None else None,
        smallest_detectable=scaled(s.detectable),
        needed_span=_needed_span(facts, s) if answer.verdict is Leak.INCONCLUSIVE else None,
        headroom=headroom,
        time_to_exhaustion=max(headroom, 0.0) / slope / f if headroom is not None and slope else None,
        time_to_cap=cap_left / slope / f if cap_left is not None and slope and cap_left > 0 else None,
        name=q.name,
        unit=q.unit,
        evidence=evidence_of(facts),
    )
