from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soakd.analysis.judge import Leak, SeriesQuestion, Shape, holm, judge_family, judge_series
from soakd.analysis.series import Floats

Draw = Callable[..., Floats]
Ask = Callable[..., SeriesQuestion]
T = np.arange(7200.0)
SEEDS = range(12)


@pytest.mark.parametrize("sigma", [0.0, 1.0, 4.0, 16.0])
def test_noise_without_growth_is_flat(noise: Draw, ask: Ask, sigma: float) -> None:
    found = [judge_series(ask(noise(7200, s, sigma))) for s in SEEDS]
    assert {j.shape for j in found} == {Shape.FLAT}
    assert Leak.LEAK not in {j.verdict for j in found}


def test_slow_wandering_is_no_leak(noise: Draw, ask: Ask) -> None:
    found = [judge_series(ask(noise(7200, s, 4.0, 0.999))) for s in SEEDS]
    assert Leak.LEAK not in {j.verdict for j in found}


def test_a_leak_is_found_with_its_slope_inside_the_interval(noise: Draw, ask: Ask) -> None:
    slope = 28.5
    found = [judge_series(ask(noise(7200, s) + slope * T / 3600)) for s in SEEDS]
    assert {(j.verdict, j.shape) for j in found} == {(Leak.LEAK, Shape.LINEAR)}
    assert all(
        j.slope_low is not None and j.slope_high is not None and j.slope_low <= slope <= j.slope_high for j in found
    )
    assert found[0].percent_per_hour == pytest.approx(0.087, rel=0.2)


def test_warm_up_is_named_and_is_no_leak(noise: Draw, ask: Ask) -> None:
    found = [judge_series(ask(noise(7200, s) + 900 * (1 - np.exp(-T / 500)))) for s in SEEDS]
    assert {(j.verdict, j.shape) for j in found} <= {(Leak.NO_LEAK, Shape.WARM_UP), (Leak.INCONCLUSIVE, Shape.WARM_UP)}


def test_a_leak_beside_a_warm_up_keeps_its_slope(noise: Draw, ask: Ask) -> None:
    found = judge_series(ask(noise(7200, 1) + 900 * (1 - np.exp(-T / 500)) + 57 * T / 3600))
    assert found.verdict is Leak.LEAK
    assert found.slope == pytest.approx(57, rel=0.15)
    assert found.evidence.tau == pytest.approx(500, rel=0.5)


def test_a_step_is_a_step(noise: Draw, ask: Ask) -> None:
    found = judge_series(ask(noise(7200, 2) + 200 * (T > 4000)))
    assert (found.verdict, found.shape) == (Leak.NO_LEAK, Shape.STEP)
    assert [round(j.x, -1) for j in found.evidence.jumps] == [4000]
    assert found.evidence.jumps[0].size == pytest.approx(200, abs=12)


@pytest.mark.parametrize("period", [20.0, 300.0, 700.0, 1200.0])
def test_a_sawtooth_is_judged_by_its_troughs(noise: Draw, ask: Ask, period: float) -> None:
    teeth = 300 * ((T / period) % 1.0)
    flat = judge_series(ask(noise(7200, 3, 1.0) + teeth))
    rising = judge_series(ask(noise(7200, 3, 1.0) + teeth + 40 * T / 3600))
    assert (flat.verdict, flat.shape) == (Leak.NO_LEAK, Shape.SAWTOOTH)
    assert (rising.verdict, rising.shape) == (Leak.LEAK, Shape.SAWTOOTH)
    assert rising.slope == pytest.approx(40, rel=0.15)


def test_a_staircase_that_goes_on_is_a_leak_over_whole_periods(ask: Ask) -> None:
    found = judge_series(ask(40 * np.floor(T / 500)))
    assert (found.verdict, found.shape) == (Leak.LEAK, Shape.STAIRCASE)
    assert found.slope == pytest.approx(40 / 500 * 3600, rel=0.05)
    assert found.slope_now == pytest.approx(40 / 500 * 3600, rel=0.2)


def test_pools_that_fill_ever_more_rarely_are_a_warm_up(ask: Ask) -> None:
    y = sum((900.0 * (at <= T) for at in (2, 6, 15, 40, 100, 260, 700, 1800)), np.zeros(7200))
    found = judge_series(ask(y))
    assert found.verdict is Leak.NO_LEAK
    assert found.shape in (Shape.WARM_UP, Shape.STEP)


