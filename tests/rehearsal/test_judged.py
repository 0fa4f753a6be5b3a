"""What the statistics say of the simulated cards: healthy ones pass, each fault is found on its card with its rate."""

from __future__ import annotations

import numpy as np
import pytest

from soakd.analysis.judge import judge_series
from soakd.analysis.series import NVML_PAGE_BYTES, Leak, SeriesJudgement, SeriesQuestion, Shape
from soakd.rehearsal.activity import Activity, Change
from soakd.rehearsal.hardware import SimulatedDevice
from soakd.rehearsal.scenarios import CARD_BYTES, SCENARIOS

TWO_HOURS = 7200.0
SEEDS = range(1, 4)


def judged(
    name: str, card: int, seed: int, run: float = TWO_HOURS, step: float = 10.0, activity: Activity | None = None
) -> SeriesJudgement:
    device = SimulatedDevice(SCENARIOS[name], run, card, seed, activity or Activity.steady())
    x = np.arange(0.0, run, step)
    used = np.array([device.at(float(t)).used_bytes for t in x], dtype=np.float64)
    return judge_series(SeriesQuestion(x, used, page=NVML_PAGE_BYTES, total=float(CARD_BYTES)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_card_without_a_leak_is_never_said_to_leak(name: str, seed: int) -> None:
    leaking = {"leak": 1, "staircase": 1}.get(name)
    for card in (0, 1):
        if card != leaking:
            assert judged(name, card, seed).verdict is Leak.NO_LEAK


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("run", "step"), [(600.0, 5.0), (TWO_HOURS, 5.0), (TWO_HOURS, 15.0), (86_400.0, 60.0)])
def test_the_leak_is_found_at_its_true_rate_in_any_run(seed: int, run: float, step: float) -> None:
    found = judged("leak", 1, seed, run, step)
    (expected,) = SCENARIOS["leak"].expects(run)
    assert expected.value is not None
    assert (found.verdict, found.shape) == (Leak.LEAK, Shape.LINEAR)
    assert found.slope == pytest.approx(expected.value, rel=0.01)


@pytest.mark.parametrize("run", [600.0, 1800.0, TWO_HOURS])
def test_the_staircase_is_found_as_one(run: float) -> None:
    found = judged("staircase", 1, 1, run, run / 720)
    assert (found.verdict, found.shape) == (Leak.LEAK, Shape.STAIRCASE)


def test_the_staircase_of_two_hours_has_about_the_rate_it_says() -> None:
    found = judged("staircase", 1, 1)
    (expected,) = SCENARIOS["staircase"].expects(TWO_HOURS)
    assert found.slope_low is not None
    assert found.slope_high is not None
    assert expected.value is not None
    assert found.slope_low < expected.value < found.slope_high


def test_a_crash_is_a_restart_and_no_leak() -> None:
    lives = Activity((Change(-60, 5, False), Change(0, 5, True), Change(3240, None, False), Change(3456, 6, True)))
    found = judged("server-crash", 0, 1, activity=lives)
    assert (found.verdict, found.shape) == (Leak.NO_LEAK, Shape.RESTART)
