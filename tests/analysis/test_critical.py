from __future__ import annotations

import pytest
from scipy.special import ndtri

from soakd.analysis.critical import critical_value, normal_tail_at, tail_probability


@pytest.mark.parametrize("points", [8, 24, 100, 240])
@pytest.mark.parametrize("share", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.002, 1e-4, 1e-6])
def test_tail_probability_inverts_the_critical_value(points: int, share: float, alpha: float) -> None:
    value = critical_value(alpha, share * points, points)
    assert tail_probability(value, share * points, points) == pytest.approx(alpha, rel=0.02)


def test_a_ratio_of_nothing_is_even_odds_and_signs_mirror() -> None:
    assert tail_probability(0.0, 3.0, 100) == pytest.approx(0.5)
    assert tail_probability(-2.0, 3.0, 100) == pytest.approx(1 - tail_probability(2.0, 3.0, 100))
    assert tail_probability(float("inf"), 3.0, 100) == 0.0


def test_a_random_walk_is_held_to_more_than_white_noise() -> None:
    assert critical_value(0.01, 240.0, 240) > critical_value(0.01, 0.3, 240)


def test_a_fit_with_steps_is_never_held_to_less_than_the_normal_value() -> None:
    assert critical_value(0.01, 1.0, 240, plain=False) >= -float(ndtri(0.01))


def test_an_early_look_is_held_to_a_smaller_level() -> None:
    assert normal_tail_at(0.01, 1.0) == pytest.approx(0.01)
    assert normal_tail_at(0.01, 0.25) == pytest.approx(1.6e-6, rel=0.05)