def test_a_warm_up_that_goes_on_is_not_yet_a_leak(noise: Draw, ask: Ask) -> None:
    t = np.arange(1800.0)
    found = [judge_series(ask(noise(1800, s, 1.0) + 1500 * (1 - np.exp(-t / 1500)))) for s in SEEDS]
    assert Leak.LEAK not in {j.verdict for j in found}
    assert any("slowing down" in j.why or "not over" in j.why for j in found)


def test_a_straight_fill_that_has_ended_is_a_warm_up(noise: Draw, ask: Ask) -> None:
    found = judge_series(ask(noise(7200, 4, 1.0) + 0.05 * np.minimum(T, 3000)))
    assert found.verdict is not Leak.LEAK
    assert found.shape is Shape.WARM_UP


@pytest.mark.parametrize("tau", [300.0, 700.0, 1150.0])
def test_a_large_warm_up_of_any_time_constant_leaves_no_slope(noise: Draw, ask: Ask, tau: float) -> None:
    found = judge_series(ask(noise(7200, 5, 1.0) + 2000 * (1 - np.exp(-T / tau))))
    assert found.verdict is not Leak.LEAK
    assert found.slope_high is not None
    assert found.slope_high < 12


@pytest.mark.parametrize(
    ("grows_until", "jump_at", "verdict"),
    [
        (7200, 2000, Leak.LEAK),
        (7200, 6700, Leak.LEAK),
        (7200, 7100, Leak.LEAK),
        (6500, 6500, Leak.INCONCLUSIVE),
        (5500, 6700, Leak.INCONCLUSIVE),
    ],
)
def test_growth_before_a_late_jump_must_show_after_it(ask: Ask, grows_until: int, jump_at: int, verdict: Leak) -> None:
    pages = 2 * np.floor(np.minimum(T, grows_until) / 150)
    assert judge_series(ask(pages + 700 * (jump_at < T))).verdict is verdict


def test_a_jump_at_the_end_of_the_warm_up_is_no_part_of_the_slope(ask: Ask) -> None:
    t = np.arange(0.0, 480.0, 0.2)
    found = judge_series(replace(ask(2 * np.floor(t / 16) + 1800 * (t > 119.4) + 900 * (t > 122.4)), x=t))
    assert found.slope == pytest.approx(450, rel=0.05)


TEN = np.arange(0.0, 7200.0, 10.0)


def ask_ten(y: Floats) -> SeriesQuestion:
    return SeriesQuestion(
        TEN, np.asarray(np.round(10000.0 + y, 1), dtype=np.float64), page=2.0, total=32768.0, unit="MiB"
    )


