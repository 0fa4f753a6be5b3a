from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from soakd.analysis.examine import examine
from soakd.analysis.growth import Growth, sign_probability
from soakd.analysis.judge import Leak, SeriesQuestion, judge_series
from soakd.analysis.series import Floats, Shape
from soakd.analysis.slope import fit_trend

Draw = Callable[..., Floats]
Ask = Callable[..., SeriesQuestion]
T = np.arange(7200.0)


def grown(question: SeriesQuestion) -> Growth:
    found = examine(question).growth
    assert found is not None
    return found


def test_a_fill_that_ended_is_not_still_going_and_bends(noise: Draw, ask: Ask) -> None:
    ended = grown(ask(noise(7200, 1, 1.0) + 0.05 * np.minimum(T, 5500)))
    going = grown(ask(noise(7200, 1, 1.0) + 0.05 * T))
    assert (ended.still, ended.slowing) == (False, True)
    assert (going.still, going.slowing) == (True, False)


def test_a_saturating_fill_longer_than_the_run_is_slowing() -> None:
    t = np.arange(1800.0)
    found = grown(SeriesQuestion(t, 1500 * (1 - np.exp(-t / 1200)) + 0.1 * np.sin(t)))
    assert found.bend < -2.5


@pytest.mark.parametrize(("seed", "tau"), [(9, 525.0), (31, 1075.0)])
def test_a_coarse_time_constant_is_not_taken_for_noise(noise: Draw, ask: Ask, seed: int, tau: float) -> None:
    found = judge_series(ask(noise(7200, seed, 1.0) + 1500 * (1 - np.exp(-T / tau)) + 10 * T / 3600))
    assert found.verdict is Leak.LEAK
    assert found.evidence.tau == pytest.approx(tau, rel=0.1)


@pytest.mark.parametrize(
    ("seed", "tau", "size"), [(30, 840.0, 230.0), (89, 840.0, 230.0), (36, 1140.0, 1100.0), (90, 1140.0, 1100.0)]
)
def test_the_end_of_a_warm_up_is_no_leak_of_the_last_half(
    noise: Draw, ask: Ask, seed: int, tau: float, size: float
) -> None:
    found = judge_series(ask(noise(7200, seed, 1.0) + size * (1 - np.exp(-T / tau))))
    assert (found.verdict is Leak.LEAK, found.shape) == (False, Shape.WARM_UP)


def test_a_leak_that_begins_after_the_warm_up_is_found_in_the_last_half(noise: Draw, ask: Ask) -> None:
    y = noise(7200, 30, 1.0) + 230 * (1 - np.exp(-T / 840)) + 40 * np.maximum(T - 3600, 0) / 3600
    assert judge_series(ask(y)).verdict is Leak.LEAK


def test_seven_moves_up_are_beyond_chance_and_six_are_not() -> None:
    assert sign_probability(7, 0) < 0.01 < sign_probability(6, 0)
    assert sign_probability(0, 0) == 1.0


def test_an_exact_line_has_its_slope_and_a_constant_none() -> None:
    t = np.arange(30.0)
    line, constant = fit_trend(t, 3 * t + 5), fit_trend(t, np.full(30, 7.0))
    assert line.slope == pytest.approx(3.0)
    assert line.ratio > 1000
    assert (constant.slope, constant.sd, constant.ratio) == (0.0, 0.0, 0.0)


def test_white_noise_and_a_random_walk_are_told_apart() -> None:
    shocks = np.random.default_rng(3).standard_normal(240)
    t = np.arange(240.0)
    white, walk = fit_trend(t, shocks), fit_trend(t, np.cumsum(shocks))
    assert white.length < 10 < 50 < walk.length
    assert white.rho < 0.3 < 0.9 < walk.rho
