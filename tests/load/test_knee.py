from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from soakd.load.histogram import Histogram
from soakd.load.knee import Interval, Knee, Level, find_knee, next_load, p95_interval, steady_from

LLAMACPP = {1: 300, 2: 302, 4: 305, 8: 311, 10: 315, 12: 320, 13: 680, 16: 860, 24: 1300}
VLLM = {1: 268, 4: 274, 8: 279, 16: 283, 24: 287, 28: 290, 29: 410, 32: 455, 48: 690}


def level(load: float, p95_s: float, width: float = 0.05) -> Level:
    interval = Interval(p95_s, p95_s * (1 - width / 2), p95_s * (1 + width / 2), 1000, 1000)
    return Level(load, interval, True, load / p95_s)


def sweep(curve: Callable[[float], float], last: float = 256, first: float = 1) -> tuple[Knee, list[float]]:
    tried: list[Level] = []
    while (load := next_load(tried, first, last, whole=True, knee=find_knee(tried))) is not None:
        assert all(load != t.level for t in tried)
        tried.append(level(load, curve(load)))
        assert len(tried) < 40
    return find_knee(tried), [t.level for t in tried]


@pytest.mark.parametrize(
    ("curve", "knee", "at", "after"), [(LLAMACPP, 12, 0.320, 0.680), (VLLM, 28, 0.290, 0.410)], ids=["llamacpp", "vllm"]
)
def test_the_knees_of_the_published_evaluation(curve: dict[int, int], knee: int, at: float, after: float) -> None:
    found = find_knee([level(n, ms / 1e3) for n, ms in curve.items()])
    assert (found.level, found.p95_s, found.next_p95_s) == (knee, at, after)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= knee <= found.high
    assert f"{at * 1e3:.0f} ms at {knee} to {after * 1e3:.0f} ms" in found.why


@pytest.mark.parametrize(
    ("curve", "knee"),
    [
        (lambda n: 0.32 if n <= 12 else 0.68 + (n - 13) * 0.05, 12),
        (lambda n: 0.29 if n <= 28 else 0.41 + (n - 29) * 0.02, 28),
        (lambda n: 0.29 if n <= 28 else 0.41, 28),
        (lambda n: 0.1 * max(1, n / 4), 4),
        (lambda n: 0.2 * max(1, n / 30), 30),
        (lambda n: 0.1 + 0.01 * min(n, 12) if n <= 12 else 0.6 + (n - 13) * 0.04, 12),
    ],
    ids=["jump-12", "jump-28", "second-plateau", "four-slots", "kink-30", "rising-plateau"],
)
def test_a_sweep_closes_in_on_the_knee(curve: Callable[[float], float], knee: int) -> None:
    found, loads = sweep(curve, 64)
    assert found.level is not None
    assert found.level == pytest.approx(knee, rel=0.1)
    assert len(loads) <= 15


@pytest.mark.parametrize("curve", [lambda n: 0.1, lambda n: 0.1 * (1 + 0.01 * n)], ids=["flat", "slow-rise"])
def test_a_plateau_that_is_not_left_has_no_knee(curve: Callable[[float], float]) -> None:
    found, loads = sweep(curve, 64)
    assert found.level is None
    assert found.low == 64
    assert "has not left its plateau" in found.why
    assert loads == [1, 2, 4, 8, 16, 32, 64]


def test_noise_moves_the_knee_within_its_interval() -> None:
    source = random.Random(3)
    covered = 0
    for _ in range(30):
        knee, _ = sweep(lambda n: 0.2 * max(1, n / 20) * math.exp(source.gauss(0, 0.0128)))
        assert knee.low is not None
        covered += knee.low <= 20 <= (knee.high or math.inf)
    assert covered >= 28


def test_a_queue_that_grows_is_beyond_the_knee() -> None:
    steps = [
        level(1, 0.2),
        level(2, 0.2),
        level(4, 0.21),
        Level(8, None, settled=False),
        Level(16, None, settled=False),
    ]
    found = find_knee(steps)
    assert (found.level, found.next_level, found.next_p95_s) == (4, 8, None)
    assert "never settles" in found.why


def test_one_slow_load_between_fast_ones_is_no_knee() -> None:
    steps = [level(n, 0.2 if n != 8 else 0.5) for n in (1, 2, 4, 8, 16, 32)]
    assert find_knee(steps).level is None


def test_two_loads_are_too_few() -> None:
    assert "fewer than three" in find_knee([level(1, 0.1), level(2, 0.3)]).why


def histograms(source: random.Random, windows: int, each: int, wobble: float = 0.0) -> list[Histogram]:
    found = []
    for _ in range(windows):
        scale = math.exp(source.gauss(0, wobble))
        h = Histogram()
        for _ in range(each):
            h.record(int(source.lognormvariate(0, 0.5) * scale * 1e8))
        found.append(h)
    return found


def test_the_interval_of_p95_holds_the_truth() -> None:
    truth = 0.1 * math.exp(0.5 * 1.6449)
    source = random.Random(5)
    inside = 0
    for _ in range(100):
        p95 = p95_interval(histograms(source, 10, 40))
        assert p95 is not None
        assert p95.high is not None
        inside += p95.low * 0.99 <= truth <= p95.high * 1.01
    assert inside >= 92


def test_requests_that_are_alike_within_a_window_count_for_less() -> None:
    source = random.Random(6)
    independent = p95_interval(histograms(source, 20, 100))
    alike = p95_interval(histograms(source, 20, 100, wobble=0.5))
    assert independent is not None
    assert alike is not None
    assert independent.effective > 1000
    assert alike.effective < 500
    assert alike.low < alike.value < (alike.high or math.inf)


def test_few_requests_have_no_upper_end() -> None:
    few = p95_interval(histograms(random.Random(1), 1, 50))
    assert few is not None
    assert few.high is None
    assert few.relative_width is None
    assert p95_interval([Histogram()]) is None


def test_steady_state_begins_after_the_warm_up() -> None:
    source = random.Random(2)
    warm = [5, 20, 45, 70, 90] + [source.gauss(100, 3) for _ in range(15)]
    assert steady_from([warm]) in (3, 4, 5)
    assert steady_from([[100.0] * 20, warm]) in (3, 4, 5)


def test_a_queue_that_grows_is_never_steady() -> None:
    source = random.Random(2)
    assert steady_from([[10 + 3 * i + source.gauss(0, 2) for i in range(40)]]) is None


def test_a_few_windows_are_not_enough() -> None:
    assert steady_from([[1.0] * 4]) is None
    assert steady_from([[1.0] * 5]) == 0
    assert steady_from([[]]) is None


def test_noise_without_a_trend_is_steady() -> None:
    source = random.Random(9)
    steady = [steady_from([[max(1.0, source.gauss(100, 25)) for _ in range(20)]]) for _ in range(50)]
    assert sum(s is not None and s <= 8 for s in steady) >= 48
