"""A route over a real journal, with a fake database and a clock turned by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from soakd.errors import JournalError
from soakd.forward.courier import Courier
from soakd.forward.route import Route
from soakd.journal import Cursor, JournalTail
from soakd.journal.store import ItemBatch, Store
from soakd.model import Event, Finding, Sample, Severity, State, labels
from soakd.sinks.delivery import DeliveryConfig, Record, SinkError, SinkUnavailableError
from soakd.sinks.line_protocol import LineEncoder
from tests.support.fake_sink import FakeSink
from tests.support.hand_clock import HandClock
from tests.support.readings import SECOND, T0, TEMPERATURE, card, feed


class World:
    """A journal fed once a second of its clock, and a route from it."""

    rate = 50_000

    def __init__(self, directory: Path) -> None:
        self.clock = HandClock(T0)
        self.store = Store(directory / "journal.sqlite", self.clock)
        self.tail = JournalTail(directory)
        self.expected: dict[str, str] = {}
        self.down = False
        self._asked: asyncio.Queue[None] = asyncio.Queue()
        self.sink = FakeSink(self.fault)
        self.said: list[Event] = []
        self._encoder = LineEncoder()
        self.begin()

    def fault(self, batch: Sequence[Record]) -> SinkError | None:
        self._asked.put_nowait(None)
        return SinkUnavailableError("down") if self.down else None

    async def asked(self, times: int) -> None:
        """Return after so many more writes were tried."""
        while not self._asked.empty():
            self._asked.get_nowait()
        for _ in range(times):
            await self._asked.get()

    def begin(self) -> None:
        """A new process: what is known comes from the file."""
        self.courier = Courier(
            "influx", self.sink, 500, self.clock, self.said.append, self.store.put_set_aside, lambda: 1.0
        )
        config = DeliveryConfig.model_validate(
            {"batch_rows": 500, "live_within": "60s", "catch_up_rows_per_s": self.rate}
        )
        self.route = Route(
            self.tail, self.courier, self.tail.cursor("influx"), config, self.clock, self.store.put_cursor
        )

    def feed(self, seconds: int, *, run_id: str = "", seed: int = 1) -> None:
        start = self.clock.now_ns
        for batch in feed(seconds, cards=2, metrics_per_card=5, seed=seed, start_ns=start):
            self.commit(batch, run_id)
            self.clock.now_ns += SECOND

    def commit(self, items: Sequence[Record], run_id: str = "") -> None:
        self.store.commit([ItemBatch(tuple(items), run_id)])
        while self.store.sealer.step(self.clock.now_ns, 100):
            pass
        for item in items:
            run = (("run", run_id),) if run_id else ()
            key, fields, at = self._encoder.encode([_with(item, run)])[0].rsplit(" ", 2)
            self.expected[f"{key} {at}"] = fields

    async def drain(self) -> None:
        for _ in range(1000):
            await self.clock.sleep(await self.route.step())
            if self.route.cursor == Cursor("influx", self.tail.latest()):
                return
        raise AssertionError("the route does not arrive")


def _with(item: Record, more: tuple[tuple[str, str], ...]) -> Record:
    return replace(item, labels=tuple(sorted((*item.labels, *more))))


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    made.tail.close()
    made.store.close()


async def test_everything_arrives_point_by_point(world: World) -> None:
    world.feed(300, run_id="r1")
    world.commit([Event("xid", T0, "79", Severity.CRITICAL), Finding("rule.X", Severity.INFO, "t", "d", T0)], "r1")
    world.feed(20)
    await world.drain()
    assert world.sink.points == world.expected


async def test_sealed_rows_arrive_as_hot_ones_do(world: World) -> None:
    world.feed(1500)
    assert world.store.connection.execute("SELECT count(*) FROM chunk").fetchone()[0] > 0
    await world.drain()
    assert world.sink.points == world.expected


async def test_unknown_readings_arrive_as_states(world: World) -> None:
    world.commit([Sample.unknown(TEMPERATURE, State.LOST, T0, card(0))])
    await world.drain()
    assert list(world.sink.points.values()) == [f"state={State.LOST.code}i"]


async def test_two_events_of_one_moment_are_two_points_at_every_reading(world: World) -> None:
    event = Event("pcie.aer", T0, "bad TLP", labels=labels(bdf="0000:01:00.0"))
    world.commit([event, event, event])
    await world.drain()
    assert len(world.sink.points) == 3
    world.store.connection.execute("DELETE FROM cursor")
    world.begin()
    await world.drain()
    assert len(world.sink.points) == 3


async def test_an_outage_is_made_up_for_and_live_data_goes_first(world: World) -> None:
    world.feed(30)
    await world.drain()
    world.feed(1800)
    before = len(world.sink.order)
    await world.route.step()
    assert world.route.cursor.gaps
    times = [int(line.rsplit(" ", 1)[1]) for line in world.sink.order[before:]]
    assert times[0] > world.clock.now_ns - 62 * SECOND
    world.feed(1)
    await world.route.step()
    assert world.route.cursor.head == world.tail.latest()
    await world.drain()
    assert world.sink.points == world.expected


async def test_catching_up_keeps_to_its_rate(world: World) -> None:
    world.rate = 1000
    world.begin()
    world.feed(1200)
    began = world.clock.now_ns
    await world.drain()
    assert (world.clock.now_ns - began) / SECOND >= 9  # 11,400 old rows, of which a second's worth may go at once


async def test_a_second_outage_during_the_catch_up_loses_nothing(world: World) -> None:
    for seed in range(5):
        world.feed(200, seed=seed)
        await world.route.step()
        world.begin()
    await world.drain()
    assert world.sink.points == world.expected


async def test_a_restart_goes_on_where_the_sink_had_it_all(world: World) -> None:
    world.feed(100)
    await world.drain()
    writes = world.sink.writes
    world.begin()
    await world.route.step()
    assert world.sink.writes == writes
    world.feed(10)
    await world.drain()
    assert world.sink.points == world.expected


async def test_a_stop_in_an_outage_leaves_the_cursor_behind(world: World) -> None:
    world.feed(50)
    await world.drain()
    at = world.route.cursor
    world.down = True
    world.feed(20, seed=2)
    running = asyncio.create_task(world.route.run())
    await world.asked(3)
    world.courier.stop()
    await running
    assert world.tail.cursor("influx") == at
    world.down = False
    world.begin()
    await world.drain()
    assert world.sink.points == world.expected


async def test_the_lag_is_counted_in_rows_and_seconds(world: World) -> None:
    world.feed(10)
    world.down = True
    world.courier.stop()
    lag = world.tail.lag(world.route.cursor, world.clock.now_ns)
    assert lag == (100, 10.0)
    assert world.tail.lag(Cursor("influx", 10), world.clock.now_ns) == (0, 0.0)
    assert world.tail.lag(Cursor("influx", 10, ((2, 4),)), world.clock.now_ns) == (20, 8.0)


async def test_a_journal_that_cannot_be_read_for_a_while_is_tried_again(world: World) -> None:
    world.feed(5)
    failures = iter([JournalError("locked"), JournalError("locked")])
    latest = world.tail.latest

    def sometimes() -> int:
        for failure in failures:
            raise failure
        return latest()

    world.tail.latest = sometimes  # type: ignore[method-assign]
    running = asyncio.create_task(world.route.run())
    await world.asked(1)
    world.courier.stop()
    await running
    assert world.sink.points == world.expected


@pytest.mark.parametrize("rows", [1, 7, 10_000])
def test_windows_of_any_size_hold_every_row_once(tmp_path: Path, rows: int) -> None:
    world = World(tmp_path)
    world.feed(600)
    at, seen = 0, 0
    while at < world.tail.latest():
        window = world.tail.window(at, world.tail.latest(), rows)
        assert window.to > at
        seen += len(window.items)
        at = window.to
    assert seen == 6000
