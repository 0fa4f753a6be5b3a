from __future__ import annotations

import dataclasses

import pytest

from soakd.load.arrivals import Closed
from soakd.load.histogram import Histogram
from soakd.load.merge import Merger
from soakd.load.messages import Counts, Histograms, Window, merge_counts
from soakd.load.metrics import METRICS, samples
from soakd.load.reports import (
    ReplicaTally,
    ReplicaTick,
    Tally,
    TickPart,
    WindowPart,
    decode_report,
    encode_report,
    pack_histograms,
)
from soakd.load.spec import LoadSpec
from soakd.model import Kind, State
from tests.support.fake_load import a_spec, a_stage

S = 1_000_000_000
SPEC = a_spec(a_stage(Closed(4), 20, "warm-up", False), a_stage(Closed(4), 60))


def histograms(*ms: int) -> Histograms:
    found = Histograms()
    for value in ms:
        found.ttft.record(value * 1_000_000)
        found.ttft_from_due.record(value * 1_000_000)
        found.e2e.record(value * 10_000_000)
    found.loop_lag.record(1_000_000)
    return found


def tally(stage: int, *ms: int, failed: int = 0) -> Tally:
    counts = Counts(
        offered=len(ms) + failed, started=len(ms) + failed, completed=len(ms), failed=failed, tokens_out=10 * len(ms),
        errors=(("reset", failed),) if failed else (), finishes=(("stop", len(ms)),),
    )  # fmt: skip
    ttft = Histogram()
    for value in ms:
        ttft.record(value * 1_000_000)
    replica = ReplicaTally(len(ms), failed, 10 * len(ms), ttft.encode(), ttft.encode())
    return Tally(stage, counts, pack_histograms(histograms(*ms)), (replica,))


def part(index: int, stage: int, *tallies: Tally, records: bytes = b"", draining: bool = False) -> WindowPart:
    return WindowPart(
        index, stage, index * 10 * S, (index + 1) * 10 * S, 10.0, 20.0, 0.0, 2, 1.0, 100, 1, tallies, draining, records
    )


def tick(second: int, completed: int, stage: int = 1) -> TickPart:
    e2e = Histogram()
    e2e.record(100_000_000)
    replica = ReplicaTick(1, 0, 0, 0, None, None, "", e2e.encode())
    return TickPart(second, stage, completed, completed, completed, 0, 0, 5, 2, 0, 0.001, e2e.encode(), (replica,))


def test_reports_round_trip_with_their_bytes() -> None:
    whole = part(3, 1, tally(1, 50, 70, failed=2), records=bytes(range(256)))
    assert decode_report(encode_report(whole)[4:]) == whole


def test_a_window_waits_for_all_workers_and_is_their_exact_sum() -> None:
    merger = Merger(SPEC, 2)
    assert merger.add_window(0, part(0, 0, tally(0, 50, 60), records=b"a")) == []
    (window,) = merger.add_window(1, part(0, 0, tally(0, 90, failed=1), records=b"b"))
    assert (window.counts.completed, window.counts.failed, window.counts.tokens_out) == (3, 1, 30)
    assert window.counts.errors == (("reset", 1),)
    assert window.histograms.ttft == histograms(50, 60, 90).ttft
    assert (window.concurrency, window.concurrency_asked, window.records) == (4.0, 4.0, b"ab")
    assert (window.measured, window.workers) == (False, 2)
    assert window.replicas[0].completed == 3
    assert merger.replicas()[0].completed == 0


def test_the_total_is_what_was_due_in_measured_stages_wherever_it_ended() -> None:
    merger = Merger(SPEC, 1)
    merger.add_window(0, part(0, 0, tally(0, 50)))
    merger.add_window(0, part(1, 1, tally(0, 60), tally(1, 70, 80)))
    merger.add_window(0, part(2, 1, tally(1, 90), draining=True))
    total, (warm_up, hold) = merger.total(), merger.stages()
    assert (total.counts.completed, warm_up.counts.completed, hold.counts.completed) == (3, 2, 3)
    assert total.histograms.ttft == histograms(70, 80, 90).ttft
    assert (total.real_s, total.rate_per_s, total.concurrency) == (10.0, 0.3, 2.0)


