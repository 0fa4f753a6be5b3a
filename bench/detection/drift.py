"""Seeded temperature and latency series for the detection bench."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.signal import lfilter

from soakd.analysis.latency import LatencyQuestion
from soakd.analysis.series import Floats
from soakd.analysis.thermal import ThermalQuestion, lagged

HOURS = 2.0


def _ar(rng: np.random.Generator, n: int, sigma: float, rho: float) -> Floats:
    shocks = rng.standard_normal(n) * sigma * np.sqrt(1 - rho**2)
    shocks[0] = rng.standard_normal() * sigma
    return np.asarray(lfilter([1.0], [1.0, -rho], shocks), dtype=np.float64)


def heated(drift: float = 0.0, ramp_w: float = 0.0, inlet_c: float = 0.0, measured: bool = False) -> Callable[
    [np.random.Generator], ThermalQuestion
]:  # fmt: skip
    """A card under load: two thermal poles, whole degrees, power about 300 W with bursts; ``ramp_w`` over the run,
    ``drift`` in C/h, and an inlet that warms by ``inlet_c`` over the run (``measured`` or not)."""

    def make(rng: np.random.Generator) -> ThermalQuestion:
        x = np.arange(0.0, HOURS * 3600)
        share = x / x[-1]
        power = 300.0 + ramp_w * share + _ar(rng, len(x), 15.0, 0.95)
        power[:5] = 60.0
        inlet = 24.0 + inlet_c * share + _ar(rng, len(x), 0.1, 0.999)
        hot = inlet + 0.08 * lagged(x, power, 30.0) + 0.05 * lagged(x, power, 600.0)
        hot = hot + drift * x / 3600 + _ar(rng, len(x), 0.3, 0.98)
        return ThermalQuestion(x, np.round(hot), power, inlet=np.round(inlet, 1) if measured else None)

    return make


def windows(trend: float = 0.0, step: float = 1.0, minutes: int = 120) -> Callable[
    [np.random.Generator], LatencyQuestion
]:  # fmt: skip
    """A percentile of latency per 30 s window: 15 % noise with correlation 0.5, ``trend`` relative per hour, and a
    change to ``step`` times the level at 60 % of the run."""

    def make(rng: np.random.Generator) -> LatencyQuestion:
        x = np.arange(15.0, minutes * 60, 30.0)
        logs = np.log(0.8) + _ar(rng, len(x), 0.15, 0.5) + np.log1p(trend) * x / 3600
        logs[x > 0.6 * x[-1]] += np.log(step)
        return LatencyQuestion(x, np.exp(logs))

    return make
