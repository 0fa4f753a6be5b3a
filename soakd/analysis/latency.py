"""Latency and throughput over a run of constant load: trend, change points, what else happened then, retention."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.signal import medfilt
from scipy.stats import kstwobign
from scipy.stats import t as student

from soakd.analysis.blocks import clean
from soakd.analysis.critical import critical_value
from soakd.analysis.series import Floats
from soakd.analysis.slope import fit_trend
from soakd.model import Event
from soakd.quantities import format_duration

FEWEST_WINDOWS = 12
_SHORTEST = 4
"""Windows that a level must last to be one."""

_CHANGE_P = 0.001
_MATERIAL = 0.05
_SETTLED = 0.3
"""A change over the run that would have been found: below it, finding none means steady."""

_STRONGEST_RHO = 0.95
_AFTER_S = 15.0


_LONGEST_SAID = 160
_NO_CAUSES = (
    "server.log_tail", "server.process", "server.metrics", "host.boot", "growth.", "collector.", "journal.",
    "gpu.found", "gpu.acquired", "gpu.released", "gpu.none",
)  # fmt: skip
_NAMES: Mapping[str, str] = {
    "server.restart": "the restart",
    "server.exit": "the end of the server's process",
    "server.worker_exit": "the end of one of the server's processes",
    "load.outage": "the start of the outage",
    "load.first_success": "the first answer after the outage",
    "load.recovered": "the recovery",
    "drill.started": "the start of the drill",
    "drill.ended": "the end of the drill",
    "host.reboot": "the host's restart",
    "clock.step": "the step of the clock",
    "gpu.lost": "the loss of a card",
}


class Trend(enum.Enum):
    WORSE = "worse"
    BETTER = "better"
    STEADY = "steady"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class LatencyQuestion:
    """A measure per window: ``x`` the windows' middles in seconds, ``y`` the measure (seconds, tokens/s).

    ``load`` is the load of each window (rate or concurrency), so that a change of load is not taken for one of the
    server; ``more_is_worse`` is False for throughput.
    """

    x: Floats
    y: Floats
    name: str = "e2e_p95"
    unit: str = "s"
    load: Floats | None = None
    more_is_worse: bool = True


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """The level changed at ``x`` (seconds) from ``before`` to ``after``; ``ratio`` is after / before."""

    x: float
    before: float
    after: float
    ratio: float
    p_value: float


@dataclass(frozen=True, slots=True)
class LatencyJudgement:
    """``slope`` is relative per hour (0.1: +10 % of the mean level an hour), with a 98 % interval."""

    trend: Trend
    why: str
    slope: float | None
    slope_low: float | None
    slope_high: float | None
    smallest_detectable: float | None
    changes: tuple[ChangePoint, ...]
    points: int
    name: str


@dataclass(frozen=True, slots=True)
class Coincidence:
    """A change point and the events near it, nearest first; ``what`` is a sentence such as 'e2e_p95 doubled 40 s after
    the restart'."""

    change: ChangePoint
    events: tuple[Event, ...]
    what: str


@dataclass(frozen=True, slots=True)
class Retention:
    """Rate at the end over rate at the start, over disjoint windows; None where there are too few."""

    first: float | None
    last: float | None
    ratio: float | None
    low: float | None
    high: float | None
    windows: int
    why: str


def judge_latency(question: LatencyQuestion) -> LatencyJudgement:
    """Trend within the stretches between change points, and the change points. Raises ValueError where lengths differ.

    Works on logarithms, since latencies scale: a slope is relative, a change a ratio. Windows that are not above zero
    are left out.
    """
    x, y, load = _usable(question)
    n = len(y)
    if n < FEWEST_WINDOWS:
        why = f"{n} windows; it takes at least {FEWEST_WINDOWS}"
        return LatencyJudgement(Trend.INCONCLUSIVE, why, None, None, None, None, (), n, question.name)
    logs = _clipped(np.log(y))
    columns = [] if load is None or not np.ptp(load) else [np.log(load) if np.all(load > 0) else load]
    base = logs - _load_effect(x, logs, columns)
    cuts = _change_indices(base)
    if cuts and _is_ramp(x, base, cuts):
        cuts = []
    steps = [(np.arange(n) >= c).astype(np.float64) for c in cuts]
    fixed = np.column_stack([*steps, *columns]) if steps or columns else None
    fit = fit_trend(x, logs, fixed)
    critical = critical_value(0.01, fit.length, n, plain=False)
    slope, reach = fit.slope * 3600.0, critical * fit.sd * 3600.0
    detectable = reach + 2.33 * fit.sd * 3600.0
    hours = float(x[-1] - x[0]) / 3600.0
    trend = _trend(slope, reach, detectable, hours, question.more_is_worse)
    changes = tuple(_change(x, y, cuts, i, base) for i in range(len(cuts)))
    why = (
        f"{question.name} moves by {100 * slope:+.2g} % an hour (98 % interval {100 * (slope - reach):+.2g} to "
        f"{100 * (slope + reach):+.2g}; smallest detectable {100 * detectable:.2g})"
    )
    if changes:
        why += f" between {len(changes)} change {'point' if len(changes) == 1 else 'points'}"
    return LatencyJudgement(
        trend, why, slope, slope - reach, slope + reach, detectable, changes, n, question.name
    )  # fmt: skip