def test_a_replica_s_share_of_the_total_is_of_the_measured_stages() -> None:
    merger = Merger(SPEC, 2)
    merger.add_window(0, part(0, 0, tally(0, 50)))
    merger.add_window(1, part(0, 0, tally(0, 60)))
    merger.add_window(0, part(1, 1, tally(0, 60), tally(1, 70, 80, failed=1)))
    merger.add_window(1, part(1, 1, tally(1, 90, failed=2)))
    (replica,) = merger.replicas()
    assert (replica.completed, replica.failed, replica.tokens_out) == (3, 3, 30)
    assert (replica.ttft, replica.e2e) == (histograms(70, 80, 90).ttft, histograms(70, 80, 90).ttft)


def test_a_worker_that_dies_leaves_what_it_told_and_holds_nothing_up() -> None:
    merger = Merger(SPEC, 2)
    merger.add_window(0, part(0, 1, tally(1, 50)))
    merger.add_window(0, part(1, 1, tally(1, 60)))
    merger.add_window(1, part(0, 1, tally(1, 70)))
    (late,) = merger.drop(1)
    assert (late.index, late.workers) == (1, 1)
    assert merger.total().counts.completed == 3


def test_ticks_are_told_once_a_second_for_all_workers() -> None:
    merger = Merger(SPEC, 2)
    assert merger.add_tick(0, tick(1, 10), S, 1.0) is None
    first = merger.add_tick(1, tick(1, 20), S, 1.0)
    assert first is not None
    assert (first.completed, first.in_flight, first.stage, first.e2e_p95_s) == (30, 4, "hold", 0.1)
    assert merger.add_tick(0, tick(2, 30), 2 * S, 2.0) is None
    second = merger.add_tick(1, tick(2, 40), 2 * S, 2.0)
    assert second is not None
    assert second.rate_per_s == 40.0


def test_a_worker_that_lags_does_not_silence_the_ticks() -> None:
    merger = Merger(SPEC, 2)
    told = [merger.add_tick(0, tick(second, second), second * S, float(second)) for second in range(1, 6)]
    assert [t is not None for t in told] == [False, True, True, True, True]


def test_counts_add_up_by_name() -> None:
    whole = merge_counts([Counts(offered=1, errors=(("a", 1),)), Counts(offered=2, errors=(("a", 2), ("b", 1)))])
    assert (whole.offered, whole.errors) == (3, (("a", 3), ("b", 1)))


def a_window(spec: LoadSpec = SPEC) -> Window:
    merger = Merger(spec, 1)
    merger.add_window(0, part(0, 1, tally(1, 40, failed=1)))
    (window,) = merger.add_window(0, part(1, 1, tally(1, 50, 60, failed=2)))
    return window


def test_counters_of_a_window_are_of_the_whole_load_so_far() -> None:
    found = {(s.metric.name, s.labels): s.value for s in samples(a_window())}
    assert found["load_requests_completed_total", ()] == 3
    assert found["load_errors_total", (("class", "reset"),)] == 3
    assert found["load_requests_per_second", ()] == pytest.approx(0.2)
    assert found["load_error_ratio", ()] == 0.5
    assert found["load_ttft_p99_seconds", ()] == 0.06


def test_what_was_not_measured_is_absent_not_zero() -> None:
    empty = dataclasses.replace(a_window(), counts=Counts(), histograms=Histograms())
    found = {s.metric.name: s for s in samples(empty)}
    for name in ("load_ttft_p95_seconds", "load_e2e_p99_seconds", "load_error_ratio"):
        assert (found[name].state, found[name].value) == (State.ABSENT, None)


def test_every_sample_is_of_a_declared_metric_with_its_labels() -> None:
    declared = {metric.name: metric for metric in METRICS}
    assert len(declared) == len(METRICS)
    for sample in samples(a_window()):
        assert declared[sample.metric.name] is sample.metric
        assert tuple(name for name, _ in sample.labels) == sample.metric.label_names
        assert (sample.metric.kind is Kind.COUNTER) == sample.metric.name.endswith("_total")
