from __future__ import annotations

import asyncio
import dataclasses
import gc

import pytest

from soakd.load.arrivals import Closed
from soakd.load.failure import ErrorClass
from soakd.load.meter import Meter
from soakd.load.records import WARM_PREFIX, decode
from soakd.load.senders import Pacer, Streams
from soakd.load.spec import TargetSpec
from tests.support.fake_load import Answer, FakeServer, OnePrompt, a_flight, a_prompt, a_spec, a_stage
from tests.support.virtual_time import run_virtual, virtual_loop

CLOSED = a_stage(Closed(4), 60)


def test_a_closed_loop_keeps_its_concurrency_and_starts_staggered() -> None:
    async def main() -> None:
        server = FakeServer(lambda _: Answer(0.2, 0.0, 1))
        flight = a_flight(a_spec(CLOSED), server)
        streams = Streams(flight, 0, 1, 0)
        streams.enter(0, Closed(10, stagger_s=1.0), 60.0)
        await asyncio.sleep(0.45)
        assert server.seen < 15
        await asyncio.sleep(4.55)
        flight.take_areas(flight.clock.now_ns())
        await asyncio.sleep(10)
        in_flight_s, waiting_s = flight.take_areas(flight.clock.now_ns())
        assert in_flight_s == pytest.approx(100, rel=0.001)
        assert waiting_s == 0.0
        assert server.peak == 10

    run_virtual(main())


def test_streams_go_on_from_stage_to_stage_and_end_when_fewer_are_wanted() -> None:
    async def main() -> None:
        server = FakeServer(lambda _: Answer(0.2, 0.0, 1))
        flight = a_flight(a_spec(CLOSED), server)
        streams = Streams(flight, 0, 1, 0)
        for target, expected in ((8, 8), (3, 3), (5, 5), (0, 0)):
            streams.enter(0, Closed(target) if target else None, 60.0)
            await asyncio.sleep(2)
            assert (flight.in_flight, streams.active) == (expected, expected)

    run_virtual(main())


def test_think_time_lies_between_an_answer_and_the_next_request() -> None:
    async def main() -> None:
        server = FakeServer(lambda _: Answer(1.0, 0.0, 1))
        flight = a_flight(a_spec(CLOSED), server)
        Streams(flight, 0, 1, 0).enter(0, Closed(1, think_s=3.0, stagger_s=0.0), 60.0)
        await asyncio.sleep(39.9)
        assert server.seen == 10
        assert flight.meter(0).histograms.ttft_from_due.percentiles().max == pytest.approx(1.0, abs=0.002)

    run_virtual(main())


def test_a_closed_loop_backs_off_from_a_dead_server_and_comes_back_at_once() -> None:
    async def main() -> None:
        def behave(now: float) -> Answer:
            dead = 5 < now < 35
            return Answer(0.0005, error=ErrorClass.CONNECT) if dead else Answer(0.1, 0.0, 1)

        server = FakeServer(behave)
        flight = a_flight(a_spec(CLOSED), server)
        streams = Streams(flight, 0, 1, 0)
        streams.enter(0, Closed(4), 60.0)
        await asyncio.sleep(5)
        before = server.seen
        await asyncio.sleep(30)
        tries = server.seen - before
        assert 4 * 30 <= tries <= 4 * 45
        assert streams.backing_off == 4
        await asyncio.sleep(1.2)
        assert (streams.backing_off, flight.in_flight) == (0, 4)

    run_virtual(main())


def due(rate: float, seconds: float) -> list[float]:
    return [n / rate for n in range(int(rate * seconds))]


def test_a_stalled_generator_forfeits_no_request_and_hides_no_wait() -> None:
    """wrk2 #78, aiperf PR 1185, vLLM #54101: coordinated omission, schedules given up after a stall."""

    async def main() -> None:
        server = FakeServer(lambda _: Answer(0.05, 0.0, 1))
        flight = a_flight(a_spec(CLOSED), server)
        pacer = Pacer(flight, 0, flight.clock.now_ns(), iter(due(100, 10)))
        pacer.begin()
        await asyncio.sleep(5)
        virtual_loop().block(2.0)
        await asyncio.sleep(4)
        histograms = flight.meter(0).histograms
        assert (flight.offered, flight.completed, pacer.done) == (1000, 1000, True)
        assert histograms.ttft_from_due.percentiles().max == pytest.approx(2.05, abs=0.02)
        assert histograms.send_lag.share_above(1_000_000_000) == pytest.approx(0.1, abs=0.01)
        assert histograms.ttft.percentiles().p99 == pytest.approx(0.05, abs=0.002)

    run_virtual(main())


def test_requests_beyond_the_cap_are_dropped_and_counted_never_queued() -> None:
    async def main() -> None:
        server = FakeServer(lambda _: Answer(10.0, 0.0, 1))
        source = OnePrompt()
        flight = a_flight(a_spec(CLOSED), server, source, cap=20)
        Pacer(flight, 0, flight.clock.now_ns(), iter(due(10, 5))).begin()
        await asyncio.sleep(9)
        meter = flight.meter(0)
        assert (meter.offered, meter.started, meter.dropped, server.peak) == (50, 20, 30, 20)
        assert source.taken == 20

    run_virtual(main())


