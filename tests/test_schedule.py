from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from soakd.model import Event, Kind, Metric, Sample, State
from soakd.ports import Item
from soakd.schedule import FAILURES, UP, Job, Runner, read_once

GAUGE = Metric("a_gauge", "", Kind.GAUGE, "", "")


@dataclass
class HandClock:
    """A clock turned by hand; wall and monotonic time move apart on a step."""

    wall: int = 10**18
    monotonic: int = 0
    speed: float = 1.0

    def wall_ns(self) -> int:
        return self.wall

    def monotonic_ns(self) -> int:
        return self.monotonic

    async def sleep(self, seconds: float) -> None:
        self.wall += int(seconds * 1e9)
        self.monotonic += int(seconds * 1e9)


@dataclass
class Canned:
    """Gives its answers one after the other; an exception is raised, None hangs until cancelled."""

    answers: list[Sequence[Item] | Exception | None]
    closed: bool = False
    cancelled: bool = False
    asked: int = field(default=0)

    async def collect(self) -> Sequence[Item]:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
        assert answer is not None
        return answer

    async def close(self) -> None:
        self.closed = True


def known(value: float = 1.0) -> Sample:
    return Sample.ok(GAUGE, value, 5)


def unknown(state: State, why: str = "") -> Sample:
    return Sample.unknown(GAUGE, state, 5, why=why)


def job(answers: list[Sequence[Item] | Exception | None], name: str = "one") -> Job:
    return Job(name, Canned(answers), 60.0, 0.05)


@pytest.mark.parametrize(
    ("items", "status", "why"),
    [
        ([], "ok", ""),
        ([known(), unknown(State.LOST)], "ok", ""),
        ([unknown(State.UNSUPPORTED, "not on this card")], "unsupported", "not on this card"),
        ([unknown(State.ABSENT), unknown(State.LOST, "gone")], "lost", "gone"),
        ([unknown(State.NO_PERMISSION, "needs CAP_SYSLOG")], "error", "needs CAP_SYSLOG"),
        ([unknown(State.TIMEOUT)], "timeout", "timeout"),
    ],
)
async def test_the_status_of_a_reading_is_that_of_its_samples(items: list[Item], status: str, why: str) -> None:
    reading = await read_once(job([items]), HandClock())
    assert (reading.status, reading.why) == (status, why)
    assert len(reading.samples) == len(items)


async def test_a_collector_that_raises_is_a_reading_of_status_error() -> None:
    reading = await read_once(job([KeyError("x")]), HandClock())
    assert (reading.status, reading.why, reading.items) == ("error", "KeyError: 'x'", ())


async def test_a_collector_that_hangs_is_cut_off_at_its_deadline() -> None:
    hanging = job([None])
    reading = await read_once(hanging, HandClock())
    assert (reading.status, reading.why) == ("timeout", "no answer within 0.05 s")
    assert isinstance(hanging.collector, Canned)
    assert hanging.collector.cancelled


async def test_a_collector_that_gives_up_by_itself_says_why() -> None:
    reading = await read_once(job([TimeoutError("the read before is stuck")]), HandClock())
    assert (reading.status, reading.why) == ("timeout", "the read before is stuck")


async def test_one_collectors_fault_never_costs_anothers_data() -> None:
    emitted: list[Item] = []
    runner = Runner([job([RuntimeError("broken")], "bad"), job([[known(7)]], "good")], HandClock(), emitted.extend)
    bad, good = await runner.read_all()
    assert (bad.status, good.status) == ("error", "ok")
    assert known(7) in emitted
    up = {dict(s.labels)["collector"]: s.value for s in emitted if isinstance(s, Sample) and s.metric is UP}
    assert up == {"bad": 5.0, "good": 1.0}


async def test_a_failure_is_told_once_and_so_is_its_end_and_each_is_counted() -> None:
    emitted: list[Item] = []
    flaky = job([RuntimeError("a"), RuntimeError("a"), [known()], [known()]])
    runner = Runner([flaky], HandClock(), emitted.extend)
    for _ in range(4):
        await runner.read_all()
    assert [e.kind for e in emitted if isinstance(e, Event)] == ["collector.failed", "collector.recovered"]
    failures = [s.value for s in emitted if isinstance(s, Sample) and s.metric is FAILURES]
    assert failures == [1, 2, 2, 2]


@pytest.mark.parametrize(("step_s", "said"), [(3600.0, "forward by 3600.000 s"), (-2.0, "back by 2.000 s"), (0.1, "")])
async def test_a_step_of_the_system_clock_is_an_event(step_s: float, said: str) -> None:
    clock = HandClock()
    emitted: list[Item] = []
    runner = Runner([job([[]])], clock, emitted.extend)
    runner.start()
    await clock.sleep(5.0)
    clock.wall += int(step_s * 1e9)
    runner._check_clock()
    await clock.sleep(5.0)
    runner._check_clock()
    await runner.stop()
    steps = [e.what for e in emitted if isinstance(e, Event) and e.kind == "clock.step"]
    assert [said in s for s in steps] == ([True] if said else [])


async def test_stopping_ends_what_hangs_and_closes_every_collector() -> None:
    hanging = Job("hangs", Canned([None]), 60.0, 3600.0)
    runner = Runner([hanging], HandClock(), lambda items: None)
    runner.start()
    for _ in range(5):
        await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await runner.stop()
    assert isinstance(hanging.collector, Canned)
    assert hanging.collector.closed


async def test_stopping_lets_a_reading_under_way_end() -> None:
    emitted: list[Item] = []
    going_on = asyncio.Event()

    class Slow:
        async def collect(self) -> Sequence[Item]:
            await going_on.wait()
            return [known(7.0)]

        async def close(self) -> None:
            return

    runner = Runner([Job("slow", Slow(), 60.0, 5.0)], HandClock(), emitted.extend)
    runner.start()
    for _ in range(5):
        await asyncio.sleep(0)
    stopping = asyncio.create_task(runner.stop())
    await asyncio.sleep(0)
    going_on.set()
    await stopping
    assert [s.value for s in emitted if isinstance(s, Sample) and s.metric is GAUGE] == [7.0]


async def test_a_missing_permission_is_a_state_of_its_own_and_no_failure() -> None:
    emitted: list[Item] = []
    runner = Runner([job([[unknown(State.NO_PERMISSION, "needs CAP_SYSLOG")]])], HandClock(), emitted.extend)
    await runner.read_all()
    own = {s.metric: s.value for s in emitted if isinstance(s, Sample)}
    assert (own[UP], own[FAILURES]) == (dict(UP.codes)["no_permission"], 0)
    assert [e.kind for e in emitted if isinstance(e, Event)] == ["collector.failed"]
