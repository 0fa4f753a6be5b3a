from __future__ import annotations

import pytest

from soakd.model import Event, Kind, Metric, Sample, Severity, State, labels
from soakd.soak.safety import TEMPERATURE, SafetyLimits, SafetyWatch

S = 1_000_000_000
CORE = Metric(TEMPERATURE, "celsius", Kind.GAUGE, "", "")
LIMITS = SafetyLimits(90.0, True, 0.5, 60.0)


def hot(celsius: float | None, card: str = "GPU-1", at: int = 0) -> Sample:
    tags = labels(gpu=card, sensor="core")
    return Sample.unknown(CORE, State.LOST, at, tags) if celsius is None else Sample.ok(CORE, celsius, at, tags)


def test_one_hot_reading_is_a_glitch_two_end_the_run() -> None:
    watch = SafetyWatch(LIMITS)
    assert watch.step([hot(91)]) is None
    stop = watch.step([hot(92)])
    assert stop is not None
    assert stop.rule == "gpu_temperature"
    assert "92 C" in stop.why


@pytest.mark.parametrize("between", [[hot(89)], [hot(None), hot(89)]])
def test_a_cool_reading_between_starts_again(between: list[Sample]) -> None:
    watch = SafetyWatch(LIMITS)
    for batch in ([hot(91)], between, [hot(91)]):
        assert watch.step(batch) is None


def test_two_cards_are_two_counts() -> None:
    watch = SafetyWatch(LIMITS)
    assert watch.step([hot(91, "GPU-1"), hot(91, "GPU-2")]) is None


@pytest.mark.parametrize(("kind", "ends"), [("reboot", True), ("reset", False), ("application", False)])
def test_only_an_xid_that_asks_for_a_reboot_ends_the_run(kind: str, ends: bool) -> None:
    xid = Event("xid", 5, "XID 79: GPU has fallen off the bus", Severity.CRITICAL, (), (("class", kind),))
    assert (SafetyWatch(LIMITS).step([xid]) is not None) is ends


def run(watch: SafetyWatch, failing_from: int, seconds: int, failing: float) -> int | None:
    completed = failed = 0.0
    for second in range(seconds):
        share = failing if second >= failing_from else 0.0
        failed += 10 * share
        completed += 10 * (1 - share)
        if watch.requests(second * S, int(completed), int(failed)):
            return second
    return None


def test_most_requests_failing_for_a_minute_end_the_run() -> None:
    ended = run(SafetyWatch(LIMITS), failing_from=100, seconds=400, failing=1.0)
    assert ended is not None
    assert 125 <= ended <= 140
    assert run(SafetyWatch(LIMITS), failing_from=100, seconds=4000, failing=0.4) is None


def test_nothing_is_judged_before_a_window_is_full_or_with_few_requests() -> None:
    assert run(SafetyWatch(LIMITS), failing_from=0, seconds=50, failing=1.0) is None
    watch = SafetyWatch(LIMITS)
    assert all(watch.requests(s * S, 0, s // 20) is None for s in range(100))


def test_switched_off_limits_never_end_a_run() -> None:
    watch = SafetyWatch(SafetyLimits(None, False, None, 60.0))
    xid = Event("xid", 5, "XID 79", Severity.CRITICAL, (), (("class", "reboot"),))
    assert watch.step([hot(200), hot(200), xid]) is None
    assert run(watch, failing_from=0, seconds=500, failing=1.0) is None
