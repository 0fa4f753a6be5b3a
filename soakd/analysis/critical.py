"""Tail of slope / sd under no trend, from a Monte Carlo table on the number of readings and their persistence."""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr, ndtri

from soakd.analysis import critical_table as table


def persistence(rho: float, points: int) -> float:
    """Correlation length over the number of readings, for a lag-1 correlation ``rho``: 0 is white noise."""
    if rho <= 0.0:
        return 0.0
    if rho >= 1.0:
        return np.inf
    return float(-1.0 / np.log(rho) / points)


def _row(rho: float, points: int) -> tuple[float, ...]:
    """Critical values at the tabulated tails, interpolated on log(points); the nearest bin of persistence."""
    b = int(np.searchsorted(table.EDGES, persistence(rho, points), side="right"))
    sizes = np.log(table.SIZES)
    where = float(np.log(max(points, 1)))
    return tuple(
        float(np.interp(where, sizes, [values[b][j] for values in table.VALUES])) for j in range(len(table.TAILS))
    )


def critical_value(alpha: float, rho: float, points: int, *, plain: bool = True) -> float:
    """The ratio that no-trend series exceed with chance ``alpha`` (one-sided). Between and beyond the tabulated tails
    it is linear in log(alpha): heavier than a normal tail, as short series need. The table is for ``plain`` series:
    where a warm-up is certain, or steps or a load were fitted, the averaging that widens the standard deviation in the
    table no longer does, and the value is never less than the normal one."""
    row = _row(rho, points)
    logs = [-np.log(a) for a in table.TAILS]
    want = -np.log(alpha)
    i = 0 if want < logs[1] else 1
    step = (row[i + 1] - row[i]) / (logs[i + 1] - logs[i])
    by_table = float(row[i] + step * (want - logs[i]))
    return by_table if plain else max(by_table, -float(ndtri(alpha)))


def tail_probability(ratio: float, rho: float, points: int, *, plain: bool = True) -> float:
    """The one-sided p-value of ``ratio``: the inverse of ``critical_value``, 0.5 at a ratio of 0."""
    if not np.isfinite(ratio):
        return 0.0 if ratio > 0 else 1.0
    if ratio < 0:
        return 1.0 - tail_probability(-ratio, rho, points, plain=plain)
    row = _row(rho, points)
    logs = [float(-np.log(a)) for a in table.TAILS]
    knots, values = [0.0, *row], [float(-np.log(0.5)), *logs]
    i = min(int(np.searchsorted(knots, ratio, side="right")), len(knots) - 1)
    step = (values[i] - values[i - 1]) / max(knots[i] - knots[i - 1], 1e-9)
    by_table = -(values[i - 1] + step * (ratio - knots[i - 1]))
    return float(np.exp(by_table if plain else max(by_table, log_ndtr(-ratio))))
