"""Ratios of two counters of the server and their drift: accepted over drafted tokens, cache hits over queries.

A ratio of sums, not a mean of ratios: quiet minutes weigh little. Its spread allows for steps that are alike one after
the other, or long requests would make it look surer than it is.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from soakd.analysis.series import Floats
from soakd.counters import Increase

FEWEST_STEPS = 12
"""Steps with traffic that a quarter must have before it is compared."""
MATERIAL = 0.02
_STRONGEST_RHO = 0.97
_LEVEL = 0.99


class Drift(enum.Enum):
    FELL = "fell"
    ROSE = "rose"
    STEADY = "steady"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RatioQuestion:
    """Readings of both counters at the same times ``x`` (seconds, ascending); ``part`` counts among ``whole``."""

    x: Floats
    part: Floats
    whole: Floats
    name: str = "the ratio"


@dataclass(frozen=True, slots=True)
class RatioJudgement:
    """``ratio`` is of the whole span, ``early`` and ``late`` of its first and last quarter, ``change`` late less early.

    Intervals are of 98 %. None where there is nothing to tell it from; ``steps`` are those that had traffic.
    """

    drift: Drift
    steps: int
    why: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    early: float | None = None
    late: float | None = None
    change: float | None = None
    change_low: float | None = None
    change_high: float | None = None


@dataclass(frozen=True, slots=True)
class _Noise:
    """Long-run variance of one step's residual, and the degrees of freedom that it is known with."""

    variance: float
    degrees: float

    def reach(self, *quarters: tuple[Floats, Floats]) -> float:
        """Half the width of the interval of a ratio, or of the difference of two; never below that of as many
        independent tokens."""
        total = 0.0
        for part, whole in quarters:
            tokens = float(whole.sum())
            shrunk = (float(part.sum()) + 1) / (tokens + 2)
            total += max(self.variance * len(part) / tokens**2, abs(shrunk * (1 - shrunk)) / tokens)
        return float(student.ppf(_LEVEL, self.degrees)) * float(total**0.5)


def judge_ratio(question: RatioQuestion) -> RatioJudgement:
    """The ratio and whether it moved by more than noise; a change of less than 2 percentage points is no drift.

    Raises ValueError where lengths differ. A counter that restarts goes on in a new epoch.
    """
    x, part, whole = _steps(question)
    n = len(x)
    if not n:
        return RatioJudgement(Drift.UNKNOWN, 0, f"{question.name}: the server counted nothing")
    ratio = float(part.sum() / whole.sum())
    begin, end = float(question.x[0]), float(question.x[-1])
    first, last = x <= begin + (end - begin) / 4, x > end - (end - begin) / 4
    if min(int(first.sum()), int(last.sum())) < FEWEST_STEPS:
        why = f"{question.name} is {ratio:.1%}; a quarter has fewer than {FEWEST_STEPS} readings with traffic"
        return RatioJudgement(Drift.UNKNOWN, n, f"{why}, so that its drift is not known", ratio)
    noise = _noise(part, whole)
    reach = noise.reach((part, whole))
    early, late = float(part[first].sum() / whole[first].sum()), float(part[last].sum() / whole[last].sum())
    change, wide = late - early, noise.reach((part[first], whole[first]), (part[last], whole[last]))
    drift = Drift.STEADY
    if abs(change) >= MATERIAL and abs(change) > wide:
        drift = Drift.FELL if change < 0 else Drift.ROSE
    low, high = max(0.0, ratio - reach), min(1.0, ratio + reach)
    why = (
        f"{question.name} is {ratio:.1%} (98 % interval {low:.1%} to {high:.1%}); "
        f"first quarter {early:.1%}, last quarter {late:.1%}: {100 * change:+.1f} points "
        f"(98 % interval {100 * (change - wide):+.1f} to {100 * (change + wide):+.1f})"
    )
    return RatioJudgement(drift, n, why, ratio, low, high, early, late, change, change - wide, change + wide)


def _steps(question: RatioQuestion) -> tuple[Floats, Floats, Floats]:
    """Ends and increases of the steps between readings, those without traffic left out."""
    if not len(question.x) == len(question.part) == len(question.whole):
        raise ValueError("times and readings differ in length")
    part, whole = Increase(), Increase()
    gained = [(part.add(float(p)), whole.add(float(w))) for p, w in zip(question.part, question.whole, strict=True)]
    pairs = np.asarray(gained, dtype=np.float64).reshape(-1, 2)
    busy = pairs[:, 1] > 0
    return question.x[busy], pairs[busy, 0], pairs[busy, 1]


def _noise(part: Floats, whole: Floats) -> _Noise:
    """From the residuals about a ratio that moves evenly, as a first-order autoregression with its bias corrected."""
    n = len(part)
    even = np.linspace(-1.0, 1.0, n)
    weight = np.sqrt(whole)[:, None]
    design = np.column_stack([whole, whole * even])
    fitted, *_ = np.linalg.lstsq(design / weight, part / weight[:, 0], rcond=None)
    residual = part - design @ fitted
    # of the ratios, not of the sums: busy and quiet steps would hide that neighbours are alike
    each = residual / whole
    rho = float(np.corrcoef(each[1:], each[:-1])[0, 1]) if np.ptp(each[1:]) > 0 and np.ptp(each[:-1]) > 0 else 0.0
    rho = min(max(rho + (3 + 4 * rho) / n, 0.0), _STRONGEST_RHO)
    inflation = (1 + rho) / (1 - rho)
    variance = float(np.var(residual)) * n / max(n - 2, 1) * inflation
    return _Noise(variance, max(n / inflation - 2, 2.0))
