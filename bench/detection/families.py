"""Seeded families of memory series, in MiB: 2 h at 1 Hz unless said otherwise, quantised to NVML's 2 MiB pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.signal import lfilter

from soakd.analysis.series import Floats, SeriesQuestion, Shape

HOURS = 2.0
RATE = 1.0
BASE = 20000.0
TOTAL = 32 * 1024.0
PAGE = 2.0


@dataclass(frozen=True, slots=True)
class Noise:
    """AR(1) with standard deviation ``sigma`` (MiB) and correlation ``rho`` between seconds."""

    name: str
    sigma: float
    rho: float

    def draw(self, rng: np.random.Generator, n: int) -> Floats:
        shocks = rng.standard_normal(n)
        shocks *= self.sigma * np.sqrt(1 - self.rho**2)
        shocks[0] = rng.standard_normal() * self.sigma
        return np.asarray(lfilter([1.0], [1.0, -self.rho], shocks), dtype=np.float64)


AR1 = Noise("ar1", 1.0, 0.99)
AR4 = Noise("ar4", 4.0, 0.99)
AR16 = Noise("ar16", 16.0, 0.99)
EDGE = Noise("edge", 2.9, 0.99)
SLOW = Noise("rho .999", 4.0, 0.999)
QUIET = Noise("quiet", 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Made:
    """A series with what is true of it: growth in MiB/h, its shape, and when it began (s)."""

    question: SeriesQuestion
    slope: float
    shape: Shape


Maker = Callable[[np.random.Generator], Made]


def _time(hours: float = HOURS) -> Floats:
    return np.arange(0.0, hours * 3600.0, 1.0 / RATE)


def _made(t: Floats, y: Floats, slope: float, shape: Shape, load: Floats | None = None) -> Made:
    paged = PAGE * np.floor((BASE + y) / PAGE)
    return Made(SeriesQuestion(t, paged, page=PAGE, total=TOTAL, load=load, unit="MiB"), slope, shape)


def leaking(noise: Noise, percent_per_hour: float, hours: float = HOURS) -> Maker:
    """A linear leak of so many percent of the card an hour (0: a flat null)."""
    slope = percent_per_hour / 100 * TOTAL

    def make(rng: np.random.Generator) -> Made:
        t = _time(hours)
        y = noise.draw(rng, len(t)) + slope * t / 3600 + rng.uniform(0, PAGE)
        return _made(t, y, slope, Shape.LINEAR if slope else Shape.FLAT)

    return make


def walk(step: float) -> Maker:
    """A random walk of so many MiB from one second to the next: no leak, and no noise that averages out either."""

    def make(rng: np.random.Generator) -> Made:
        t = _time()
        return _made(t, np.cumsum(rng.standard_normal(len(t))) * step, 0.0, Shape.FLAT)

    return make


def one_sided(rng: np.random.Generator) -> Made:
    """A floor with bursts above it that last seconds to a minute."""
    t = _time()
    length = rng.exponential(20.0, size=600)
    height = rng.exponential(60.0, size=600) * (rng.random(600) < 0.5)
    y = np.repeat(height, np.maximum(length.astype(int), 1))
    y = np.resize(y, len(t))
    return _made(t, y + np.abs(AR1.draw(rng, len(t))), 0.0, Shape.FLAT)


def warm_up(noise: Noise, percent_per_hour: float = 0.0) -> Maker:
    """A saturating fill of 200 MiB to 2 GiB with a time constant of 2 to 20 minutes."""
    slope = percent_per_hour / 100 * TOTAL

    def make(rng: np.random.Generator) -> Made:
        t = _time()
        size, tau = rng.uniform(200, 2000), rng.uniform(120, 1200)
        y = size * (1 - np.exp(-t / tau)) + noise.draw(rng, len(t)) + slope * t / 3600
        return _made(t, y, slope, Shape.LINEAR if slope else Shape.WARM_UP)

    return make


def one_step(noise: Noise, percent_per_hour: float = 0.0) -> Maker:
    """One sustained jump of 32 to 512 MiB in the middle of the run."""
    slope = percent_per_hour / 100 * TOTAL

    def make(rng: np.random.Generator) -> Made:
        t = _time()
        y = noise.draw(rng, len(t)) + slope * t / 3600
        y[t >= rng.uniform(0.2, 0.9) * t[-1]] += rng.uniform(32, 512)
        return _made(t, y, slope, Shape.LINEAR if slope else Shape.STEP)

    return make


def sawtooth(noise: Noise, percent_per_hour: float = 0.0) -> Maker:
    """Climbs of 50 to 500 MiB with a period of 5 to 20 minutes, each ending in a fall."""
    slope = percent_per_hour / 100 * TOTAL

    def make(rng: np.random.Generator) -> Made:
        t = _time()
        period, height = rng.uniform(300, 1200), rng.uniform(100, 500)
        y = height * ((t / period + rng.random()) % 1.0) + noise.draw(rng, len(t)) + slope * t / 3600
        return _made(t, y, slope, Shape.SAWTOOTH)

    return make


def gaps(rng: np.random.Generator) -> Made:
    """A third of the readings missing at random, and two gaps of 5 to 15 minutes."""
    t = _time()
    y = AR4.draw(rng, len(t))
    keep = rng.random(len(t)) > 0.33
    for _ in range(2):
        start = rng.uniform(0, t[-1])
        keep &= ~((t >= start) & (t < start + rng.uniform(300, 900)))
    return _made(t[keep], y[keep], 0.0, Shape.FLAT)


def spikes(rng: np.random.Generator) -> Made:
    """One reading in a hundred 20 to 2,000 MiB too high."""
    t = _time()
    y = AR4.draw(rng, len(t))
    hit = rng.random(len(t)) < 0.01
    y[hit] += rng.uniform(20, 2000, size=int(hit.sum()))
    return _made(t, y, 0.0, Shape.FLAT)


def load_ramp(percent_per_hour: float = 0.0) -> Maker:
    """Memory follows a load that climbs from 1 to 32 requests in flight, with the load given."""
    slope = percent_per_hour / 100 * TOTAL

    def make(rng: np.random.Generator) -> Made:
        t = _time()
        load = 1 + 31 * t / t[-1] + Noise("load", 3.0, 0.98).draw(rng, len(t))
        y = 10.0 * load + AR4.draw(rng, len(t)) + slope * t / 3600
        return _made(t, y, slope, Shape.LINEAR if slope else Shape.FLAT, load)

    return make


def pools(percent_per_hour: float = 0.0, minutes: float = 120.0) -> Maker:
    """After the H200 traces: zero noise, pools that grow with each record of demand (0.4 to 2.5 GiB, one every e-fold
    of the time), and the leak, if any, in pages between the jumps."""
    slope = percent_per_hour / 100 * TOTAL * 4

    def make(rng: np.random.Generator) -> Made:
        t = np.arange(0.0, minutes * 60, 0.2 if minutes < 15 else 1.0)
        y = np.zeros(len(t))
        at = 0.5
        while at < t[-1]:
            y[t >= at] += 2.0 * round(rng.uniform(350, 1250) * min(1.0, (60.0 / (at + 60)) ** 0.25))
            at *= float(np.exp(rng.exponential(1.0)))
        y += slope * t / 3600 + rng.uniform(0, PAGE)
        return _made(t, y, slope, Shape.LINEAR if slope else Shape.WARM_UP)

    return make


def staircase(rng: np.random.Generator) -> Made:
    """A leak in segments of 20 to 64 MiB, one every 4 to 12 minutes."""
    t = _time()
    period, size = rng.uniform(240, 720), rng.uniform(20, 64)
    y = size * np.floor(t / period + rng.random()) + QUIET.draw(rng, len(t))
    return _made(t, y, size / period * 3600, Shape.STAIRCASE)


def over(maker: Maker, **changes: object) -> Maker:
    """The same family asked differently (``cap=...``, ``limit=...``)."""

    def make(rng: np.random.Generator) -> Made:
        made = maker(rng)
        return replace(made, question=replace(made.question, **changes))  # type: ignore[arg-type]

    return make


NULLS: dict[str, Maker] = {
    "flat quiet": leaking(QUIET, 0.0),
    "flat ar1": leaking(AR1, 0.0),
    "flat ar4": leaking(AR4, 0.0),
    "flat ar16": leaking(AR16, 0.0),
    "flat rho .999": leaking(SLOW, 0.0),
    "flat walk": walk(0.2),
    "one-sided": one_sided,
    "warm-up ar1": warm_up(AR1),
    "warm-up ar4": warm_up(AR4),
    "step ar1": one_step(AR1),
    "step ar4": one_step(AR4),
    "sawtooth ar1": sawtooth(AR1),
    "sawtooth ar4": sawtooth(AR4),
    "gaps": gaps,
    "spikes": spikes,
    "load ramp": load_ramp(),
    "pools 8 min": pools(minutes=8.0),
    "pools 2 h": pools(),
}

LEAKS: dict[str, Maker] = {
    "0.012 %/h quiet": leaking(QUIET, 0.012),
    "0.025 %/h quiet": leaking(QUIET, 0.025),
    "0.012 %/h ar1": leaking(AR1, 0.012),
    "0.022 %/h ar1": leaking(AR1, 0.022),
    "0.022 %/h edge": leaking(EDGE, 0.022),
    "0.012 %/h ar4": leaking(AR4, 0.012),
    "0.044 %/h ar4": leaking(AR4, 0.044),
    "0.087 %/h ar4": leaking(AR4, 0.087),
    "0.087 %/h ar16": leaking(AR16, 0.087),
    "0.087 %/h rho .999": leaking(SLOW, 0.087),
    "0.35 %/h ar16": leaking(AR16, 0.35),
    "0.087 %/h + warm-up ar4": warm_up(AR4, 0.087),
    "0.087 %/h + step ar4": one_step(AR4, 0.087),
    "0.022 %/h + warm-up ar1": warm_up(AR1, 0.022),
    "0.022 %/h + step ar1": one_step(AR1, 0.022),
    "0.087 %/h + sawtooth ar1": sawtooth(AR1, 0.087),
    "0.087 %/h + sawtooth ar4": sawtooth(AR4, 0.087),
    "0.35 %/h + load ramp": load_ramp(0.35),
    "pools + 0.35 %/h": pools(0.087),
    "pools + 1.4 %/h, 8 min": pools(0.35, minutes=8.0),
    "staircase": staircase,
}
