from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from soakd.analysis.blocks import MOST_BLOCKS
from soakd.analysis.judge import Leak
from soakd.analysis.online import MonitorConfig, SeriesMonitor
from soakd.analysis.series import Floats, SeriesJudgement

Draw = Callable[..., Floats]
TWO_HOURS = MonitorConfig(page=2.0, unit="MiB", wanted_span=7200.0)


def fed(monitor: SeriesMonitor, y: Floats, start: int = 0) -> list[SeriesJudgement]:
    looks = []
    for i, value in enumerate(y):
        monitor.add(float(start + i), 2.0 * np.floor((20000.0 + value) / 2.0))
        found = monitor.look(float(start + i))
        if found is not None:
            looks.append(found)
    return looks


def test_a_leak_is_said_at_the_third_look_in_a_row_that_finds_it(noise: Draw) -> None:
    monitor = SeriesMonitor(TWO_HOURS)
    looks = fed(monitor, noise(7200, 1, 1.0) + 60 * np.arange(7200.0) / 3600)
    verdicts = [j.verdict for j in looks]
    first = verdicts.index(Leak.LEAK)
    assert verdicts[first - 2 : first] == [Leak.INCONCLUSIVE, Leak.INCONCLUSIVE]
    assert ["1 of 3" in looks[first - 2].why, "2 of 3" in looks[first - 1].why] == [True, True]
    assert monitor.detected_at is not None
    assert 1800 < monitor.detected_at < 3600


def test_looks_are_few_and_begin_after_a_quarter_of_the_run(noise: Draw) -> None:
    monitor = SeriesMonitor(TWO_HOURS)
    assert monitor.look(0.0) is None
    assert fed(monitor, noise(1799, 2)) == []
    looks = fed(monitor, noise(5401, 3), start=1799)
    assert 12 <= len(looks) <= 22


def test_looks_fall_on_fixed_shares_of_the_run_with_one_at_half_time(noise: Draw) -> None:
    monitor = SeriesMonitor(TWO_HOURS)
    at = []
    for i, value in enumerate(noise(7201, 3)):
        monitor.add(float(i), float(value))
        # the judging thread may be late by a few seconds
        if monitor.due(float(i)) and i % 7 == 0:
            at.append(i)
            monitor.begin(float(i))
    assert len(at) in (18, 19)
    assert sum(3600 <= i < 3607 for i in at) == 1
    assert [i // 7 for i in at] == [-(-1800 * 2 ** (k / 9) // 7) for k in range(len(at))]


def test_the_error_is_spent_at_half_time(noise: Draw) -> None:
    monitor = SeriesMonitor(TWO_HOURS)
    levels = {}
    for i, value in enumerate(noise(7201, 3)):
        monitor.add(float(i), float(value))
        look = monitor.begin(float(i))
        if look is not None:
            levels[i / 7200] = look.level
    interim = [share for share, level in levels.items() if level == 0.01 and share < 0.6]
    assert len(interim) == 3
    assert max(interim) == pytest.approx(0.5, abs=0.001)
    assert all(level < 2e-4 for share, level in levels.items() if share < 0.42)
    late = [level for share, level in levels.items() if share > 0.52]
    assert late == sorted(late)
    assert (late[0], late[-1]) == pytest.approx((0.0013, 0.01), rel=0.05)


def test_an_open_ended_dense_series_is_looked_at_after_two_minutes(noise: Draw) -> None:
    monitor = SeriesMonitor(MonitorConfig(page=2.0))
    assert fed(monitor, noise(120, 4)) == []
    assert len(fed(monitor, noise(2, 4), start=120)) == 1


@pytest.mark.parametrize("seed", range(6))
def test_a_warm_up_is_not_taken_for_a_leak_on_the_way(noise: Draw, seed: int) -> None:
    monitor = SeriesMonitor(TWO_HOURS)
    fed(monitor, noise(7200, seed, 1.0) + 1500 * (1 - np.exp(-np.arange(7200.0) / 1000)))
    assert monitor.detected_at is None


def test_a_sawtooth_seen_once_is_not_taken_for_a_leak(noise: Draw) -> None:
    monitor = SeriesMonitor(TWO_HOURS)
    fed(monitor, noise(7200, 5, 1.0) + 300 * ((np.arange(7200.0) / 1100 + 0.3) % 1))
    assert monitor.detected_at is None


def test_a_restored_monitor_goes_on_as_if_it_had_never_stopped(noise: Draw) -> None:
    y = noise(7200, 6, 1.0) + 60 * np.arange(7200.0) / 3600
    whole, first = SeriesMonitor(TWO_HOURS), SeriesMonitor(TWO_HOURS)
    fed(whole, y)
    fed(first, y[:2000])
    second = SeriesMonitor.restore(TWO_HOURS, first.dump())
    fed(second, y[2000:], start=2000)
    assert second.detected_at == whole.detected_at
    assert second.dump() == whole.dump()


@pytest.mark.parametrize("state", [b"", b"{}", b'{"version": 99}', b"[1]", b"null"])
def test_a_state_of_another_kind_is_refused(state: bytes) -> None:
    with pytest.raises(ValueError, match="state"):
        SeriesMonitor.restore(TWO_HOURS, state)


def test_memory_is_bounded_whatever_the_length() -> None:
    monitor = SeriesMonitor(MonitorConfig())
    for i in range(60_000):
        monitor.add(float(i), float(i % 97))
    assert len(monitor.state().rows) <= 2 * MOST_BLOCKS
    assert len(monitor.dump()) < 150_000


def test_a_restart_parts_the_lifetimes(noise: Draw) -> None:
    monitor = SeriesMonitor(MonitorConfig(page=2.0, wanted_span=7200.0))
    fed(monitor, noise(3600, 7, 1.0))
    monitor.restarted(3600.0)
    fed(monitor, noise(3600, 8, 1.0) + 800, start=3600)
    final = monitor.final()
    assert final.verdict is not Leak.LEAK
    assert len(final.evidence.segments) == 2
