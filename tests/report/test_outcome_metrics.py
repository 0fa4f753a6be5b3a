"""The end of a run as samples."""

from __future__ import annotations

from dataclasses import replace

import pytest

from soakd.model import Metric, Outcome, Sample, State
from soakd.report import outcome_metrics as m
from soakd.report.facts import SeriesVerdict
from soakd.report.figures import Measure
from soakd.report.measures import measures_of
from soakd.report.model import LimitLine
from tests.report.samples import empty, full, hostile

AT = 1_800_000_000_000_000_000
CARD = {"gpu": "GPU-1", "bdf": "0000:1a:00.0"}
LEAK = SeriesVerdict(
    "gpu_memory_used_bytes", CARD, "bytes", "leak", "linear", 2e8, 1.9e8, 2.1e8, percent_per_hour=0.5,
    smallest_detectable=3e7, exhausted_in_s=9e4,
)  # fmt: skip


def of(samples: tuple[Sample, ...], metric: Metric, **about: str) -> list[Sample]:
    return [s for s in samples if s.metric is metric and about.items() <= dict(s.labels).items()]


def one(samples: tuple[Sample, ...], metric: Metric, **about: str) -> float | State:
    (found,) = of(samples, metric, **about)
    return found.state if found.value is None else found.value


@pytest.mark.parametrize("report", [empty(), full(), hostile()], ids=["empty", "full", "hostile"])
def test_every_report_gives_samples_of_its_metrics_that_are_told_apart(report: object) -> None:
    samples = m.outcome_samples(report, AT)  # type: ignore[arg-type]
    assert {s.metric for s in samples} <= set(m.METRICS)
    assert {s.at_ns for s in samples} == {AT}
    for sample in samples:
        assert {name for name, _ in sample.labels} <= set(sample.metric.label_names), sample
        assert list(sample.labels) == sorted(sample.labels)
    keys = [(s.metric.name, s.labels) for s in samples]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(("outcome", "code"), [(Outcome.PASS, 0), (Outcome.INCONCLUSIVE, 1), (Outcome.FAIL, 2)])
def test_the_verdict_has_a_code_that_grows_with_its_gravity(outcome: Outcome, code: int) -> None:
    samples = m.outcome_samples(replace(full(), outcome=outcome), AT)  # type: ignore[arg-type]
    assert one(samples, m.OUTCOME) == code
    assert dict(m.OUTCOME.codes)[outcome.value] == code


def test_what_a_run_could_not_tell_is_unknown_and_not_zero() -> None:
    samples = m.outcome_samples(empty(), AT)
    assert one(samples, m.DURATION) is State.ABSENT
    assert one(samples, m.COVERAGE) is State.ABSENT
    blind = replace(LEAK, slope=None, slope_low=None, slope_high=None, percent_per_hour=None, exhausted_in_s=None,
                    verdict="inconclusive", shape="unknown")  # fmt: skip
    samples = m.outcome_samples(replace(full(), series=(blind,)), AT)
    assert one(samples, m.GROWTH_BYTES, bound="fit") is State.ABSENT
    assert one(samples, m.GROWTH_SHARE) is State.ABSENT
    assert one(samples, m.GROWTH_FULL) is State.ABSENT
    assert one(samples, m.GROWTH_BYTES, bound="detectable") == 3e7


def test_growth_comes_with_its_interval_shape_and_what_it_could_have_seen() -> None:
    samples = m.outcome_samples(replace(full(), series=(LEAK,)), AT)
    bounds = {b: one(samples, m.GROWTH_BYTES, bound=b, **CARD) for b in ("fit", "low", "high", "detectable")}
    assert bounds == {"fit": 2e8, "low": 1.9e8, "high": 2.1e8, "detectable": 3e7}
    assert one(samples, m.GROWTH_SHARE) == pytest.approx(0.005)
    assert one(samples, m.GROWTH_FULL) == 9e4
    assert one(samples, m.GROWTH_VERDICT) == 2
    assert one(samples, m.GROWTH_SHAPE) == dict(m.GROWTH_SHAPE.codes)["linear"]


def test_processes_of_one_card_are_told_apart_and_files_are_not_bytes() -> None:
    process = replace(LEAK, metric="gpu_process_memory_bytes")
    files = replace(LEAK, metric="server_process_open_files", labels={"role": "total"}, unit="files")
    series = (*(replace(process, labels={**CARD, "pid": pid}) for pid in ("7", "8")), files)
    samples = m.outcome_samples(replace(full(), series=series), AT)
    names = {dict(s.labels)["series"] for s in of(samples, m.GROWTH_BYTES)}
    assert names == {"gpu_process_memory_bytes pid=7", "gpu_process_memory_bytes pid=8"}
    assert one(samples, m.GROWTH_ITEMS, bound="fit", series="server_process_open_files role=total") == 2e8
    assert not of(samples, m.GROWTH_SHARE, series="server_process_open_files role=total")


def test_a_slope_that_is_not_per_hour_is_not_given_as_one() -> None:
    samples = m.outcome_samples(replace(full(), series=(replace(LEAK, per="request"),)), AT)
    assert not of(samples, m.GROWTH_BYTES)
    assert one(samples, m.GROWTH_VERDICT) == 2


def test_limits_are_counted_and_each_is_there_with_its_card() -> None:
    limits = (
        LimitLine(
            "vram_leak_max", Outcome.FAIL, 0.7, 0.05, "%/h", 1.0, "", {**CARD, "series": "gpu_memory_used_bytes"}
        ),
        LimitLine("xid_max", Outcome.PASS, 0, 0, "events", 1.0, ""),
        LimitLine("thermal_drift_max", Outcome.NOT_JUDGED, None, 1.0, "celsius/h", 0.2, "", {"sensor": "core"}),
    )
    samples = m.outcome_samples(replace(full(), limits=limits), AT)
    counts = {o.value: one(samples, m.LIMITS, outcome=o.value) for o in Outcome}
    assert counts == {"PASS": 1, "FAIL": 1, "INCONCLUSIVE": 0, "NOT_JUDGED": 1}
    assert one(samples, m.LIMIT_OUTCOME, limit="vram_leak_max", series="gpu_memory_used_bytes", **CARD) == 3
    assert one(samples, m.LIMIT_OUTCOME, limit="thermal_drift_max", series="sensor=core") == 1


def test_measures_go_to_the_metric_of_their_unit_with_both_ends() -> None:
    measures = (Measure("e2e_p95", "seconds", 1.2, 1.0, 1.4), Measure("gpu_throttled", "seconds", None))
    samples = m.outcome_samples(replace(full(), measures=measures), AT)
    bounds = {b: one(samples, m.RESULT_SECONDS, measure="e2e_p95", bound=b) for b in ("value", "low", "high")}
    assert bounds == {"value": 1.2, "low": 1.0, "high": 1.4}
    assert one(samples, m.RESULT_SECONDS, measure="gpu_throttled", bound="value") is State.ABSENT


def test_every_measure_that_is_no_growth_has_a_metric() -> None:
    units = {x.unit for x in measures_of(full(), {}) if not x.name.startswith("growth of ") and x.name != "vram_leak"}
    assert units <= set(m.BY_UNIT)
