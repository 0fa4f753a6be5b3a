"""The recordings of a served model on an H200: a leak of 128 KiB/s from 120 s, and one outside the allocator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from soakd.analysis.judge import Leak, SeriesJudgement, SeriesQuestion, Shape, judge_series
from soakd.analysis.online import MonitorConfig, SeriesMonitor
from soakd.analysis.series import NVML_PAGE_BYTES, Floats

Recording = Callable[[str, str], dict[str, Floats]]
INJECTED = 128 * 1024 * 3600.0


def judged(x: Floats, y: Floats, start: float, end: float, page: float) -> SeriesJudgement:
    inside = (x >= start) & (x < end)
    return judge_series(SeriesQuestion(x[inside], y[inside], page=page))


def outside_allocator(nvml: dict[str, Floats], torch: dict[str, Floats]) -> Floats:
    place = np.searchsorted(torch["t_s"], nvml["t_s"], side="right") - 1
    return nvml["proc_bytes"] - torch["reserved_bytes_all"][np.maximum(place, 0)]


@pytest.mark.parametrize("start", [0.0, 120.0])
def test_allocator_bytes_show_the_leak_within_two_minutes(recording: Recording, start: float) -> None:
    torch = recording("leak", "torch")
    found = judged(torch["serving_s"], torch["allocated_bytes_small_pool"], start, 240.0, 512.0)
    assert found.verdict is Leak.LEAK
    assert found.slope_now == pytest.approx(INJECTED, rel=0.1)


@pytest.mark.parametrize(
    ("start", "config"),
    [
        (0.0, MonitorConfig(page=512.0, wanted_span=430.0)),
        # a server that is warm already
        (120.0, MonitorConfig(page=512.0, wanted_span=310.0, warmup=0.0)),
    ],
)
def test_a_monitor_of_allocator_bytes_detects_it_within_two_minutes(
    recording: Recording, start: float, config: MonitorConfig
) -> None:
    torch = recording("leak", "torch")
    monitor = SeriesMonitor(config)
    for x, y in zip(torch["serving_s"], torch["allocated_bytes_small_pool"], strict=True):
        if start <= x < 430:
            monitor.add(x, y)
            monitor.look(x)
    assert monitor.detected_at is not None
    assert 120.0 < monitor.detected_at <= 240.0


@pytest.mark.parametrize("end", [180.0, 200.0, 240.0, 280.0, 300.0])
def test_nvml_used_stays_open_while_pools_still_jump(recording: Recording, end: float) -> None:
    nvml = recording("leak", "nvml")
    assert judged(nvml["serving_s"], nvml["nvml_used"], 120.0, end, NVML_PAGE_BYTES).verdict is Leak.INCONCLUSIVE


@pytest.mark.parametrize("start", [0.0, 120.0])
def test_nvml_used_shows_the_leak_once_the_jumps_are_over(recording: Recording, start: float) -> None:
    nvml = recording("leak", "nvml")
    found = judged(nvml["serving_s"], nvml["nvml_used"], start, 430.0, NVML_PAGE_BYTES)
    assert found.verdict is Leak.LEAK
    assert found.slope == pytest.approx(INJECTED, rel=0.1)
    # the pool jumps (768 and 1,812 MiB) are steps beside it
    late = [round(j.size / 2**20) for j in found.evidence.jumps if 120 < j.x < 430]
    assert late == pytest.approx([768, 1812], abs=50)


def test_pool_jumps_before_the_leak_are_no_slope(recording: Recording) -> None:
    torch = recording("clean", "torch")
    found = judged(torch["serving_s"], torch["reserved_bytes_all"], 0.0, 455.0, NVML_PAGE_BYTES)
    assert found.verdict is not Leak.LEAK
    assert found.shape in (Shape.WARM_UP, Shape.STEP)
    assert found.slope is not None
    assert abs(found.slope) < 5 * 2**20


def test_clean_grows_outside_the_allocator_and_in_host_memory(recording: Recording) -> None:
    nvml, torch = recording("clean", "nvml"), recording("clean", "torch")
    x = nvml["serving_s"]
    outside = judged(x, outside_allocator(nvml, torch), 0.0, 455.0, NVML_PAGE_BYTES)
    host = judged(x, nvml["rss_anon"], 0.0, 455.0, 4096.0)
    small = judged(torch["serving_s"], torch["allocated_bytes_small_pool"], 0.0, 455.0, 512.0)
    assert outside.verdict is Leak.LEAK
    assert outside.slope == pytest.approx(1290 * 1024 * 3600, rel=0.1)
    assert host.verdict is Leak.LEAK
    assert host.slope == pytest.approx(15 * 2**20 * 3600, rel=0.1)
    assert small.verdict is Leak.NO_LEAK


def test_a_small_pool_that_swings_to_near_nothing_has_not_died(recording: Recording) -> None:
    torch = recording("clean", "torch")
    found = judged(torch["serving_s"], torch["allocated_bytes_small_pool"], 0.0, 120.0, 512.0)
    assert found.verdict is Leak.NO_LEAK
    assert found.shape is not Shape.RESTART


def test_leak_is_inside_the_allocator(recording: Recording) -> None:
    nvml, torch = recording("leak", "nvml"), recording("leak", "torch")
    found = judged(nvml["serving_s"], outside_allocator(nvml, torch), 0.0, 430.0, NVML_PAGE_BYTES)
    assert found.verdict is Leak.NO_LEAK
    assert found.shape is Shape.FLAT


def test_the_end_of_the_server_is_a_restart_of_the_whole_file(recording: Recording) -> None:
    nvml = recording("clean", "nvml")
    found = judge_series(SeriesQuestion(nvml["t_s"], nvml["nvml_used"], page=NVML_PAGE_BYTES))
    assert found.shape is Shape.RESTART
