from __future__ import annotations

import numpy as np
import pytest

from soakd.analysis.ratios import Drift, RatioJudgement, RatioQuestion, judge_ratio
from soakd.analysis.series import Floats


def counters(ratios: Floats, seed: int = 1, tokens: float = 1000.0) -> RatioQuestion:
    """Counters read every 5 s whose steps had about these ratios."""
    rng = np.random.default_rng(seed)
    whole = rng.poisson(rng.gamma(2, tokens / 2, size=len(ratios)))
    part = rng.binomial(whole, np.clip(ratios, 0, 1))
    readings = [np.concatenate([[7.0], 7.0 + np.cumsum(steps)]) for steps in (part, whole)]
    return RatioQuestion(5.0 * np.arange(len(ratios) + 1, dtype=np.float64), readings[0], readings[1], "acceptance")


def alike(n: int, rho: float, seed: int) -> Floats:
    """Noise whose neighbours are alike."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=n)
    for i in range(1, n):
        noise[i] = rho * noise[i - 1] + (1 - rho**2) ** 0.5 * noise[i]
    return noise


def test_a_ratio_that_stays_is_told_with_an_interval_that_holds_it() -> None:
    found = judge_ratio(counters(np.full(400, 0.6)))
    assert found.drift is Drift.STEADY
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.6 < found.high
    assert found.high - found.low < 0.02
    assert f"acceptance is {found.ratio:.1%}" in found.why


@pytest.mark.parametrize(("to", "drift"), [(0.45, Drift.FELL), (0.75, Drift.ROSE), (0.59, Drift.STEADY)])
def test_a_change_beyond_noise_is_drift_and_a_small_one_is_not(to: float, drift: Drift) -> None:
    found = judge_ratio(counters(np.linspace(0.6, to, 400)))
    assert found.drift is drift
    assert found.change == pytest.approx((to - 0.6) * 0.75, abs=0.02)
    assert found.change_low is not None
    assert found.change_high is not None
    assert found.change_low <= (to - 0.6) * 0.75 <= found.change_high


@pytest.mark.parametrize("rho", [0.0, 0.6, 0.9])
@pytest.mark.parametrize("n", [60, 360])
def test_noise_alone_is_seldom_drift_even_where_neighbours_are_alike(n: int, rho: float) -> None:
    found = [judge_ratio(counters(0.6 + 0.1 * alike(n, rho, seed), seed)) for seed in range(200)]
    assert sum(f.drift is not Drift.STEADY for f in found) <= 12  # 2 % are expected, 6 % is the bound


def test_a_ratio_of_sums_is_not_a_mean_of_ratios() -> None:
    x, whole = 5.0 * np.arange(61, dtype=np.float64), np.cumsum([0.0] + [1000.0, 10.0] * 30)
    part = np.cumsum([0.0] + [900.0, 0.0] * 30)
    assert judge_ratio(RatioQuestion(x, part, whole)).ratio == pytest.approx(900 / 1010)


def test_a_restart_of_the_server_starts_both_counters_anew() -> None:
    question = counters(np.full(200, 0.6))
    part, whole = question.part.copy(), question.whole.copy()
    part[100:] -= part[99]
    whole[100:] -= whole[99]
    found = judge_ratio(RatioQuestion(question.x, part, whole))
    assert found.drift is Drift.STEADY
    assert found.ratio == pytest.approx(0.6, abs=0.02)


def test_all_or_nothing_has_an_interval_too() -> None:
    for ratio in (0.0, 1.0):
        found = judge_ratio(counters(np.full(200, ratio)))
        assert (found.ratio, found.drift) == (ratio, Drift.STEADY)
        assert found.change_low is not None
        assert found.change_low < 0


def unknown(found: RatioJudgement) -> bool:
    return found.drift is Drift.UNKNOWN and found.change is None and found.early is None


def test_what_can_t_be_told_is_unknown() -> None:
    few = judge_ratio(counters(np.full(20, 0.5)))
    assert unknown(few)
    assert few.ratio is not None
    idle = judge_ratio(RatioQuestion(np.arange(50.0), np.zeros(50), np.full(50, 9.0)))
    assert unknown(idle)
    assert idle.ratio is None
    late = counters(np.full(200, 0.5))
    quiet = RatioQuestion(late.x, np.maximum(late.part, late.part[100]), np.maximum(late.whole, late.whole[100]))
    assert unknown(judge_ratio(quiet))
    assert unknown(judge_ratio(RatioQuestion(np.empty(0), np.empty(0), np.empty(0))))
    with pytest.raises(ValueError, match="differ"):
        judge_ratio(RatioQuestion(np.arange(3.0), np.arange(2.0), np.arange(3.0)))
