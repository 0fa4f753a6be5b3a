"""Limits on the cards and the PCIe path: highest readings, bands, and what error counters gained during the run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from soakd.analysis.evidence import Gain, RunEvidence, Track, worst_state
from soakd.analysis.limits import COVERAGE_NEEDED, Judge, Limit
from soakd.analysis.thermal import band_occupancy
from soakd.model import Labels, LimitResult, State
from soakd.quantities import format_bytes

_AER = "pcie_aer_severity_errors_total"
_UNREADABLE = (State.TIMEOUT, State.LOST)
"""States that mean that evidence went missing; the others mean that the thing is not there."""


def highest(metric: str, what: str, show: Callable[[float], str], **where: str) -> Judge:
    """The highest reading of each card must not exceed the limit. One reading over it is enough to FAIL."""

    def judge(limit: Limit, evidence: RunEvidence) -> tuple[LimitResult, ...]:
        tracks = evidence.track(metric, **where)
        if not tracks:
            return (limit.absent(evidence.gpu_note or f"{what} was not measured"),)
        return tuple(_highest_of(limit, track, what, show) for track in tracks)

    return judge


def _highest_of(limit: Limit, track: Track, what: str, show: Callable[[float], str]) -> LimitResult:
    if len(track.y):
        top = float(np.max(track.y))
        why = f"{what} at most {show(top)} against {show(limit.value)}"
        if top > limit.value:
            return limit.judged(False, top, why, track.coverage, track.labels)
        if track.coverage >= COVERAGE_NEEDED:
            return limit.judged(True, top, why, track.coverage, track.labels)
    return _unknown(limit, track.states, track.coverage, track.labels, what)


def _unknown(
    limit: Limit, states: Iterable[tuple[State, int]], coverage: float, labels: Labels, what: str
) -> LimitResult:
    state = worst_state(states)
    if state in _UNREADABLE or state is None:
        said = f", the others {state.value}" if state else ""
        return limit.missing(f"{what} was known for {coverage:.0%} of the run{said}", coverage, labels)
    return limit.absent(f"{what}: {state.value} on this machine", coverage, labels)


def temperature_band(limit: Limit, evidence: RunEvidence) -> tuple[LimitResult, ...]:
    """``extra`` holds ``width`` and ``share``; judged over the measured stages, where there is load."""
    tracks = evidence.track("gpu_temperature_celsius", sensor="core")
    if not tracks:
        return (limit.absent(evidence.gpu_note or "temperature was not measured"),)
    extra = dict(limit.extra)
    results = []
    for track in tracks:
        loaded = (track.x >= evidence.measured_from_s) & (track.x <= evidence.measured_to_s)
        if loaded.sum() < 2 or track.coverage < COVERAGE_NEEDED:
            results.append(_unknown(limit, track.states, track.coverage, track.labels, "temperature"))
            continue
        low, high = limit.value - extra["width"], limit.value + extra["width"]
        band = band_occupancy(track.x[loaded], track.y[loaded], low, high)
        why = f"{band.inside:.0%} of the time within {low:g} to {high:g} C (range {band.least:g} to {band.most:g} C)"
        ok = band.inside >= extra["share"]
        results.append(limit.judged(ok, band.mean, why, track.coverage, track.labels))
    return tuple(results)


def increase(metric: str, what: str, **where: str) -> Judge:
    """What the counters of each card gained in the run must not exceed the limit; several series are added up (all
    locations of a card, all bridges on its way to the root port)."""

    def judge(limit: Limit, evidence: RunEvidence) -> tuple[LimitResult, ...]:
        gains = evidence.gain(metric, **where)
        if not gains:
            return (limit.absent(evidence.gpu_note or f"{what} not counted here"),)
        devices: dict[Labels, list[Gain]] = defaultdict(list)
        for gain in gains:
            devices[tuple((k, v) for k, v in gain.labels if k in ("gpu", "bdf"))].append(gain)
        return tuple(_increase_of(limit, device, found, what) for device, found in devices.items())

    return judge


def _increase_of(limit: Limit, device: Labels, gains: list[Gain], what: str) -> LimitResult:
    known = [g.increase for g in gains if g.increase is not None]
    total = sum(known)
    coverage = sum(g.coverage for g in gains if g.increase is not None) / len(gains)
    why = f"{what} grew by {total:g} against {limit.value:g}{_most_of(gains)}"
    if known and total > limit.value:
        return limit.judged(False, total, why, coverage, device)
    if known and min(g.coverage for g in gains if g.increase is not None) >= COVERAGE_NEEDED:
        return limit.judged(True, total, why, coverage, device)
    states = [s for g in gains for s in g.states]
    return _unknown(limit, states, coverage, device, what)


def _most_of(gains: list[Gain]) -> str:
    """Where the most was counted, when there is more than one place and something was counted."""
    top = max(gains, key=lambda g: g.increase or 0.0)
    device = dict(top.labels).get("device")
    return f", most at {device}" if device and top.increase else ""


def thermal_throttle(limit: Limit, evidence: RunEvidence) -> tuple[LimitResult, ...]:
    """Seconds under hardware thermal slowdown. A software power cap at full load is normal and does not count."""
    judge = increase("gpu_throttle_seconds_total", "time under thermal slowdown (s)", reason="hw_thermal")
    return judge(limit, evidence)


def replay_rate(limit: Limit, evidence: RunEvidence) -> tuple[LimitResult, ...]:
    gains = evidence.gain("pcie_replays_total")
    if not gains:
        return (limit.absent(evidence.gpu_note or "PCIe replays are not counted here"),)
    minutes = max(evidence.duration_s / 60, 1e-9)
    results = []
    for gain in gains:
        if gain.increase is None or gain.coverage < COVERAGE_NEEDED:
            results.append(_unknown(limit, gain.states, gain.coverage, gain.labels, "PCIe replays"))
            continue
        rate = gain.increase / minutes
        why = f"{rate:.3g} PCIe replays a minute against {limit.value:g}"
        results.append(limit.judged(rate <= limit.value, rate, why, gain.coverage, gain.labels))
    return tuple(results)


def happened(kinds: tuple[str, ...], what: str, *, skip_class: str = "") -> Judge:
    """Events of these kinds must not be more than the limit."""

    def judge(limit: Limit, evidence: RunEvidence) -> tuple[LimitResult, ...]:
        if evidence.gpu_note:
            return (limit.absent(evidence.gpu_note),)
        events = [e for e in evidence.event(*kinds) if not skip_class or dict(e.attrs).get("class") != skip_class]
        why = f"{len(events)} {what}: {events[0].what}" if events else f"no {what}"
        device = events[0].labels if events else ()
        return (limit.judged(len(events) <= limit.value, len(events), why, 1.0, device),)

    return judge


def _celsius(value: float) -> str:
    return f"{value:g} C"


HARDWARE_JUDGES: Mapping[str, Judge] = {
    "vram_used_max": highest("gpu_memory_used_bytes", "VRAM in use", format_bytes),
    "temperature_max": highest("gpu_temperature_celsius", "core temperature", _celsius, sensor="core"),
    "memory_temperature_max": highest("gpu_temperature_celsius", "memory temperature", _celsius, sensor="memory"),
    "temperature_band": temperature_band,
    "thermal_throttle_max": thermal_throttle,
    "ecc_uncorrected_max": increase(
        "gpu_ecc_errors_total", "uncorrected ECC errors", counter="aggregate", error="uncorrected"
    ),
    "ecc_corrected_max": increase(
        "gpu_ecc_errors_total", "corrected ECC errors", counter="aggregate", error="corrected"
    ),
    "aer_fatal_max": increase(_AER, "fatal PCIe errors (AER)", severity="fatal"),
    "aer_nonfatal_max": increase(_AER, "non-fatal PCIe errors (AER)", severity="nonfatal"),
    "aer_correctable_max": increase(_AER, "correctable PCIe errors (AER)", severity="correctable"),
    "pcie_replay_per_minute_max": replay_rate,
    "xid_max": happened(("xid",), "XID error(s)", skip_class="ignore"),
    "gpu_lost_max": happened(("gpu.lost", "gpu.unresponsive"), "card(s) lost or unresponsive"),
}
