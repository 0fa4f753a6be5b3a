"""Noise without memory: of the size asked for, and low-pass filtered exactly as a filter with memory would."""

from __future__ import annotations

import math
import statistics

import pytest

from soakd.rehearsal.waves import Waves, uniform

WAVES = Waves.random("seed", 7.0, 2.5, 240.0)


def test_the_deviation_is_the_one_asked_for() -> None:
    values = [WAVES.at(t * 1.7) for t in range(20_000)]
    assert statistics.fmean(values) == pytest.approx(0, abs=0.3)
    assert statistics.stdev(values) == pytest.approx(7.0, rel=0.05)


@pytest.mark.parametrize("tau", [14.0, 420.0])
def test_filtering_equals_stepping_a_filter(tau: float) -> None:
    step = 0.1
    state = WAVES.filtered(0.0, tau)
    keep = math.exp(-step / tau)
    for i in range(20_000):
        state = state * keep + WAVES.at((i + 0.5) * step) * (1 - keep)
    assert state == pytest.approx(WAVES.filtered(20_000 * step, tau), abs=0.02)


def test_another_seed_is_other_noise() -> None:
    assert Waves.random("other", 7.0, 2.5, 240.0) != WAVES
    assert Waves.random("seed", 7.0, 2.5, 240.0) == WAVES


def test_uniform_belongs_to_its_key() -> None:
    values = [uniform(1, i, "w") for i in range(5000)]
    assert all(0 <= v < 1 for v in values)
    assert statistics.fmean(values) == pytest.approx(0.5, abs=0.02)
    assert uniform(1, 3, "w") == values[3]
