"""Tail of slope / sd under no trend, from a Monte Carlo table on the number of readings and their persistence.

Persistence is the correlation length over the number of readings: near 0 for short memory, 1 for a random walk.
"""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr, ndtri, ndtri_exp

from soakd.analysis import critical_table as table

_CHOSEN = 1.1


def _row(length: float, points: int) -> tuple[float, ...]:
    """Critical values at the tabulated tails, interpolated on log(points); the bin of persistence it falls in."""
    b = int(np.searchsorted(table.EDGES, length / max(points, 1), side="right"))
    sizes = np.log(table.SIZES)
    where = float(np.log(max(points, 1)))
    return tuple(
        float(np.interp(where, sizes, [values[b][j] for values in table.VALUES])) for j in range(len(table.TAILS))
    )


def critical_value(alpha: float, length: float, points: int, *, plain: bool = True) -> float:
    """The ratio that no-trend series exceed with chance ``alpha`` (one-sided).

    Between and beyond the tabulated tails it is linear in log(alpha), and beyond them at least in proportion to the
    normal value. The table is for ``plain`` series: where a warm-up is certain, or steps or a load were fitted, the
    averaging that widens the standard deviation in the table no longer does, and the value is never less than 1.1 times
    the normal one (the time constant and the place of a step were chosen from the same readings).
    """
    row = _row(length, points)
    logs = [-np.log(a) for a in table.TAILS]
    want = -np.log(alpha)
    i = 0 if want < logs[1] else 1
    step = (row[i + 1] - row[i]) / (logs[i + 1] - logs[i])
    value = float(row[i] + step * (want - logs[i]))
    normal = -float(ndtri(alpha))
    if alpha < table.TAILS[-1]:
        value = max(value, row[-1] * normal / -float(ndtri(table.TAILS[-1])))
    return value if plain else max(value, _CHOSEN * normal)


def tail_probability(ratio: float, length: float, points: int, *, plain: bool = True) -> float:
    """The one-sided p-value of ``ratio``: the inverse of ``critical_value``, 0.5 at a ratio of 0."""
    if not np.isfinite(ratio):
        return 0.0 if ratio > 0 else 1.0
    if ratio < 0:
        return 1.0 - tail_probability(-ratio, length, points, plain=plain)
    row = _row(length, points)
    logs = [float(-np.log(a)) for a in table.TAILS]
    knots, values = [0.0, *row], [float(-np.log(0.5)), *logs]
    i = min(int(np.searchsorted(knots, ratio, side="right")), len(knots) - 1)
    step = (values[i] - values[i - 1]) / max(knots[i] - knots[i - 1], 1e-9)
    logp = -(values[i - 1] + step * (ratio - knots[i - 1]))
    if ratio > row[-1]:
        scaled = ratio * -float(ndtri(table.TAILS[-1])) / row[-1]
        logp = max(logp, float(log_ndtr(-scaled)))
    return float(np.exp(logp if plain else max(logp, float(log_ndtr(-ratio / _CHOSEN)))))


def normal_tail_at(alpha: float, share: float) -> float:
    """The level of a look at ``share`` (0 to 1) of the information, whose normal critical value is that of ``alpha``
    over sqrt(share) (O'Brien & Fleming). Exact for levels too small to subtract from 1."""
    return float(np.exp(log_ndtr(float(ndtri_exp(np.log(alpha))) / np.sqrt(share))))
