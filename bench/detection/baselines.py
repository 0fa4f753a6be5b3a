"""What the usual methods say of a series: two points, OLS, Theil-Sen, Prometheus' deriv and predict_linear, and the
oracles pymannkendall, ruptures and statsmodels where they are installed. True is LEAK."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
from scipy.stats import linregress, theilslopes

from soakd.analysis.series import SeriesQuestion

Method = Callable[[SeriesQuestion], bool]
_SKIP_S = 600.0


def two_points(q: SeriesQuestion) -> bool:
    """The last reading is more than one page above the first."""
    return bool(q.y[-1] - q.y[0] > q.page)


def least_squares(q: SeriesQuestion) -> bool:
    """t-test of an ordinary regression after ten minutes, one-sided 1 %."""
    keep = q.x >= q.x[0] + min(_SKIP_S, (q.x[-1] - q.x[0]) / 4)
    if np.ptp(q.y[keep]) == 0:
        return False
    found = linregress(q.x[keep], q.y[keep])
    return bool(found.slope > 0 and found.pvalue / 2 < 0.01)


def theil_sen(q: SeriesQuestion) -> bool:
    """Lower end of a 98 % Theil-Sen interval on 30 s minima above zero."""
    minute = (q.x // 30).astype(int)
    starts = np.flatnonzero(np.diff(minute, prepend=-1))
    low = np.minimum.reduceat(q.y, starts)
    return bool(theilslopes(low, q.x[starts], 0.98)[2] > 0)


def prometheus_deriv(q: SeriesQuestion) -> bool:
    """``deriv(m[1h]) > 0`` at the end: a least-squares slope without any interval."""
    keep = q.x >= q.x[-1] - 3600
    return bool(np.polyfit(q.x[keep] - q.x[-1], q.y[keep], 1)[0] > 1e-9)


def predict_linear(q: SeriesQuestion) -> bool:
    """``predict_linear(m[1h], 24h) > total`` at the end."""
    keep = q.x >= q.x[-1] - 3600
    slope, level = np.polyfit(q.x[keep] - q.x[-1], q.y[keep], 1)
    return bool(q.total is not None and level + slope * 86400 > q.total)


def mann_kendall(q: SeriesQuestion) -> bool:
    """Hamed and Rao's modification of Mann-Kendall on 30 s minima (pymannkendall)."""
    import pymannkendall

    starts = np.flatnonzero(np.diff((q.x // 30).astype(int), prepend=-1))
    low = np.minimum.reduceat(q.y, starts)
    if np.ptp(low) == 0:
        return False
    found = pymannkendall.hamed_rao_modification_test(low, alpha=0.02)
    return bool(found.h and found.trend == "increasing")


def change_points(q: SeriesQuestion) -> bool:
    """Three or more upward changes of level by PELT on 30 s minima (ruptures)."""
    import ruptures

    starts = np.flatnonzero(np.diff((q.x // 30).astype(int), prepend=-1))
    low = np.minimum.reduceat(q.y, starts)
    noise = max(float(np.median(np.abs(np.diff(low)))), q.page)
    cuts = ruptures.Pelt(model="l2", min_size=4).fit(low).predict(pen=30 * noise**2 * np.log(len(low)))
    means = [low[a:z].mean() for a, z in zip([0, *cuts[:-1]], cuts, strict=True)]
    return int((np.diff(means) > q.page).sum()) >= 3


def autoregressive(q: SeriesQuestion) -> bool:
    """GLS with AR(1) errors on 30 s minima after ten minutes (statsmodels GLSAR), one-sided 1 %."""
    from statsmodels.regression.linear_model import GLSAR

    keep = q.x >= q.x[0] + min(_SKIP_S, (q.x[-1] - q.x[0]) / 4)
    x, y = q.x[keep], q.y[keep]
    starts = np.flatnonzero(np.diff((x // 30).astype(int), prepend=-1))
    low = np.minimum.reduceat(y, starts)
    if np.ptp(low) == 0:
        return False
    fit = GLSAR(low, np.column_stack([np.ones(len(starts)), x[starts] - x[0]]), 1).iterative_fit(8)
    return bool(fit.tvalues[1] > 2.33)


METHODS: dict[str, Method] = {
    "two points": two_points,
    "OLS t-test": least_squares,
    "Theil-Sen": theil_sen,
    "deriv > 0": prometheus_deriv,
    "predict 24h": predict_linear,
}
_ORACLES: dict[str, tuple[str, Method]] = {
    "Mann-Kendall": ("pymannkendall", mann_kendall),
    "PELT steps": ("ruptures", change_points),
    "GLSAR(1)": ("statsmodels", autoregressive),
}


def methods() -> dict[str, Method]:
    """The baselines, with the oracles that are installed."""
    return {**METHODS, **{name: m for name, (module, m) in _ORACLES.items() if find_spec(module)}}