def _usable(question: LatencyQuestion) -> tuple[Floats, Floats, Floats | None]:
    x, y, load = clean(question.x, question.y, question.load)
    good = y > 0
    return x[good], y[good], None if load is None else load[good]


def _clipped(logs: Floats) -> Floats:
    """A single window far out (a stall, a retry) must not make a change point."""
    smooth = medfilt(logs, 5) if len(logs) >= 5 else logs
    off = logs - smooth
    reach = 5 * max(1.4826 * float(np.median(np.abs(off))), 1e-6)
    return smooth + np.clip(off, -reach, reach)


def _load_effect(x: Floats, logs: Floats, columns: list[Floats]) -> Floats:
    if not columns:
        return np.zeros_like(logs)
    fit = fit_trend(x, logs, np.column_stack(columns))
    return sum((e * c for e, c in zip(fit.effects, columns, strict=True)), np.zeros_like(logs))


def _long_run_deviation(residual: Floats) -> float:
    """Standard deviation of a sum over sqrt(n), for AR(1) residuals (rho corrected for the fitted means)."""
    n = len(residual)
    spread = float(np.std(residual))
    if spread == 0 or n < 4:
        return max(spread, 1e-6)
    rho = float(np.corrcoef(residual[1:], residual[:-1])[0, 1]) if np.ptp(residual[1:]) and np.ptp(residual[:-1]) else 0
    rho = min(max(rho + (1 + 3 * rho) / n, 0.0), _STRONGEST_RHO)
    return max(spread * float(np.sqrt((1 + rho) / (1 - rho))), 1e-6)


def _split(part: Floats) -> tuple[int, float]:
    """The likeliest change in ``part`` and its p-value (supremum of a Brownian bridge)."""
    n = len(part)
    k = np.arange(_SHORTEST, n - _SHORTEST + 1)
    sums = np.cumsum(part)
    gap = sums[k - 1] / k - (sums[-1] - sums[k - 1]) / (n - k)
    best = int(k[np.argmax(np.abs(gap) * np.sqrt(k * (n - k) / n))])
    residual = np.concatenate([part[:best] - part[:best].mean(), part[best:] - part[best:].mean()])
    bridge = np.abs(sums - np.arange(1, n + 1) / n * sums[-1]).max() / (np.sqrt(n) * _long_run_deviation(residual))
    return best, float(kstwobign.sf(bridge))


def _change_indices(logs: Floats, start: int = 0) -> list[int]:
    """Binary segmentation; a change must be unlikely (p <= 0.001) and material (5 %)."""
    n = len(logs)
    if n < 2 * _SHORTEST:
        return []
    at, p = _split(logs)
    size = float(np.median(logs[at:]) - np.median(logs[:at]))
    if p > _CHANGE_P or abs(size) < np.log(1 + _MATERIAL):
        return []
    return [*_change_indices(logs[:at], start), start + at, *_change_indices(logs[at:], start + at)]


def _is_ramp(x: Floats, logs: Floats, cuts: list[int]) -> bool:
    """Whether a straight line explains the windows better than that many steps (BIC)."""
    n = len(logs)
    line = np.polyval(np.polyfit(x - x[0], logs, 1), x - x[0])
    bounds = [0, *cuts, n]
    steps = np.concatenate([np.full(z - a, logs[a:z].mean()) for a, z in pairwise(bounds)])
    by_line = n * np.log(max(float(np.mean((logs - line) ** 2)), 1e-12)) + 2 * np.log(n)
    by_steps = n * np.log(max(float(np.mean((logs - steps) ** 2)), 1e-12)) + (1 + 2 * len(cuts)) * np.log(n)
    return bool(by_line < by_steps)


def _change(x: Floats, y: Floats, cuts: list[int], i: int, base: Floats) -> ChangePoint:
    bounds = [0, *cuts, len(y)]
    a, at, z = bounds[i], bounds[i + 1], bounds[i + 2]
    before, after = float(np.median(y[a:at])), float(np.median(y[at:z]))
    return ChangePoint(float(x[at - 1] + x[at]) / 2, before, after, after / before, _split(base[a:z])[1])


