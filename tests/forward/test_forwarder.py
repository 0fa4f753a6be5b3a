from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest_asyncio

from soakd.errors import ConfigError, Problem
from soakd.forward import METRICS, Condition, Forwarder, SinkSpec
from soakd.forward.status import SinkStatus, samples
from soakd.journal import Journal, JournalReader
from soakd.model import Kind
from soakd.sinks.delivery import DeliveryConfig, LineSink, Record, SinkUnavailableError
from tests.support.fake_sink import FakeSink
from tests.support.forwarding import FeedClock
from tests.support.readings import T0, feed

QUICK = DeliveryConfig.model_validate({"every": "10ms"})


class Signalling(FakeSink):
    """Tells the test's loop of each write."""

    def __init__(self, *, down: bool = False) -> None:
        super().__init__(lambda batch: SinkUnavailableError("down") if down else None)
        self._loop = asyncio.get_running_loop()
        self.written: asyncio.Queue[int] = asyncio.Queue()

    async def write(self, batch: Sequence[Record]) -> None:
        try:
            await super().write(batch)
        finally:
            self._loop.call_soon_threadsafe(self.written.put_nowait, len(self.points))

    async def has(self, count: int) -> None:
        while await self.written.get() < count:
            pass


class Stuck(FakeSink):
    """Never answers, and does not care to be cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def write(self, batch: Sequence[Record]) -> None:
        self._loop.call_soon_threadsafe(self.asked.set)
        await asyncio.sleep(3600)


@pytest_asyncio.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = Journal.open(tmp_path, clock=FeedClock())
    yield opened
    await opened.close()


def forwarder(journal: Journal, directory: Path, **sinks: LineSink) -> Forwarder:
    def spec(sink: LineSink) -> SinkSpec:
        return SinkSpec(QUICK, lambda: sink)

    return Forwarder(journal, directory, {name: spec(sink) for name, sink in sinks.items()}, FeedClock())


async def add(journal: Journal, seconds: int) -> int:
    batches = list(feed(seconds, cards=1, metrics_per_card=5))
    for batch in batches:
        journal.add(batch)
    await journal.flush()
    return sum(len(batch) for batch in batches)


async def test_it_forwards_from_a_thread_and_remembers_where_it_was(journal: Journal, tmp_path: Path) -> None:
    sink = Signalling()
    running = forwarder(journal, tmp_path, one=sink)
    running.start()
    await sink.has(await add(journal, 10))
    await running.stop()
    assert sink.closed
    await journal.flush()
    with JournalReader(tmp_path) as reader:
        (cursor,) = reader.cursors()
    assert (cursor.name, cursor.head) == ("one", journal.stats().commit_seq)
    again = Signalling()
    second = forwarder(journal, tmp_path, one=again)
    second.start()
    journal.add(list(feed(11, cards=1, metrics_per_card=5))[-1])
    await journal.flush()
    await again.has(5)
    await second.stop()
    assert len(again.points) == 5


async def test_a_sink_that_cannot_be_built_is_said_and_the_others_go_on(journal: Journal, tmp_path: Path) -> None:
    def broken() -> LineSink:
        raise ConfigError([Problem("environment", None, "TOKEN", "not set", "it should hold the token")])

    sink = Signalling()
    specs = {"broken": SinkSpec(QUICK, broken), "fine": SinkSpec(QUICK, lambda: sink)}
    running = Forwarder(journal, tmp_path, specs, FeedClock())
    running.start()
    await sink.has(await add(journal, 3))
    broken_status, fine_status = running.status()
    await running.stop()
    assert broken_status.condition is Condition.STOPPED
    assert "TOKEN: not set" in broken_status.why
    assert fine_status.condition is Condition.OK


async def test_a_sink_that_hangs_does_not_hold_the_stop(journal: Journal, tmp_path: Path) -> None:
    sink = Stuck()
    running = forwarder(journal, tmp_path, stuck=sink)
    running.start()
    await add(journal, 1)
    await sink.asked.wait()
    async with asyncio.timeout(4):
        await running.stop()
    await journal.flush()
    with JournalReader(tmp_path) as reader:
        assert [cursor.head for cursor in reader.cursors()] == [0]


async def test_the_lag_is_told_while_the_sink_is_down(journal: Journal, tmp_path: Path) -> None:
    sink = Signalling(down=True)
    running = forwarder(journal, tmp_path, one=sink)
    running.start()
    rows = await add(journal, 4)
    for _ in range(5):  # the report comes every 2 s of the test's clock, between attempts
        await sink.written.get()
    status = running.status()[0]
    await running.stop()
    assert status.condition is Condition.UNAVAILABLE
    assert status.lag_rows >= rows


async def test_cursors_of_sinks_that_are_gone_are_forgotten(journal: Journal, tmp_path: Path) -> None:
    for name in ("old", "new"):
        sink = Signalling()
        running = forwarder(journal, tmp_path, **{name: sink})
        running.start()
        await add(journal, 1)
        await sink.has(1)
        await running.stop()
    await journal.flush()
    with JournalReader(tmp_path) as reader:
        assert [cursor.name for cursor in reader.cursors()] == ["new"]


async def test_a_stop_before_the_start_is_no_fault(journal: Journal, tmp_path: Path) -> None:
    await forwarder(journal, tmp_path).stop()


def test_the_status_is_given_as_the_metrics_declared() -> None:
    given = samples(SinkStatus("one", Condition.REFUSED, lag_rows=5, rejected=2), T0)
    assert [sample.metric for sample in given] == list(METRICS)
    assert {s.metric.name: s.value for s in given}["soakd_forward_state"] == 2.0
    assert all((m.kind is Kind.COUNTER) == m.name.endswith("_total") for m in METRICS)
