"""Temperature against power: drift that power does not explain, band, oscillation, throttling, siblings."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.signal import lfilter
from scipy.stats import t as student

from soakd.analysis.critical import critical_value
from soakd.analysis.series import Floats
from soakd.analysis.slope import TrendFit, fit_trend
from soakd.quantities import format_duration

_HOUR = 3600.0
_BLOCK_S = 60.0
_FEWEST_BLOCKS = 10
_FAST_S = (0.0, 10.0, 30.0, 60.0)
_SLOW_S = (300.0, 600.0, 1200.0)
_LEAST_WATTS = 1.0
_STRETCHES = 6
_FEWEST_FOR_PERIOD = 30
_PERIODIC_SHARE = 0.3

# nvml.h, nvmlClocksEventReason*: software power cap, hardware slowdown, software and hardware thermal, power brake
_POWER_CAP_BIT = 0x4
_THERMAL_BITS = 0x20 | 0x40
_HARDWARE_BITS = 0x8 | 0x80


class Drift(enum.Enum):
    DRIFT = "drift"
    NO_DRIFT = "no_drift"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class ThermalQuestion:
    """One card. ``x`` seconds, ``temperature`` C, ``power`` W, of equal length; ``inlet`` C and ``fan`` % where read.

    ``warmup`` seconds are left out; ``limit`` is the drift in C/h above which it counts.
    """

    x: Floats
    temperature: Floats
    power: Floats
    inlet: Floats | None = None
    fan: Floats | None = None
    warmup: float = 900.0
    limit: float = 0.5
    name: str = ""


@dataclass(frozen=True, slots=True)
class ThermalJudgement:
    """Drift in C/h with its 98 % interval; ``resistance`` is the total C/W with a 99 % interval (jackknife over six
    stretches of the run), ``resistances``/``taus`` its two poles."""

    verdict: Drift
    why: str
    slope: float | None = None
    slope_low: float | None = None
    slope_high: float | None = None
    smallest_detectable: float | None = None
    resistance: float | None = None
    resistance_low: float | None = None
    resistance_high: float | None = None
    resistances: tuple[float, ...] = ()
    taus: tuple[float, ...] = ()
    residual: float | None = None
    points: int = 0
    used_points: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class Band:
    """How long a temperature kept to a band: shares of the time that is known (0 to 1), and SD and range in C."""

    low: float
    high: float
    inside: float
    below: float
    above: float
    mean: float
    deviation: float
    least: float
    most: float
    known_s: float


@dataclass(frozen=True, slots=True)
class Oscillation:
    """Half the peak-to-peak swing (C) and its period (s); None where nothing swings more than its resolution."""

    amplitude: float
    period: float | None


@dataclass(frozen=True, slots=True)
class Throttling:
    """Seconds spent under each cause of the clock-event bitmask. A power cap is not thermal."""

    thermal_s: float
    power_cap_s: float
    hardware_slowdown_s: float
    known_s: float


@dataclass(frozen=True, slots=True)
class Sibling:
    """One card against the median of the others at the same times: C above them, and how many cards."""

    name: str
    difference: float
    low: float
    high: float
    cards: int


def judge_thermal(question: ThermalQuestion) -> ThermalJudgement:
    """Drift of one card's temperature that its power does not explain. Raises ValueError where lengths differ.

    ``T = a + beta t + R1 EWMA(P, tau1) + R2 EWMA(P, tau2) + c inlet + d fan + noise`` on one-minute means after the
    warm-up, averaged over the time constants by their evidence. A drift is 'a rise not explained by power': without an
    inlet sensor a warmer room looks the same.
    """
    x, temperature, others = _aligned(question)
    n = len(x)
    keep = x >= (x[0] + question.warmup if n else 0.0)
    minutes = ((x - x[0]) // _BLOCK_S).astype(np.int64) if n else np.empty(0, np.int64)
    blocks = np.unique(minutes[keep])
    if len(blocks) < _FEWEST_BLOCKS:
        need = format_duration(question.warmup + _BLOCK_S * _FEWEST_BLOCKS)
        why = f"{len(blocks)} minutes after the warm-up; it takes at least {need} of run"
        return ThermalJudgement(Drift.INCONCLUSIVE, why, points=n, name=question.name)
    owner = np.searchsorted(blocks, minutes[keep])

    def means(values: Floats) -> Floats:
        return np.bincount(owner, values[keep]) / np.bincount(owner)

    t, y = means(x), means(temperature)
    covariates = [means(v) for v in others[1:]]
    fits = _thermal_fits(x, others[0], t, y, covariates, means)
    odds = np.array([f.evidence for _, f in fits])
    share = np.exp(odds - odds.max())
    share /= share.sum()
    slopes = np.array([f.slope for _, f in fits])
    slope = float(share @ slopes)
    sd = float(np.sqrt(share @ (np.array([f.sd**2 for _, f in fits]) + (slopes - slope) ** 2)))
    resolution = 1.0 if bool(np.all(temperature == np.round(temperature))) else 0.0
    span = float(t[-1] - t[0])
    sd = float(np.hypot(sd, 0.29 * resolution / span)) * _HOUR
    slope *= _HOUR
    taus, best = fits[int(share.argmax())]
    reach = critical_value(0.01, best.length, len(t), plain=False) * sd
    verdict = Drift.INCONCLUSIVE
    if slope - reach > question.limit:
        verdict = Drift.DRIFT
    elif slope + reach <= question.limit:
        verdict = Drift.NO_DRIFT
    resistances = best.effects[: len(taus)]
    felt = [means(lagged(x, others[0], tau)) for tau in taus]
    around = _resistance_reach(t, y, felt, covariates) if taus else None
    detectable = reach + 2.33 * sd + question.limit
    return ThermalJudgement(
        verdict=verdict,
        why=_thermal_why(question, verdict, slope, reach, detectable),
        slope=slope,
        slope_low=slope - reach,
        slope_high=slope + reach,
        smallest_detectable=detectable,
        resistance=float(sum(resistances)) if taus else None,
        resistance_low=None if around is None else float(sum(resistances)) - around,
        resistance_high=None if around is None else float(sum(resistances)) + around,
        resistances=tuple(resistances),
        taus=taus,
        residual=best.noise,
        points=n,
        used_points=int(keep.sum()),
        name=question.name,
    )


def _thermal_why(question: ThermalQuestion, verdict: Drift, slope: float, reach: float, detectable: float) -> str:
    interval = f"98 % interval {slope - reach:+.2f} to {slope + reach:+.2f} C/h"
    room = "" if question.inlet is not None else "; the inlet is not measured, so a warmer room looks the same"
    if verdict is Drift.DRIFT:
        return f"a rise of {slope:.2f} C/h not explained by power ({interval}){room}"
    if verdict is Drift.NO_DRIFT:
        return f"no drift beyond {question.limit:g} C/h that power does not explain ({interval})"
    return f"{interval} does not settle {question.limit:g} C/h; this run could have detected {detectable:.2f} C/h"


def _aligned(question: ThermalQuestion) -> tuple[Floats, Floats, list[Floats]]:
    """In order of time, without readings in which any of the series is unknown: power first among the others."""
    columns = [question.power, *(v for v in (question.inlet, question.fan) if v is not None)]
    if any(len(v) != len(question.x) for v in (question.temperature, *columns)):
        raise ValueError("x, temperature, power, inlet and fan must be of one length")
    table = np.array([question.x, question.temperature, *columns], dtype=np.float64)
    table = table[:, np.isfinite(table).all(axis=0)]
    table = table[:, np.argsort(table[0], kind="stable")]
    return table[0], table[1], list(table[2:])


def lagged(x: Floats, power: Floats, tau: float) -> Floats:
    """Power as a body of time constant ``tau`` (s) feels it: an exponential average over elapsed time."""
    if tau <= 0 or len(x) < 2:
        return power
    step = max(float(np.median(np.diff(x))), 1e-3)
    grid = np.arange(x[0], x[-1] + step, step)
    held = power[np.searchsorted(x, grid, side="right") - 1]
    keep = float(np.exp(-step / tau))
    smooth, _ = lfilter([1 - keep], [1, -keep], held, zi=np.array([held[0] * keep]))
    return np.interp(x, grid, smooth)


def _thermal_fits(
    x: Floats, power: Floats, t: Floats, y: Floats, covariates: list[Floats], means: Callable[[Floats], Floats]
) -> list[tuple[tuple[float, ...], TrendFit]]:
    """A fit for each pair of time constants; the pair is empty where power never changed."""
    varied = [c for c in covariates if np.ptp(c) > 0]
    felt = {tau: means(lagged(x, power, tau)) for tau in (*_FAST_S, *_SLOW_S)}
    pairs: list[tuple[float, ...]] = [(a,) for a in _FAST_S] + [(a, b) for a in _FAST_S for b in _SLOW_S]
    fits = []
    for pair in [*pairs, ()]:
        columns = [felt[tau] for tau in pair if np.ptp(felt[tau]) > _LEAST_WATTS] + varied
        if len(columns) != len(pair) + len(varied):
            continue
        fits.append((pair, fit_trend(t, y, np.column_stack(columns) if columns else None)))
    return fits


def _resistance_reach(t: Floats, y: Floats, felt: list[Floats], covariates: list[Floats]) -> float | None:
    """Half a 99 % interval of the total C/W: leaves out one of six stretches at a time. None where too few are left
    for that, or power changed in one stretch only."""
    columns = np.column_stack([*felt, *(c for c in covariates if np.ptp(c) > 0)])
    found = []
    for left_out in np.array_split(np.arange(len(t)), _STRETCHES):
        keep = np.ones(len(t), dtype=bool)
        keep[left_out] = False
        part = columns[keep]
        if keep.sum() < _FEWEST_BLOCKS or any(np.ptp(part[:, i]) <= _LEAST_WATTS for i in range(len(felt))):
            return None
        found.append(sum(fit_trend(t[keep], y[keep], part[:, np.ptp(part, axis=0) > 0]).effects[: len(felt)]))
    spread = np.asarray(found) - np.mean(found)
    error = float(np.sqrt((_STRETCHES - 1) / _STRETCHES * (spread @ spread)))
    return float(student.ppf(0.995, _STRETCHES - 1)) * error


def band_occupancy(x: Floats, temperature: Floats, low: float, high: float) -> Band:
    """Shares of the known time within ``low`` to ``high`` (both inclusive), and what a band could have meant:
    ``deviation`` is the standard deviation, ``least`` to ``most`` the range. NaN where nothing is known."""
    seconds, values = _held(x, temperature)
    total = float(seconds.sum())
    if total <= 0:
        nan = float("nan")
        return Band(low, high, nan, nan, nan, nan, nan, nan, nan, 0.0)
    below, above = values < low, values > high
    mean = float(seconds @ values / total)
    return Band(
        low=low,
        high=high,
        inside=float(seconds[~below & ~above].sum() / total),
        below=float(seconds[below].sum() / total),
        above=float(seconds[above].sum() / total),
        mean=mean,
        deviation=float(np.sqrt(seconds @ (values - mean) ** 2 / total)),
        least=float(values.min()),
        most=float(values.max()),
        known_s=total,
    )


def _held(x: Floats, values: Floats) -> tuple[Floats, Floats]:
    """How long each reading stood: until the next, at most five usual intervals (a gap is unknown time)."""
    good = np.isfinite(x) & np.isfinite(values)
    order = np.argsort(x[good], kind="stable")
    at, known = x[good][order], values[good][order]
    if len(at) < 2:
        return np.zeros(len(at)), known
    gaps = np.diff(at)
    usual = float(np.median(gaps))
    return np.append(np.minimum(gaps, 5 * usual), usual), known


def oscillation(x: Floats, temperature: Floats) -> Oscillation:
    """Swing about a straight line: half of what 98 % of the readings span, and the period that explains most of it."""
    good = np.isfinite(x) & np.isfinite(temperature)
    at, y = x[good], temperature[good]
    if len(at) < _FEWEST_FOR_PERIOD or np.ptp(at) <= 0:
        return Oscillation(float("nan"), None)
    y = y - np.polyval(np.polyfit(at - at[0], y, 1), at - at[0])
    amplitude = float(np.quantile(y, 0.99) - np.quantile(y, 0.01)) / 2
    if amplitude <= 1.0:
        return Oscillation(amplitude, None)
    step = float(np.median(np.diff(np.sort(at))))
    grid = np.arange(at[0], at[-1], step)
    even = np.interp(grid, at, y)
    power = np.abs(np.fft.rfft(even - even.mean())) ** 2
    frequency = np.fft.rfftfreq(len(even), step)
    # a period must have been seen three times
    seen = frequency >= 3.0 / float(np.ptp(at))
    if not seen.any() or power[1:].sum() <= 0:
        return Oscillation(amplitude, None)
    peak = int(np.flatnonzero(seen)[np.argmax(power[seen])])
    share = float(power[max(1, peak - 1) : peak + 2].sum() / power[1:].sum())
    return Oscillation(amplitude, float(1.0 / frequency[peak]) if share > _PERIODIC_SHARE else None)


def throttle_time(x: Floats, reasons: Floats) -> Throttling:
    """``reasons`` is NVML's clock-event bitmask at each ``x`` (NaN: unknown)."""
    seconds, values = _held(x, reasons)
    bits = values.astype(np.int64)

    def under(mask: int) -> float:
        return float(seconds[(bits & mask) != 0].sum())

    return Throttling(under(_THERMAL_BITS), under(_POWER_CAP_BIT), under(_HARDWARE_BITS), float(seconds.sum()))


