from __future__ import annotations

import asyncio
import itertools

import pytest

from soakd.load.arrivals import Closed, Idle, Open, flat
from soakd.load.canary import CanaryPrompt, CanarySpec
from soakd.load.engine import Engine, window_ends
from soakd.load.reports import CanaryPart, Report, TickPart
from soakd.load.spec import LoadSpec
from tests.support.fake_load import Answer, FakeServer, a_flight, a_spec, a_stage, counted, quantile, windows
from tests.support.virtual_time import WALL_NS, run_virtual, virtual_clock, virtual_loop


async def run(spec: LoadSpec, server: FakeServer, speed: float = 1.0, stop_at: float | None = None,
              grace: float = 2.0) -> tuple[list[Report], bool]:  # fmt: skip
    reports: list[Report] = []
    flight = a_flight(spec, server)
    clock = virtual_clock(speed)
    engine = Engine(spec, 0, 1, flight, clock, reports.append)
    if stop_at is not None:
        asyncio.get_running_loop().call_later(stop_at, engine.stop, grace)
    return reports, await engine.run()


def test_stages_follow_each_other_on_time_and_requests_stay_with_their_stage() -> None:
    async def main() -> None:
        spec = a_spec(
            a_stage(Closed(2), 10, "warm-up", False),
            a_stage(Open(flat(5.0), "constant"), 20, "hold"),
            a_stage(Idle(), 10, "after", False),
        )
        loop = virtual_loop()
        start = loop.time()
        reports, stopped = await run(spec, FakeServer(lambda _: Answer(0.5, 0.1, 6)))
        parts = windows(reports)
        assert not stopped
        assert loop.time() - start == pytest.approx(40, abs=0.1)
        assert counted(parts, "offered", 1) == counted(parts, "completed", 1) == 100
        assert counted(parts, "completed", 0) == pytest.approx(20, abs=2)
        assert counted(parts, "offered", 2) == 0
        assert [(p.stage, p.asked) for p in parts[:4]] == [(0, 2), (1, None), (1, None), (2, None)]

    run_virtual(main())


def test_a_window_never_crosses_the_end_of_a_stage() -> None:
    assert window_ends(30, 10) == [10, 20, 30]
    assert window_ends(34, 10) == [10, 20, 34]
    assert window_ends(36, 10) == [10, 20, 30, 36]
    assert window_ends(4, 10) == [4]
    assert window_ends(0, 10) == [0]


def test_windows_lie_end_to_end() -> None:
    async def main() -> None:
        spec = a_spec(a_stage(Closed(2), 23, "a"), a_stage(Closed(2), 12, "b"))
        parts = windows((await run(spec, FakeServer()))[0])
        assert [p.index for p in parts] == list(range(len(parts)))
        assert all(a.end_ns == b.start_ns for a, b in itertools.pairwise(parts))
        assert parts[0].start_ns == WALL_NS
        assert [p.real_s for p in parts if not p.draining] == pytest.approx([10, 13, 12], abs=0.01)

    run_virtual(main())


def test_a_rehearsal_runs_the_clock_faster_and_the_load_at_real_speed() -> None:
    async def main() -> None:
        spec = a_spec(a_stage(Open(flat(10.0), "constant"), 3600))
        loop = virtual_loop()
        start = loop.time()
        reports, _ = await run(spec, FakeServer(), speed=60.0)
        parts = windows(reports)
        assert loop.time() - start == pytest.approx(60, abs=0.2)
        assert counted(parts, "completed") == 600
        assert parts[0].real_s == pytest.approx(1.0, abs=0.01)
        assert parts[-1].end_ns - WALL_NS == pytest.approx(3600e9, rel=0.01)
        assert quantile(parts, "ttft", 0.5) == pytest.approx(0.05, abs=0.002)

    run_virtual(main())


def test_a_stop_ends_the_load_within_its_grace_and_says_so() -> None:
    async def main() -> None:
        spec = a_spec(a_stage(Closed(4), 3600))
        loop = virtual_loop()
        start = loop.time()
        reports, stopped = await run(spec, FakeServer(lambda _: Answer(30.0, 1.0, 50)), stop_at=10, grace=2.0)
        assert stopped
        assert loop.time() - start == pytest.approx(12, abs=0.1)
        parts = windows(reports)
        assert (counted(parts, "cancelled"), counted(parts, "failed"), counted(parts, "completed")) == (4, 0, 0)

    run_virtual(main())


def test_requests_in_flight_at_the_end_are_waited_for_and_then_cut_off() -> None:
    async def main() -> None:
        slow = FakeServer(lambda now: Answer(5.0 if now < 9.0 else 500.0, 0.0, 1))
        spec = a_spec(a_stage(Open(flat(1.0), "constant"), 10), drain_s=8.0)
        loop = virtual_loop()
        start = loop.time()
        parts = windows((await run(spec, slow))[0])
        assert loop.time() - start == pytest.approx(18, abs=0.1)
        assert (counted(parts, "completed"), counted(parts, "cancelled")) == (9, 1)
        assert parts[-1].draining

    run_virtual(main())


def test_a_server_that_hangs_ends_in_timeouts_not_in_a_run_without_end() -> None:
    """guidellm #431, #1152, aiperf #1273."""

    async def main() -> None:
        spec = a_spec(a_stage(Closed(4), 300), drain_s=5.0)
        loop = virtual_loop()
        start = loop.time()
        parts = windows((await run(spec, FakeServer(lambda _: Answer(1e6))))[0])
        assert loop.time() - start == pytest.approx(305, abs=1)
        errors = {name for p in parts for t in p.tallies for name, _ in t.counts.errors}
        assert errors == {"first_token_timeout"}

    run_virtual(main())


def test_every_second_is_told_with_totals_so_far() -> None:
    async def main() -> None:
        spec = a_spec(a_stage(Open(flat(10.0), "constant"), 5))
        ticks = [r for r in (await run(spec, FakeServer()))[0] if isinstance(r, TickPart)]
        assert [tick.second for tick in ticks][:5] == [1, 2, 3, 4, 5]
        assert [tick.offered for tick in ticks][:5] == pytest.approx([10, 20, 30, 40, 50], abs=1)
        assert sum(r.completed for tick in ticks for r in tick.replicas) == ticks[-1].completed == 50

    run_virtual(main())


def test_canaries_are_asked_in_turn_while_there_is_load_and_are_no_part_of_it() -> None:
    async def main() -> None:
        canary = CanarySpec((CanaryPrompt("a", "one"), CanaryPrompt("b", "two")), interval_s=10.0)
        spec = a_spec(a_stage(Idle(), 30, "before", False), a_stage(Closed(1), 60), canary=canary)
        reports, _ = await run(spec, FakeServer(lambda _: Answer(0.5, 0.1, 3)))
        answers = [r for r in reports if isinstance(r, CanaryPart)]
        assert [a.prompt_id for a in answers] == ["a", "b"] * 6
        assert {a.text for a in answers} == {"xxx"}
        assert answers[0].at_ns >= WALL_NS + 35e9
        assert counted(windows(reports), "offered") == counted(windows(reports), "completed") < 90

    run_virtual(main())


def test_the_loop_s_lag_is_measured() -> None:
    async def main() -> None:
        loop = virtual_loop()
        loop.call_later(5, loop.block, 0.7)
        parts = windows((await run(a_spec(a_stage(Closed(1), 10)), FakeServer()))[0])
        assert quantile(parts, "loop_lag", 1.0) == pytest.approx(0.7, abs=0.03)
        assert quantile(parts, "loop_lag", 0.5) == pytest.approx(0.0, abs=0.002)

    run_virtual(main())