def _trend(slope: float, reach: float, detectable: float, hours: float, more_is_worse: bool) -> Trend:
    signed = slope if more_is_worse else -slope
    if signed - reach > 0 and signed * hours > _MATERIAL / 2:
        return Trend.WORSE
    if signed + reach < 0 and -signed * hours > _MATERIAL / 2:
        return Trend.BETTER
    settled = detectable * hours <= _SETTLED or abs(slope) + reach <= 2 * _MATERIAL / max(hours, 1.0)
    return Trend.STEADY if settled else Trend.INCONCLUSIVE


def coincidences(
    judgement: LatencyJudgement, events: Sequence[Event], origin_ns: int, within_s: float = 120.0
) -> tuple[Coincidence, ...]:
    """Events within ``within_s`` seconds before each change point (or 15 s after); ``origin_ns`` is x = 0. What only
    tells of soakd's own doings, or quotes a log, is no cause."""
    found = []
    for change in judgement.changes:
        offsets = [((e.at_ns - origin_ns) / 1e9 - change.x, e) for e in events if not e.kind.startswith(_NO_CAUSES)]
        near = sorted(((o, e) for o, e in offsets if -within_s <= o <= _AFTER_S), key=lambda p: abs(p[0]))
        moved = f"{judgement.name} {_ratio_words(change.ratio)} ({change.before:.4g} to {change.after:.4g})"
        if near:
            offset, event = near[0]
            when = f"{format_duration(abs(offset))} {'after' if offset <= 0 else 'before'} {_named(event)}"
        else:
            when = f"at {format_duration(max(change.x, 0.0))}; no event is known near it"
        found.append(Coincidence(change, tuple(e for _, e in near), f"{moved} {when}"))
    return tuple(found)


def _named(event: Event) -> str:
    """``the restart (the server runs again as process 7)``: a name that goes into a sentence, then what was said."""
    said = " ".join(event.what.split())[:_LONGEST_SAID]
    name = _NAMES.get(event.kind)
    if name is None:
        return said or event.kind
    return f"{name} ({said})" if said and said != event.kind else name


def _ratio_words(ratio: float) -> str:
    if 1.9 <= ratio <= 2.1:
        return "doubled"
    if 0.475 <= ratio <= 0.525:
        return "halved"
    if ratio > 2.1:
        return f"rose {ratio:.2g}-fold"
    return f"{'rose' if ratio > 1 else 'fell'} by {100 * abs(ratio - 1):.2g} %"


def decode_retention(x: Floats, rate: Floats, kinds: Sequence[str] | None = None) -> Retention:
    """Decode rate of the last quarter over that of the first, comparing turns of the same kind only.

    The interval (98 %) is of the mean log ratio over kinds; ``first`` and ``last`` are medians of what was compared.
    """
    labels = np.asarray(kinds if kinds is not None else [""] * len(x))
    good = np.isfinite(x) & np.isfinite(rate) & (rate > 0)
    order = np.argsort(x[good], kind="stable")
    rates, labels = rate[good][order], labels[good][order]
    n = len(rates)
    quarter = n // 4
    if quarter < 2:
        return Retention(None, None, None, None, None, n, f"{n} windows; two disjoint quarters need 8")
    early, late = slice(0, quarter), slice(n - quarter, n)
    gaps, variances, weights = [], [], []
    first, last = [], []
    for kind in np.unique(labels):
        a = np.log(rates[early][labels[early] == kind])
        z = np.log(rates[late][labels[late] == kind])
        if len(a) and len(z):
            gaps.append(float(np.mean(z) - np.mean(a)))
            variances.append(_mean_variance(a) + _mean_variance(z))
            weights.append(min(len(a), len(z)))
            first.extend(np.exp(a))
            last.extend(np.exp(z))
    if not gaps:
        why = "no kind of turn is in both the first and the last quarter"
        return Retention(None, None, None, None, None, n, why)
    w = np.array(weights) / sum(weights)
    centre = float(w @ np.array(gaps))
    error = float(np.sqrt((w**2) @ np.array(variances)))
    reach = float(student.ppf(0.99, max(2 * quarter - 2, 1))) * error
    ratio, low, high = (float(np.exp(v)) for v in (centre, centre - reach, centre + reach))
    interval = f"98 % interval {100 * low:.3g} to {100 * high:.3g}"
    why = f"the last quarter ran at {100 * ratio:.3g} % of the first quarter's rate ({interval})"
    return Retention(float(np.median(first)), float(np.median(last)), ratio, low, high, n, why)


def _mean_variance(logs: Floats) -> float:
    """Variance of a mean of correlated windows; that of one window alone is unknown and taken as its spread's."""
    if len(logs) < 2:
        return 0.01
    return _long_run_deviation(logs - logs.mean()) ** 2 / (len(logs) - 1)
