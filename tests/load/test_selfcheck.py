from __future__ import annotations

import dataclasses

from soakd.load.histogram import Histogram
from soakd.load.selfcheck import Figures, TimeOutOfBounds, assess, bottleneck

MS = 1_000_000


def of(ms: float, times: int = 100) -> Histogram:
    histogram = Histogram()
    histogram.record(int(ms * MS), times)
    return histogram


HEALTHY = Figures((0.3,), of(1), of(0.5), of(50), 1000, 10, 64, 64.0, 0.0, False)


def reasons(**changes: object) -> str:
    return "; ".join(assess(dataclasses.replace(HEALTHY, **changes)).reasons)  # type: ignore[arg-type]


def test_a_generator_that_keeps_up_has_no_reason() -> None:
    assert assess(HEALTHY).reasons == ()


def test_a_busy_core_is_a_reason_and_the_busiest_worker_counts() -> None:
    """inference-perf #86, llm-d-benchmark #261: the client's own processor decided the figures."""
    assert "95% of a core" in reasons(cpu_shares=(0.2, 0.95))


def test_a_late_event_loop_is_a_reason_where_it_would_falsify_what_is_measured() -> None:
    assert "40 ms late at P95" in reasons(loop_lag=of(40))
    assert reasons(loop_lag=of(40), ttft=of(900)) == ""
    assert reasons(loop_lag=of(8)) == ""


def test_a_rare_stall_counts_against_the_percentile_that_it_can_change() -> None:
    rare = of(1, 98)
    rare.merge(of(60, 2))
    assert "60 ms late at P99" in reasons(loop_lag=rare)
    assert reasons(loop_lag=rare, ttft=of(300)) == ""


def test_late_sends_count_in_an_open_loop_alone() -> None:
    assert "it sent 30 ms late" in reasons(send_lag=of(30), open_loop=True, asked=None)
    assert reasons(send_lag=of(30)) == ""


def test_a_slow_server_does_not_look_like_a_slow_client() -> None:
    assert reasons(ttft=of(30_000), in_flight=64.0) == ""
    assert reasons(ttft=Histogram(), reads=0, coalesced=0) == ""


def test_a_server_that_writes_in_batches_does_not_look_like_a_slow_client() -> None:
    assert reasons(coalesced=950) == ""
    assert "95% of its reads" in reasons(coalesced=950, cpu_shares=(0.8,))


def test_fewer_in_flight_than_asked_is_a_reason_unless_streams_think_or_back_off() -> None:
    assert "39.0 requests in flight of the 64 asked" in reasons(in_flight=39.0)
    assert reasons(in_flight=39.0, waiting=25.0) == ""


def test_a_tenth_of_the_measured_time_is_tolerated() -> None:
    assert bottleneck([(90.0, ()), (10.0, ("a",))]) == ""
    verdict = bottleneck([(80.0, ()), (10.0, ("a",)), (10.0, ("b", "c"))])
    assert verdict == "the load generator was the bottleneck in 20% of the measured time: b; c"
    assert bottleneck([]) == ""


def test_summed_as_it_goes_the_verdict_is_the_same() -> None:
    sums = TimeOutOfBounds()
    for seconds, why in ((80.0, ()), (10.0, ("a",)), (10.0, ("b", "c"))):
        sums.add(seconds, why)
    assert sums.verdict() == "the load generator was the bottleneck in 20% of the measured time: b; c"