def against_siblings(cards: Sequence[tuple[str, Floats, Floats]]) -> tuple[Sibling, ...]:
    """``cards`` are (name, x, temperature). Each is compared with the median of the others on common minutes; the
    98 % interval is over ten batches of them. Cards without a common minute are left out."""
    minutes = [_by_minute(x, y) for _, x, y in cards]
    found = []
    for i, (name, _, _) in enumerate(cards):
        rest = [m for j, m in enumerate(minutes) if j != i and m]
        common = sorted(set(minutes[i]).intersection(*rest)) if rest else []
        if not common:
            continue
        gaps = np.array([minutes[i][m] - float(np.median([r[m] for r in rest])) for m in common])
        batches = np.array([b.mean() for b in np.array_split(gaps, min(10, len(gaps)))])
        reach = float("inf")
        if len(batches) > 1:
            reach = float(student.ppf(0.99, len(batches) - 1) * batches.std(ddof=1) / np.sqrt(len(batches)))
        centre = float(gaps.mean())
        found.append(Sibling(name, centre, centre - reach, centre + reach, len(rest) + 1))
    return tuple(found)


def _by_minute(x: Floats, y: Floats) -> dict[int, float]:
    good = np.isfinite(x) & np.isfinite(y)
    minute = (x[good] // _BLOCK_S).astype(np.int64)
    places, owner = np.unique(minute, return_inverse=True)
    means = np.bincount(owner, y[good]) / np.bincount(owner) if len(places) else np.empty(0)
    return dict(zip(places.tolist(), means.tolist(), strict=True))