@pytest.mark.parametrize("half_period", [150, 300, 600, 900])
def test_what_comes_and_goes_leaves_no_slope(noise: Draw, half_period: int) -> None:
    swing = np.asarray(500.0 * ((TEN // half_period + 1) % 2), dtype=np.float64)
    found = [judge_series(ask_ten(noise(720, s, 4.0, 0.9) + swing)) for s in range(20)]
    assert Leak.LEAK not in {j.verdict for j in found}
    assert sum(j.verdict is Leak.NO_LEAK for j in found) >= 15


@pytest.mark.parametrize("every", [1800, 1200, 900])
def test_even_steps_are_not_cleared(every: int) -> None:
    found = judge_series(ask_ten(256.0 * np.floor(TEN / every)))
    assert (found.verdict, found.shape) == (Leak.INCONCLUSIVE, Shape.STAIRCASE)


def test_even_steps_that_keep_within_the_limit_are_cleared() -> None:
    question = ask_ten(16.0 * (TEN // 1800))
    assert judge_series(replace(question, limit=64.0)).verdict is Leak.NO_LEAK
    assert judge_series(replace(question, limit=20.0)).verdict is Leak.INCONCLUSIVE


def test_pools_that_thin_out_are_still_a_warm_up() -> None:
    y = 256.0 * np.searchsorted([700.0, 1300.0, 3000.0], TEN).astype(np.float64)
    found = judge_series(ask_ten(y))
    assert (found.verdict, found.shape) == (Leak.NO_LEAK, Shape.WARM_UP)


@pytest.mark.parametrize("seed", range(6))
def test_a_leak_that_began_just_now_is_not_called_flat(noise: Draw, seed: int) -> None:
    found = judge_series(ask_ten(noise(720, seed, 4.0, 0.9) + 1000 * np.maximum(TEN / 3600 - 1.8, 0)))
    assert found.verdict is not Leak.NO_LEAK
    assert found.shape is not Shape.FLAT or found.verdict is Leak.INCONCLUSIVE


@pytest.mark.parametrize("sigma", [0.0, 4.0])
def test_growth_like_a_logarithm_is_not_said_to_have_stopped(noise: Draw, sigma: float) -> None:
    question = ask_ten(noise(720, 1, sigma, 0.9) + 500 * np.log1p(TEN / 60))
    found = judge_series(question)
    assert found.verdict is Leak.INCONCLUSIVE
    assert "ever more slowly" in found.why
    assert "no longer" not in found.why
    assert judge_series(replace(question, limit=64.0)).verdict is Leak.INCONCLUSIVE
    assert judge_series(replace(question, limit=900.0)).verdict is Leak.NO_LEAK


def test_growth_whose_last_half_does_not_show_it_may_go_on(noise: Draw) -> None:
    found = [judge_series(ask_ten(noise(720, s, 4.0, 0.9) + 100 * np.minimum(TEN / 3600, 1.5))) for s in range(12)]
    leaks = [j for j in found if j.verdict is Leak.LEAK]
    assert leaks
    assert all("has not stopped" not in j.why for j in leaks if (j.slope_now or 0.0) <= 0)


def test_a_sensor_that_missed_is_no_death(noise: Draw) -> None:
    y = noise(720, 1, 4.0, 0.9) + 60 * TEN / 3600
    y[[100, 250, 400, 401, 600]] = -10000.0
    found = judge_series(ask_ten(y))
    assert (found.verdict, found.shape) == (Leak.LEAK, Shape.LINEAR)
    assert found.slope == pytest.approx(60, rel=0.15)


def test_three_seconds_of_nothing_at_1_hz_are_a_death(noise: Draw, ask: Ask) -> None:
    y = noise(7200, 1, 1.0)
    y[3600:3603] = -20000.0
    assert judge_series(ask(y)).shape is Shape.RESTART
    y = noise(7200, 1, 1.0)
    y[3600] = -20000.0
    assert judge_series(ask(y)).shape is Shape.FLAT


def test_growth_within_the_limit_is_named_and_no_warm_up(noise: Draw) -> None:
    found = judge_series(replace(ask_ten(noise(720, 3, 1.0, 0.0) + 100 * TEN / 3600), limit=200.0))
    assert (found.verdict, found.shape) == (Leak.NO_LEAK, Shape.LINEAR)
    assert "within the limit of 200 MiB/h" in found.why
    assert "warm" not in found.why


def test_growth_that_was_not_even_says_so_and_its_interval_holds_the_slope_now(noise: Draw, ask: Ask) -> None:
    found = judge_series(ask(noise(3600, 1, 1.0, 0.0) + 180 * np.maximum(np.arange(3600.0) - 1800, 0) / 3600))
    assert found.verdict is Leak.LEAK
    assert found.slope_now == pytest.approx(180, rel=0.02)
    assert found.slope_low is not None
    assert found.slope_high is not None
    assert found.slope_low <= 180 <= found.slope_high
    assert "MiB/h in the last half" in found.why


def test_what_is_past_its_total_has_no_time_left(ask: Ask) -> None:
    found = judge_series(replace(ask(2 * np.floor(T / 10)), total=100.0))
    assert found.time_to_exhaustion == 0.0


def test_load_explains_what_it_drives(noise: Draw, ask: Ask) -> None:
    load = 1 + 31 * T / 7200 + noise(7200, 9, 3.0, 0.98)
    question = ask(noise(7200, 4) + 10 * load)
    assert judge_series(question).verdict is Leak.LEAK
    explained = judge_series(replace(question, load=load))
    assert explained.verdict is not Leak.LEAK
    assert explained.evidence.load_effect == pytest.approx(10, rel=0.1)


def test_a_dead_process_is_a_restart_and_no_leak(noise: Draw, ask: Ask) -> None:
    y = noise(7200, 5, 1.0)
    y[5000:] = -20000.0
    found = judge_series(ask(y))
    assert (found.verdict, found.shape) == (Leak.NO_LEAK, Shape.RESTART)
    assert "died" in found.why


def test_a_leak_in_each_lifetime_is_found_across_a_declared_restart(noise: Draw, ask: Ask) -> None:
    y = noise(7200, 6, 1.0) + 120 * (T % 4000) / 3600
    found = judge_series(ask(y, starts=(4000.0,)))
    assert (found.verdict, found.shape) == (Leak.LEAK, Shape.RESTART)
    assert found.slope == pytest.approx(120, rel=0.1)
    assert len(found.evidence.segments) == 2


def test_one_page_is_flat_and_few_pages_stay_open(ask: Ask) -> None:
    one = judge_series(ask(2.0 * (T > 3000)))
    three = judge_series(ask(2.0 * np.floor(T / 2000)))
    assert (one.verdict, one.shape) == (Leak.NO_LEAK, Shape.FLAT)
    assert three.verdict is Leak.INCONCLUSIVE
    assert three.needed_span is not None
    assert three.needed_span > 7200


@pytest.mark.parametrize(("limit", "verdict"), [(10.0, Leak.LEAK), (28.5, Leak.INCONCLUSIVE), (60.0, Leak.NO_LEAK)])
def test_a_limit_is_what_growth_is_measured_against(noise: Draw, ask: Ask, limit: float, verdict: Leak) -> None:
    assert judge_series(ask(noise(7200, 7) + 28.5 * T / 3600, limit=limit)).verdict is verdict


def test_a_run_too_short_for_its_limit_says_how_long_it_would_need(noise: Draw, ask: Ask) -> None:
    found = judge_series(ask(noise(900, 8), limit=4.0))
    assert found.verdict is Leak.INCONCLUSIVE
    assert found.smallest_detectable is not None
    assert found.smallest_detectable > 4.0
    assert found.needed_span is not None
    assert found.needed_span > 3600


def test_headroom_and_time_to_exhaustion(noise: Draw, ask: Ask) -> None:
    found = judge_series(ask(noise(7200, 9, 1.0) + 100 * T / 3600))
    assert found.headroom == pytest.approx(32768 - 20200, rel=0.01)
    assert found.time_to_exhaustion == pytest.approx(125.7, rel=0.05)


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_fewer_than_four_readings_prove_nothing(ask: Ask, n: int) -> None:
    found = judge_series(ask(1000.0 * np.arange(n)))
    assert (found.verdict, found.shape, found.points) == (Leak.INCONCLUSIVE, Shape.UNKNOWN, n)


def test_lengths_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="x has 3"):
        judge_series(SeriesQuestion(np.zeros(3), np.zeros(4)))


def test_order_duplicates_and_unknown_readings_change_nothing(noise: Draw, ask: Ask) -> None:
    question = ask(noise(3600, 10) + 60 * np.arange(3600.0) / 3600)
    shuffled = np.random.default_rng(1).permutation(3600)
    x = np.concatenate([question.x[shuffled], question.x[:50], [np.nan, 3.5]])
    y = np.concatenate([question.y[shuffled], question.y[:50], [1.0, np.nan]])
    assert judge_series(replace(question, x=x, y=y)) == judge_series(question)


@settings(max_examples=25, deadline=None)
@given(shift=st.floats(-1e6, 1e6), scale=st.floats(1e-3, 1e6), seed=st.integers(0, 999))
def test_units_do_not_matter(shift: float, scale: float, seed: int) -> None:
    y = np.cumsum(np.random.default_rng(seed).standard_normal(400)) + 0.2 * np.arange(400)
    x = np.arange(400.0)
    plain = judge_series(SeriesQuestion(x, y, unit=""))
    other = judge_series(SeriesQuestion(x + shift, scale * y, unit=""))
    assert (plain.verdict, plain.shape) == (other.verdict, other.shape)
    assert plain.slope is not None
    assert other.slope == pytest.approx(plain.slope * scale, rel=1e-3, abs=1e-6 * scale)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), max_size=60), st.integers(0, 3))
def test_any_numbers_get_an_answer(values: list[float], kind: int) -> None:
    y = np.array(values, dtype=np.float64)
    x = [np.arange(float(len(y))), y.copy(), np.zeros(len(y)), -np.arange(float(len(y)))][kind]
    found = judge_series(SeriesQuestion(x, y, page=1.0, total=100.0, cap=5.0, limit=1.0))
    assert found.verdict in Leak
    assert found.why


def test_a_family_is_held_to_less_than_each_of_its_members() -> None:
    assert holm([0.009, 0.3, 0.5], 0.01) == [0.0, 0.0, 0.0]
    assert holm([0.002, 0.3, 0.004], 0.01) == pytest.approx([0.01 / 3, 0.0, 0.005])


def test_one_leak_among_fifty_series_is_the_only_one_named(noise: Draw, ask: Ask) -> None:
    questions = [ask(noise(1800, 100 + s, 1.0)) for s in range(50)]
    questions[17] = ask(noise(1800, 117, 1.0) + 200 * np.arange(1800.0) / 3600)
    found = judge_family(questions)
    assert [i for i, j in enumerate(found) if j.verdict is Leak.LEAK] == [17]
