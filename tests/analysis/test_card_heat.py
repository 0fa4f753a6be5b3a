from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from soakd.analysis.evidence import OutageEvidence, RunEvidence, Track
from soakd.analysis.limits_thermal import DRIFT_THAT_COUNTS, card_heat, judge_drift, thermal_findings
from soakd.analysis.series import Floats
from soakd.analysis.thermal import lagged
from soakd.model import Finding, Labels, Severity
from tests.support.evidence_of_runs import a_run, gain, track

SECONDS = np.arange(0.0, 7200.0, 5.0)
BUSY = (SECONDS >= 60) & (SECONDS < 7140)
WATTS = np.where(BUSY, 300.0 + np.where((SECONDS // 600) % 2 == 0, 40.0, -40.0), 70.0)


def tags(i: int) -> Labels:
    return (("bdf", f"0000:0{i}:00.0"), ("gpu", f"GPU-{i}"))


def card(i: int, resistance: float = 0.15, extra: Floats | float = 0.0) -> tuple[Track, Track]:
    rng = np.random.default_rng(i)
    heat = 30.0 + resistance * lagged(SECONDS, WATTS, 30.0) + extra + 0.3 * rng.standard_normal(len(SECONDS))
    sensor = tuple(sorted((*tags(i), ("sensor", "core"))))
    usage = tuple(sorted((*tags(i), ("reading", "usage"))))
    return (
        track("gpu_temperature_celsius", heat, labels=sensor, unit="celsius"),
        track("gpu_power_watts", WATTS, labels=usage, unit="watts"),
    )


def run_of(*cards: tuple[Track, Track]) -> RunEvidence:
    return a_run(tracks=tuple(t for pair in cards for t in pair))


def findings_of(run: RunEvidence) -> tuple[Finding, ...]:
    return thermal_findings(card_heat(run, ()), run.end_ns)


def test_resistance_is_found_with_an_interval() -> None:
    ((_, found),) = judge_drift(DRIFT_THAT_COUNTS, run_of(card(1)))
    assert found.resistance == pytest.approx(0.15, rel=0.05)
    assert found.resistance_low is not None
    assert found.resistance_high is not None
    assert found.resistance_low < 0.15 < found.resistance_high
    assert found.resistance_high - found.resistance_low < 0.05


def test_a_card_is_held_against_its_siblings() -> None:
    run = run_of(card(1), card(2), card(3, extra=8.0))
    heat = {dict(c.track.labels)["gpu"]: c for c in card_heat(run, ())}
    warm = heat["GPU-3"].above
    assert warm is not None
    assert warm.difference == pytest.approx(8.0, abs=0.2)
    (finding,) = [f for f in findings_of(run) if f.source == "thermal.siblings"]
    assert dict(finding.labels)["gpu"] == "GPU-3"
    assert finding.severity is Severity.WARNING


def test_a_single_card_has_no_siblings() -> None:
    (only,) = card_heat(run_of(card(1)), ())
    assert only.above is None


def test_a_swing_is_told_with_its_period() -> None:
    swinging = card(1, resistance=0.0, extra=5.0 * np.sin(2 * np.pi * SECONDS / 240))
    (finding,) = findings_of(run_of(swinging))
    assert finding.source == "thermal.oscillation"
    assert finding.value == pytest.approx(5.0, abs=0.7)
    assert "every 4m" in finding.title
    assert findings_of(run_of(card(1, resistance=0.0))) == ()


def test_the_cooling_down_of_an_outage_is_no_swing() -> None:
    start, end = 3000.0, 3300.0
    down = np.abs(SECONDS - 3147.5) < 150.0
    cooled = card(1, resistance=0.0, extra=-25.0 * lagged(SECONDS, down.astype(float), 40.0))
    run = run_of(cooled)
    assert [f.source for f in findings_of(run)] == ["thermal.oscillation"]
    began = run.end_ns - int((7200 - start) * 1e9)
    outage = OutageEvidence(began, began + int((end - start) * 1e9), None, 10)
    assert findings_of(replace(run, load=replace(run.load, outages=(outage,)))) == ()


def test_only_heat_is_told_of_what_kept_the_clocks_down() -> None:
    pair = card(1)
    (bdf, gpu) = tags(1)
    counters = [
        gain("gpu_throttle_seconds_total", 31.0, reason="hw_thermal", bdf=bdf[1], gpu=gpu[1]),
        gain("gpu_throttle_seconds_total", 5000.0, reason="sw_power_cap", bdf=bdf[1], gpu=gpu[1]),
        gain("gpu_throttle_seconds_total", 0.0, reason="sw_thermal", bdf=bdf[1], gpu=gpu[1]),
    ]
    run = a_run(tracks=pair, gains=tuple(counters))
    (heat,) = card_heat(run, ())
    assert heat.throttled == (("hw_thermal", 31.0), ("sw_power_cap", 5000.0))
    (finding,) = [f for f in findings_of(run) if f.source == "thermal.throttle"]
    assert finding.value == pytest.approx(31.0)
