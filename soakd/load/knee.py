"""When a step of a sweep has settled, how sure its P95 is, and where P95 leaves its plateau. Pure functions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from soakd.load.histogram import Histogram

_Q = 0.95
_CONFIDENCE = 0.95
_DRAWS = 400
_RISE = 0.25
_STEEP = 0.6
_STEP = 0.45
_RATE_RISES = 1.15
_SMALLEST_TREND_SAMPLE = 8
_SIGNIFICANT = 0.05
FEWEST_FOR_P95 = 72
"""Below 72 requests the upper end of a 95 % interval of P95 lies beyond the largest value seen."""


@dataclass(frozen=True, slots=True)
class Interval:
    """P95 in seconds with its 95 % interval. ``high`` is None where there are too few requests for one;
    ``effective`` is the number of independent requests that they are worth."""

    value: float
    low: float
    high: float | None
    count: int
    effective: int

    @property
    def relative_width(self) -> float | None:
        return None if self.high is None or self.value <= 0 else (self.high - self.low) / self.value


def p95_interval(windows: Sequence[Histogram]) -> Interval | None:
    """P95 over all windows by order statistics; None when nothing was recorded.

    Latencies that lie close in time are alike, which makes plain intervals too narrow: how much the share above P95
    varies between windows, beyond chance, lowers the number of requests that count.
    """
    whole = Histogram.merged(windows)
    value = whole.quantile_s(_Q)
    if value is None:
        return None
    filled = [w for w in windows if w.count]
    effective = max(1, int(whole.count / _overdispersion(filled, int(value * 1e9))))
    tail = (1 - _CONFIDENCE) / 2
    low = stats.binom.ppf(tail, effective, _Q) / effective
    high = (stats.binom.ppf(1 - tail, effective, _Q) + 1) / effective
    bounded = effective >= FEWEST_FOR_P95 and high <= 1
    return Interval(
        value,
        whole.quantile_s(max(low, 0.0)) or 0.0,
        whole.quantile_s(high) if bounded else None,
        whole.count,
        effective,
    )


def _overdispersion(windows: Sequence[Histogram], edge_ns: int) -> float:
    """The variance of exceedances between windows over that of independent requests; 1 at least."""
    if len(windows) < 4:
        return 1.0
    counts = np.array([w.count for w in windows], dtype=float)
    above = np.array([w.share_above(edge_ns) * w.count for w in windows])
    share = above.sum() / counts.sum()
    if not 0 < share < 1:
        return 1.0
    chi = float(((above - counts * share) ** 2 / (counts * share * (1 - share))).sum())
    return min(max(1.0, chi / (len(windows) - 1)), float(counts.sum()) / 2)


def steady_from(series: Sequence[Sequence[float]], tolerance: float = 0.1, fewest: int = 5) -> int | None:
    """The first window from which every series (rate, latency, ...) is level to its end; None while there is none.

    Level means that the trend over what is left moves it by ``tolerance`` of its median at most, or that there is
    no trend that a rank test would find, and that it begins near its median. Needs ``fewest`` windows and a third of
    all: the end of a long rise looks level.
    """
    length = min((len(s) for s in series), default=0)
    for start in range(min(length - fewest, length * 2 // 3) + 1):
        if all(_level(s[start:length], tolerance) for s in series):
            return start
    return None


def _level(values: Sequence[float], tolerance: float) -> bool:
    middle = float(np.median(values))
    if middle <= 0:
        return all(v == 0 for v in values)
    spread = 1.4826 * float(np.median(np.abs(np.array(values) - middle)))
    if abs(values[0] - middle) > max(tolerance * middle, 3 * spread):
        return False
    x = np.arange(len(values), dtype=float)
    slope = float(stats.theilslopes(values, x).slope)
    if abs(slope) * (len(values) - 1) <= tolerance * middle:
        return True
    if len(values) < _SMALLEST_TREND_SAMPLE:
        return False
    return float(stats.kendalltau(x, values).pvalue) > _SIGNIFICANT


@dataclass(frozen=True, slots=True)
class Level:
    """One step as the knee sees it. ``settled`` is False where the latency never became steady (a queue that grows);
    ``rate_per_s`` is what was completed, None when not known."""

    level: float
    p95: Interval | None
    settled: bool = True
    rate_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Knee:
    """``level`` is the highest load whose P95 is still on the plateau; None when P95 never leaves it (``low`` is then
    the highest load tried) or when there is no plateau. ``low`` and ``high`` are a 95 % interval; ``high`` is None
    where it reaches beyond the loads tried.
    """

    level: float | None
    low: float | None
    high: float | None
    plateau_p95_s: float | None
    p95_s: float | None
    next_level: float | None
    next_p95_s: float | None
    why: str


def find_knee(levels: Sequence[Level]) -> Knee:
    """The last load on the plateau: from it on, P95 grows with the load at least as the load to the power of 0.6, to
    the end of what was tried, and by a quarter in all. (When a server is full, P95 grows as the load itself.)

    A single jump to a higher plateau counts too, the largest from which P95 does not come back. The interval comes
    from drawing each P95 again within its own interval (fixed seed, 400 draws), and ends at the next load tried.
    """
    ordered = sorted((v for v in levels if v.p95 is not None or not v.settled), key=lambda v: v.level)
    values = [math.inf if v.p95 is None or not v.settled else v.p95.value for v in ordered]
    if len(ordered) < 3 or math.isinf(values[0]):
        return Knee(None, None, None, None, None, None, None, "fewer than three loads could be judged")
    loads = [v.level for v in ordered]
    at = _last_on_plateau(loads, values)
    drawn = [_last_on_plateau(loads, row) for row in _draws(ordered, values)]
    first, final = (int(np.quantile(drawn, q, method="nearest")) for q in (0.025, 0.975))
    low, high = loads[first], loads[final + 1] if final + 1 < len(loads) else None
    plateau = float(np.median(values[: at + 1]))
    if at == len(ordered) - 1:
        why = f"P95 has not left its plateau of {plateau * 1e3:.0f} ms at {ordered[at].level:g}, the highest load tried"
        return Knee(None, low, None, plateau, values[at], None, None, why)
    after = values[at + 1]
    rises = "latency that never settles" if math.isinf(after) else f"{after * 1e3:.0f} ms at {ordered[at + 1].level:g}"
    why = f"P95 goes from {values[at] * 1e3:.0f} ms at {ordered[at].level:g} to {rises}"
    return Knee(ordered[at].level, low, high, plateau, values[at], ordered[at + 1].level,
                None if math.isinf(after) else after, why)  # fmt: skip


def _last_on_plateau(loads: Sequence[float], values: Sequence[float]) -> int:
    """An index; the last one when P95 never leaves its plateau."""
    last = len(values) - 1
    for at in range(last):
        if values[last] < values[at] * (1 + _RISE):
            continue
        if all(_growth(loads, values, at, j) >= _STEEP for j in range(at + 1, last + 1)):
            return at
    jumps = [
        (values[at + 1] / values[at], at)
        for at in range(last)
        if all(v >= values[at] * (1 + _RISE) for v in values[at + 1 :]) and _growth(loads, values, at, at + 1) >= _STEP
    ]
    return max(jumps)[1] if jumps else last


def _growth(loads: Sequence[float], values: Sequence[float], low: int, high: int) -> float:
    """The power of the load with which P95 grows between two loads."""
    if math.isinf(values[high]):
        return math.inf
    return math.log(values[high] / values[low]) / math.log(loads[high] / loads[low])


def _draws(levels: Sequence[Level], values: Sequence[float]) -> list[list[float]]:
    """P95 of each load drawn again: log-normal, as wide as its interval."""
    source = np.random.default_rng(1)
    spread = np.array([_log_sigma(v.p95) for v in levels])
    drawn: list[list[float]] = (np.array(values) * np.exp(source.normal(size=(_DRAWS, len(levels))) * spread)).tolist()
    return drawn


def _log_sigma(p95: Interval | None) -> float:
    if p95 is None or p95.low <= 0:
        return 0.0
    high = p95.high if p95.high is not None else p95.value * (p95.value / p95.low)
    return max(math.log(max(high, p95.value) / p95.low), 0.0) / 3.92


def next_load(
    tried: Sequence[Level], first: float, last: float, *, whole: bool, knee: Knee, resolution: float = 0.1
) -> float | None:
    """The load to try next: doubling from ``first`` to ``last`` until P95 has left its plateau at two loads and the
    server completes no more for it, then halving the gaps on both sides of the knee down to ``resolution`` of it.

    None when nothing is left to learn.
    """
    loads = sorted(v.level for v in tried)
    if not loads:
        return first
    after = [v for v in loads if knee.level is not None and v > knee.level]
    if loads[-1] < last and (len(after) < 2 or _still_rising(tried)):
        return min(loads[-1] * 2, last)
    if len(loads) < 3:
        return widest_middle(list(itertools.pairwise(loads)), whole, 0.0)
    if knee.level is None:
        return None
    at = loads.index(knee.level)
    around = list(itertools.pairwise(loads[max(0, at - 1) : at + 2]))
    return widest_middle(around, whole, knee.level * resolution)


def _still_rising(tried: Sequence[Level]) -> bool:
    """Whether the highest load still completes clearly more than the one below."""
    below, top = sorted(tried, key=lambda v: v.level)[-2:]
    if not top.settled or top.rate_per_s is None or below.rate_per_s is None:
        return False
    return top.rate_per_s > below.rate_per_s * _RATE_RISES


def widest_middle(gaps: Sequence[tuple[float, float]], whole: bool, smallest: float) -> float | None:
    """The middle of the widest gap that is wider than ``smallest``."""
    edge = max(1.0 if whole else 0.0, smallest) * (1 + 1e-9)
    wide = [(high - low, low, high) for low, high in gaps if high - low > edge]
    if not wide:
        return None
    _, low, high = max(wide)
    return float(math.floor((low + high) / 2)) if whole else (low + high) / 2
