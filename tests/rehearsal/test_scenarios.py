"""Scenarios as pure functions: their faults come where they say, at any duration, and they say what must be found."""

from __future__ import annotations

import pytest

from soakd.errors import SoakdError
from soakd.metrics import catalogue
from soakd.rehearsal.scenarios import (
    CARD_BYTES,
    PAGE_BYTES,
    SCENARIOS,
    Crash,
    EccBurst,
    Leak,
    Staircase,
    ThermalDrift,
    find_scenario,
)

HOUR = 3600.0


def test_the_scenarios_are_those_promised() -> None:
    assert list(SCENARIOS) == [
        "healthy", "leak", "staircase", "thermal-drift", "server-crash", "ecc-burst", "gpu-lost", "garbled",
    ]  # fmt: skip


def test_only_healthy_expects_nothing() -> None:
    assert [name for name, s in SCENARIOS.items() if not s.expects(2 * HOUR)] == ["healthy"]


def test_the_metrics_that_must_be_named_exist() -> None:
    named = {e.source for s in SCENARIOS.values() for e in s.expects(2 * HOUR) if e.source.startswith("gpu_")}
    assert named == {"gpu_memory_used_bytes", "gpu_temperature_celsius", "gpu_ecc_errors_total"}
    assert named <= set(catalogue().by_name)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(SoakdError, match=r"unknown scenario 'leek' \(one of healthy, leak,"):
        find_scenario("leek")


@pytest.mark.parametrize("hours", [0.1, 0.5, 2, 24, 168])
def test_a_leak_shows_in_a_short_run_and_fits_the_card_in_a_long_one(hours: float) -> None:
    growth = Leak().bytes_per_hour(hours * HOUR) * hours
    assert 60 * PAGE_BYTES <= round(growth) <= 2000 * PAGE_BYTES


def test_a_leak_of_two_hours_has_the_rate_it_says() -> None:
    (expected,) = SCENARIOS["leak"].expects(2 * HOUR)
    assert expected.value == pytest.approx(0.005 * CARD_BYTES)
    assert (expected.source, expected.card, expected.unit) == ("gpu_memory_used_bytes", 1, "bytes/hour")


def test_a_staircase_is_spread_over_the_run_and_keeps_its_steps() -> None:
    stairs = Staircase()
    heights = [stairs.bytes_at(i / 200) for i in range(201)]
    assert heights[0] == 0
    assert heights == sorted(heights)
    assert len(set(heights)) == len(stairs.steps) + 1
    first_half, second_half = heights[100] - heights[0], heights[200] - heights[100]
    assert first_half == pytest.approx(second_half, rel=0.3), "what thins out would be a warm-up"


@pytest.mark.parametrize(("hours", "rise"), [(0.1, 6.0), (2, 8.0), (24, 12.0)])
def test_a_drift_is_bounded_at_both_ends(hours: float, rise: float) -> None:
    drift = ThermalDrift()
    assert drift.celsius_at(0.0, hours * HOUR) == 0
    assert drift.celsius_at(0.5, hours * HOUR) == pytest.approx(rise / 2)
    assert drift.celsius_at(1.7, hours * HOUR) == pytest.approx(rise)


def test_a_crash_lasts_long_enough_to_be_seen_at_any_speed() -> None:
    assert Crash().down_s(2 * HOUR, 60) == pytest.approx(216)
    assert Crash().down_s(600, 60) == pytest.approx(120), "two real seconds"


def test_an_ecc_burst_counts_up_once() -> None:
    burst = EccBurst()
    assert [burst.corrected_at(f) for f in (0.0, 0.49, 0.515, 0.53, 1.0)] == [0, 0, 32, 64, 64]
    assert [burst.uncorrected_at(f) for f in (0.49, 0.5, 1.0)] == [0, 1, 1]


def test_xids_belong_to_the_card_at_fault() -> None:
    assert SCENARIOS["gpu-lost"].xids(1, 1000) == ((600.0, 79),)
    assert [number for _, number in SCENARIOS["ecc-burst"].xids(1, 1000)] == [48, 63]
    assert SCENARIOS["gpu-lost"].xids(0, 1000) == ()
    assert SCENARIOS["healthy"].xids(1, 1000) == ()


def test_a_lost_card_takes_the_server_with_it_but_not_its_sibling() -> None:
    lost = SCENARIOS["gpu-lost"]
    assert [lost.lost(1, f) for f in (0.59, 0.6, 1.2)] == [False, True, True]
    assert not lost.lost(0, 0.9)
    assert [lost.target_fails(f) for f in (0.59, 0.61)] == [False, True]
    assert not SCENARIOS["ecc-burst"].target_fails(0.9)
