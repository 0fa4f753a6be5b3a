"""Measures with intervals: what two runs are compared by. Pure.

Windows of one run are not independent (load, temperature and caches change slowly), so the interval of a figure comes
from batch means: the windows are joined into at most 30 batches in order of time, the spread of the batches gives the
standard error, widened by what correlation is left between them. See Law and Kelton, Simulation Modeling and Analysis,
section 9.5.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from scipy import stats

from soakd.report.figures import Measure
from soakd.report.model import Report

CONFIDENCE = 0.99
"""Of each interval: two that do not overlap are then a difference at well under 0.1 %, and so 20 rows stay honest."""
MIN_WINDOWS = 10
_BATCHES = 30
_Better = Literal["lower", "higher", "neither"]


def windowed(
    name: str, unit: str, value: float | None, windows: Sequence[float | None], better: _Better = "lower"
) -> Measure:
    """A figure of the whole run (``value``) with an interval from its values in equal windows of time, in order.

    Unknown windows are left out; under ``MIN_WINDOWS`` known ones there is no interval, and so no verdict later.
    """
    known = np.array([w for w in windows if w is not None and math.isfinite(w)], dtype=float)
    if value is None or not math.isfinite(value) or len(known) < MIN_WINDOWS:
        return Measure(name, unit, value, better=better, method="too few windows for an interval", points=len(known))
    batches = np.array([part.mean() for part in np.array_split(known, min(_BATCHES, max(5, len(known) // 4)))])
    error = float(batches.std(ddof=1)) / math.sqrt(len(batches))
    if error > 0:
        centred = batches - batches.mean()
        rho = float(np.dot(centred[1:], centred[:-1]) / np.dot(centred, centred))
        rho = min(max(rho, 0.0), 0.9)
        error *= math.sqrt((1 + rho) / (1 - rho))
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, len(batches) - 1)) * error
    return Measure(name, unit, value, value - half, value + half, better,
                   f"{len(batches)} batch means, {CONFIDENCE:.0%}", len(known))  # fmt: skip


def counted(name: str, value: float | None, better: _Better = "lower") -> Measure:
    """A count of rare things, with the exact interval of a Poisson count (Garwood 1936): seeing none or one of them
    once says little of the next run."""
    if value is None:
        return Measure(name, "", None, better=better, method="not counted")
    tail = (1 - CONFIDENCE) / 2
    low = float(stats.chi2.ppf(tail, 2 * value)) / 2 if value else 0.0
    high = float(stats.chi2.ppf(1 - tail, 2 * value + 2)) / 2
    return Measure(name, "", value, low, high, better, f"Poisson count, {CONFIDENCE:.0%}", 1)


def single(name: str, unit: str, value: float | None, better: _Better = "lower") -> Measure:
    """A figure seen once in the run: nothing is known of its spread, so nothing is said of a difference."""
    return Measure(name, unit, value, better=better, method="seen once", points=1 if value is not None else 0)


def measures_of(report: Report, windows: Mapping[str, Sequence[float | None]]) -> tuple[Measure, ...]:
    """Every measure of a report. ``windows`` gives, by the measure's name, its values in equal windows of the run
    (``e2e_p95``: the P95 of each window, in seconds); a measure without windows has no interval."""
    load = report.load
    answered = None if load.completed is None or load.failed is None else load.completed + load.failed
    errors = load.failed / answered if answered and load.failed is not None else None
    figures: tuple[tuple[str, str, float | None, _Better], ...] = (
        ("e2e_p50", "seconds", load.e2e_s.p50, "lower"),
        ("e2e_p95", "seconds", load.e2e_s.p95, "lower"),
        ("e2e_p99", "seconds", load.e2e_s.p99, "lower"),
        ("ttft_p50", "seconds", load.ttft_s.p50, "lower"),
        ("ttft_p95", "seconds", load.ttft_s.p95, "lower"),
        ("ttft_from_due_p95", "seconds", load.ttft_from_due_s.p95, "lower"),
        ("itl_p50", "seconds", load.itl_s.p50, "lower"),
        ("itl_p95", "seconds", load.itl_s.p95, "lower"),
        ("request_rate", "requests/s", load.rate_per_s, "higher"),
        ("output_tokens_rate", "tokens/s", load.output_tokens_per_s, "higher"),
        ("error_ratio", "ratio", errors, "lower"),
    )
    rows = [windowed(name, unit, value, windows.get(name, ()), better) for name, unit, value, better in figures]
    return (*rows, *_gpus(report, windows), *_growth(report), *_incidents(report))


def _gpus(report: Report, windows: Mapping[str, Sequence[float | None]]) -> Iterable[Measure]:
    if not report.gpus:
        return
    heat = [g.temperature_celsius.mean for g in report.cards]
    yield windowed("gpu_temperature", "celsius", _highest(heat), windows.get("gpu_temperature", ()), "lower")
    use = [g.utilisation_ratio.mean for g in report.cards]
    yield windowed("gpu_utilisation", "ratio", _mean(use), windows.get("gpu_utilisation", ()), "neither")
    peaks = [g.memory_used_bytes.high for g in report.cards]
    yield windowed("vram_peak", "bytes", _highest(peaks), windows.get("vram_peak", ()))
    yield from _resistance(report)
    yield single("gpu_throttled", "seconds", _highest([g.throttled_s for g in report.cards]))
    ecc = [g.ecc_uncorrected_increase for g in report.cards]
    yield counted("ecc_uncorrected", None if None in ecc else float(sum(e or 0 for e in ecc)))


def _resistance(report: Report) -> Iterable[Measure]:
    """Of the card that sheds its heat worst: what a new paste, a dusty filter or another slot changes."""
    known = [g.thermal for g in report.cards if g.thermal and g.thermal.resistance_celsius_per_watt is not None]
    if not known or len(known) < len(report.cards):
        return
    worst = max(known, key=lambda t: t.resistance_celsius_per_watt or 0.0)
    yield Measure("thermal_resistance", "celsius/watt", worst.resistance_celsius_per_watt, worst.resistance_low,
                  worst.resistance_high, "lower", "temperature against power, jackknife, 99%", 1)  # fmt: skip


def _growth(report: Report) -> Iterable[Measure]:
    """The fastest growth of each metric: one leaking card among eight is a leak."""
    worst: dict[tuple[str, str], Measure] = {}
    for s in report.series[:500]:
        unit = f"{s.unit}/{s.per}"
        measure = Measure(f"growth of {s.metric}", unit, s.slope, s.slope_low, s.slope_high, "lower", "slope test",
                          s.used_points)  # fmt: skip
        held = worst.get((s.metric, unit))
        if held is None or (s.slope is not None and (held.value is None or s.slope > held.value)):
            worst[(s.metric, unit)] = measure
    yield from worst.values()
    yield from _vram_share(report)


def _vram_share(report: Report) -> Iterable[Measure]:
    """The growth of VRAM in % of the card (or the MIG instance) per hour, as published figures put it; the fastest."""
    shares = [s for s in report.series[:500] if s.metric == "gpu_memory_used_bytes" and s.percent_per_hour is not None]
    fastest = max(shares, key=lambda s: s.percent_per_hour or 0.0, default=None)
    if fastest is not None and fastest.percent_per_hour is not None:
        share = fastest.percent_per_hour
        scale = share / fastest.slope if fastest.slope else None
        low, high = (v * scale if v is not None and scale else None for v in (fastest.slope_low, fastest.slope_high))
        yield Measure("vram_leak", "percent/hour", share, low, high, "lower", "slope test", fastest.used_points)


def _incidents(report: Report) -> Iterable[Measure]:
    yield counted("outages", float(len(report.outages)))
    if report.outages:
        spans = [
            None if o.recovered_s is None or o.start_s is None else o.recovered_s - o.start_s for o in report.outages
        ]
        yield single("recovery_time", "seconds", None if None in spans else _highest(spans))
    if report.canary and report.canary.checks:
        yield counted("canary_changed", float(report.canary.changed))
        yield counted("garbled_answers", float(report.canary.garbled))
    if report.load.decode_retention:
        yield single("decode_retention", "ratio", report.load.decode_retention.ratio, "higher")


def _highest(values: Sequence[float | None]) -> float | None:
    """None when any is unknown: the highest of what could be read is not the highest."""
    known = [v for v in values if v is not None]
    return max(known) if known and len(known) == len(values) else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
