from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import soakd.analysis.growth as growth
from soakd.analysis.judge import Leak, SeriesQuestion, judge_series
from soakd.analysis.series import Floats
from soakd.analysis.shape import FoundJump, stairs_stay

Draw = Callable[..., Floats]
Ask = Callable[..., SeriesQuestion]
T = np.arange(7200.0)
KEPT = (T < 2900) | (T >= 3900)


def jumps(*at: tuple[int, float]) -> list[FoundJump]:
    return [FoundJump(index, float(index), size) for index, size in at]


def test_stairs_that_stay_are_told_from_bursts_whose_falls_were_missed() -> None:
    found = jumps((25, 40.0), (50, 40.0), (75, 40.0))
    stairs = np.repeat([0.0, 40.0, 80.0, 120.0], 25)
    bursts = np.zeros(100)
    bursts[[25, 26, 50, 51, 75, 76]] = 40.0
    assert stairs_stay(stairs, found)
    assert not stairs_stay(bursts, found)


def test_jumps_at_the_very_end_are_no_stairs_yet() -> None:
    low = np.zeros(100)
    low[97:] = [60.0, 90.0, 120.0]
    assert not stairs_stay(low, jumps((97, 60.0), (98, 30.0), (99, 30.0)))


def after_a_gap(noise: Draw, ask: Ask, seed: int) -> Leak:
    y = noise(7200, seed) + 14.0 * (T >= 3900)
    question = ask(y)
    return judge_series(SeriesQuestion(T[KEPT], question.y[KEPT], page=2.0, total=32768.0, unit="MiB")).verdict


def test_another_level_after_a_long_gap_is_no_growth(noise: Draw, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [after_a_gap(noise, ask, seed) for seed in range(12)]
    assert Leak.LEAK not in found
    monkeypatch.setattr(growth, "_MOST_GAPS", 0)
    assert Leak.LEAK in [after_a_gap(noise, ask, seed) for seed in range(12)]


def test_a_leak_is_found_across_a_gap(noise: Draw, ask: Ask) -> None:
    question = ask(noise(7200, 3) + 57 * T / 3600)
    found = judge_series(SeriesQuestion(T[KEPT], question.y[KEPT], page=2.0, total=32768.0, unit="MiB"))
    assert found.verdict is Leak.LEAK
    assert found.slope == pytest.approx(57, rel=0.2)
