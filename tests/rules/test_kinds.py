"""Rule kinds at their edges, where the shipped rules do not go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from soakd.alerting.rule_files import kinds
from soakd.metrics import catalogue
from soakd.model import Labels, Sample, State, labels
from soakd.ports import Item
from soakd.rules.book import MOST_SERIES
from soakd.rules.condition import NS, Condition, Observation, Truth
from soakd.rules.options import RuleContext

METRICS = catalogue().by_name
T0 = 1_700_000_000 * NS
CARD = labels(gpu="G", bdf="b", sensor="core")


def condition(kind: str, **options: object) -> Condition[Any]:
    context = RuleContext(METRICS, kinds())
    found = context.kinds[kind]
    return found.build(found.config.model_validate(options, context=context))


class Stepper:
    def __init__(self, rule: Condition[Any]) -> None:
        self.rule, self.state = rule, rule.start()

    def __call__(self, at_s: float, *items: Item) -> Sequence[Observation]:
        self.state, said = self.rule.step(self.state, items, T0 + int(at_s * NS))
        return said


def ok(name: str, value: float, at_s: float, tags: Labels = ()) -> Sample:
    return Sample.ok(METRICS[name], value, T0 + int(at_s * NS), tags)


def test_band_counts_time_outside_and_a_gap_is_unknown_time() -> None:
    step = Stepper(condition("temperature_band", metric="gpu_temperature_celsius", center="78 celsius",
                             width="2 celsius", outside_above="10%", clear="5%", within="10m"))  # fmt: skip
    seen = [step(t, ok("gpu_temperature_celsius", 78, t, CARD))[0].truth for t in range(0, 600, 10)]
    assert (seen[10], seen[-1]) == (Truth.UNKNOWN, Truth.FALSE)
    out = [step(t, ok("gpu_temperature_celsius", 81, t, CARD))[0] for t in range(600, 680, 10)]
    assert [o.truth for o in out][-1] is Truth.TRUE
    assert 0.10 < (out[-1].value or 0) < 0.13
    unknown = Sample.unknown(METRICS["gpu_temperature_celsius"], State.LOST, T0, CARD)
    assert step(690, unknown)[0].truth is Truth.UNKNOWN
    after = step(3690, ok("gpu_temperature_celsius", 78, 3690, CARD))[0]
    assert after.truth is Truth.UNKNOWN, "an hour without readings is not an hour outside"


def test_band_cold_side_can_be_left_out() -> None:
    step = Stepper(condition("temperature_band", metric="gpu_temperature_celsius", center="78 celsius",
                             width="2 celsius", within="10m", both_sides=False))  # fmt: skip
    for t in range(0, 600, 10):
        said = step(t, ok("gpu_temperature_celsius", 40, t, CARD))
    assert said[0].truth is Truth.FALSE


def test_increase_over_epochs_wraps_and_gaps() -> None:
    step = Stepper(condition("increase", metric="host_oom_kills_total", above="5 processes", within="1m"))
    values = [(0, 1000.0), (10, 1001.0), (20, 2.0), (30, 3.0)]
    found = [step(t, ok("host_oom_kills_total", v, t))[0].value for t, v in values]
    assert found == [0, 1, 3, 4], "a restart counts from zero: no burst, nothing negative"
    (late,) = step(630, ok("host_oom_kills_total", 63.0, 630))
    assert late.value == 6.0, "sixty within ten minutes are six a minute"
    (old,) = step(600, ok("host_oom_kills_total", 999.0, 600)) or (late,)
    assert old.value == 6.0, "a reading out of order counts nothing"


def test_a_wrapping_counter_wraps() -> None:
    tags = labels(gpu="G", bdf="b", direction="rx")
    step = Stepper(condition("increase", metric="pcie_bytes_total", above="1 GiB", within="1m"))
    step(0, ok("pcie_bytes_total", 2**32 - 100, 0, tags))
    (said,) = step(1, ok("pcie_bytes_total", 100, 1, tags))
    assert said.value == 200


def test_series_are_bounded_and_counted() -> None:
    step = Stepper(condition("threshold", metric="gpu_temperature_celsius", above="85 celsius"))
    for i in range(MOST_SERIES + 50):
        step(i, ok("gpu_temperature_celsius", 90, i, labels(gpu=f"G{i}", bdf="b", sensor="core")))
    assert len(step.state.beyond) == MOST_SERIES
    assert step.state.beyond.left_out == 50
    step(90_000 + MOST_SERIES + 50)
    assert len(step.state.beyond) == 0, "what is not heard of for a day is forgotten"


def test_budget_says_nothing_of_a_handful_of_requests() -> None:
    step = Stepper(condition("burn_rate", bad=[{"metric": "load_requests_failed_total"}], budget="1%", factor=10,
                             total=[{"metric": "load_requests_completed_total"},
                                    {"metric": "load_requests_failed_total"}], at_least=20))  # fmt: skip

    def both(at_s: float, good: float, bad: float) -> Observation:
        (said,) = step(at_s, ok("load_requests_completed_total", good, at_s),
                       ok("load_requests_failed_total", bad, at_s))  # fmt: skip
        return said

    both(0, 0, 0)
    assert both(10, 5, 5).truth is Truth.UNKNOWN
    said = both(20, 40, 10)
    assert (said.truth, said.value) == (Truth.TRUE, 0.2)
    assert dict(said.fields)["burn"] == "20"


def test_composite_is_false_where_one_is_and_unknown_where_one_is_stale() -> None:
    step = Stepper(condition("composite", fresh="1m", all=[
        {"kind": "threshold", "metric": "gpu_temperature_celsius", "where": {"sensor": "core"}, "above": "85 celsius"},
        {"kind": "threshold", "metric": "gpu_power_watts", "above": "200 watts"},
    ]))  # fmt: skip
    hot = ok("gpu_temperature_celsius", 90, 0, CARD)
    power = labels(gpu="G", bdf="b", reading="average")
    assert [o.truth for o in step(0, hot)] == [Truth.UNKNOWN]
    assert [o.truth for o in step(1, ok("gpu_power_watts", 250, 1, power))] == [Truth.TRUE]
    assert [o.truth for o in step(2, ok("gpu_power_watts", 100, 2, power))] == [Truth.FALSE]
    step(3, ok("gpu_power_watts", 250, 3, power))
    assert [o.truth for o in step(90, ok("gpu_temperature_celsius", 90, 90, CARD))] == [Truth.UNKNOWN]
    other = ok("gpu_temperature_celsius", 90, 91, labels(gpu="H", bdf="c", sensor="core"))
    assert [(dict(o.labels)["gpu"], o.truth) for o in step(91, other)] == [("H", Truth.UNKNOWN)]


def test_time_in_which_nobody_watched_is_no_silence() -> None:
    rule = condition("absence", metric="host_open_files", after="2m")
    step = Stepper(rule)
    for t in range(0, 60, 10):
        step(t, ok("host_open_files", 1, t))
    step.state = rule.load(rule.dump(step.state))
    assert [o.truth for o in step(3600)] == [Truth.FALSE], "soakd was off for an hour"
    for t in range(3610, 3730, 10):
        said = step(t)
    assert [o.truth for o in said] == [Truth.TRUE]