def test_no_latency_is_recorded_for_a_request_that_failed() -> None:
    """vLLM PR 5895, guidellm #444: failures counted as latency 0 make a dying server look fast."""

    async def main() -> Meter:
        kinds = [Answer(0.1, 0.0, 2), Answer(0.0, error=ErrorClass.RESET), Answer(0.01, status=500)]
        calls = iter(kinds * 10)
        flight = a_flight(a_spec(CLOSED), FakeServer(lambda _: next(calls)))
        Pacer(flight, 0, flight.clock.now_ns(), iter(due(10, 3))).begin()
        await asyncio.sleep(5)
        return flight.meter(0)

    meter = run_virtual(main())
    assert (meter.completed, meter.failed) == (10, 20)
    assert meter.errors == {"reset": 10, "http_500": 10}
    for name in ("ttft", "ttft_from_due", "e2e", "itl", "tpot"):
        histogram = getattr(meter.histograms, name)
        assert histogram.count == 10
    assert meter.histograms.ttft.percentiles().min == pytest.approx(0.1)


def test_nothing_grows_with_the_number_of_requests() -> None:
    """k6 #763, #4670, locust #816: memory in proportion to what was sent."""

    async def main() -> None:
        flight = a_flight(a_spec(CLOSED, records=False), FakeServer(lambda _: Answer(0.01, 0.001, 3)))
        Streams(flight, 0, 1, 0).enter(0, Closed(4), 600.0)
        sizes = []
        for _ in range(3):
            await asyncio.sleep(6)
            flight.new_window()
            gc.collect()
            sizes.append(len(gc.get_objects()))
        assert flight.completed > 4000
        assert sizes[2] - sizes[0] < 300

    run_virtual(main())


def test_records_leave_with_their_window() -> None:
    async def main() -> None:
        flight = a_flight(a_spec(CLOSED), FakeServer(lambda _: Answer(0.01, 0.0, 1)))
        Streams(flight, 0, 1, 0).enter(0, Closed(1), 60.0)
        await asyncio.sleep(1)
        assert len(flight.records) == 80 * flight.completed

    run_virtual(main())


def test_records_tell_warm_prefixes_from_cold_ones() -> None:
    async def main() -> set[bool]:
        warm = OnePrompt(dataclasses.replace(a_prompt(), cold=False))
        flight = a_flight(a_spec(CLOSED), FakeServer(lambda _: Answer(0.01, 0.0, 1)), warm)
        Pacer(flight, 0, flight.clock.now_ns(), iter([0.0, 1.0])).begin()
        await asyncio.sleep(2)
        return {bool(record.flags & WARM_PREFIX) for record in decode(bytes(flight.records))}

    assert run_virtual(main()) == {True}


def test_a_conversation_hears_its_answers_and_its_failures() -> None:
    async def main() -> list[str | None]:
        answers = iter([Answer(0.1, 0.0, 3), Answer(0.1, error=ErrorClass.RESET)] * 2)
        source = OnePrompt(a_prompt(session=1))
        flight = a_flight(a_spec(CLOSED), FakeServer(lambda _: next(answers)), source)
        Pacer(flight, 0, flight.clock.now_ns(), iter([0.0, 1.0])).begin()
        await asyncio.sleep(2)
        return source.answers

    assert run_virtual(main()) == ["xxx", None]


def test_a_stalled_generator_s_requests_have_their_full_time_to_connect() -> None:
    async def main() -> dict[str, int]:
        flight = a_flight(a_spec(CLOSED), FakeServer(lambda _: Answer(0.05, error=ErrorClass.CONNECT)))
        Pacer(flight, 0, flight.clock.now_ns(), iter([1.0])).begin()
        await asyncio.sleep(0.9)
        virtual_loop().block(30.0)
        await asyncio.sleep(0.01)
        flight.check_timeouts()
        await asyncio.sleep(1)
        return flight.meter(0).errors

    assert run_virtual(main()) == {"connect": 1}


def test_a_key_that_the_server_repeats_is_not_told() -> None:
    async def main() -> str:
        target = TargetSpec(("http://h",), api_key="sk-very-secret")
        spec = dataclasses.replace(a_spec(CLOSED), target=target)
        flight = a_flight(spec, FakeServer(lambda _: Answer(0.01, status=401, words="wrong key sk-very-secret")))
        Pacer(flight, 0, flight.clock.now_ns(), iter([0.0])).begin()
        await asyncio.sleep(1)
        return flight.seconds[0].why

    assert run_virtual(main()) == "http_401: wrong key ***"


def test_replicas_take_turns() -> None:
    async def main() -> tuple[int, ...]:
        spec = a_spec(CLOSED, urls=("http://a", "http://b", "http://c"))
        flight = a_flight(spec, FakeServer(lambda _: Answer(0.01, 0.0, 1)))
        Pacer(flight, 0, flight.clock.now_ns(), iter(due(10, 3))).begin()
        await asyncio.sleep(4)
        return tuple(replica.completed for replica in flight.meter(0).replicas)

    assert run_virtual(main()) == (10, 10, 10)
