"""A host with cards, faster than life: its journal, its forwarder, and what ought to be in the database."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from soakd.errors import JournalError
from soakd.forward import Condition, Forwarder, SinkSpec
from soakd.journal import Journal
from soakd.model import Sample, labels
from soakd.sinks import influx
from tests.support.databases import Fields, Influx, Point
from tests.support.influx_shim import TOKEN, Shim
from tests.support.readings import SECOND, T0, feed

HOST = labels(host="gpu-01")
RUN = "20231114-2213-ab12"


@dataclass(slots=True)
class FeedClock:
    """Wall time is that of the feed, which runs many times faster than life; waits are real."""

    now_ns: int = T0
    speed: float = 1.0

    def wall_ns(self) -> int:
        return self.now_ns

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 2.0))


@dataclass(slots=True)
class Machine:
    """A host with cards: its journal, its forwarder, and what ought to be in the database."""

    directory: Path
    clock: FeedClock
    journal: Journal
    forwarder: Forwarder
    expected: dict[Point, Fields] = field(default_factory=dict)

    async def run(self, seconds: int, **kwargs: int) -> None:
        for batch in feed(seconds, start_ns=self.clock.now_ns, **kwargs):
            self.journal.add(batch, RUN)
            self.expected.update(points(batch))
            self.clock.now_ns += SECOND
            if self.journal.stats().queue_depth > 5000:
                await self.journal.flush()
        await self.journal.flush()

    async def flush_in_the_end(self) -> None:
        """When there is room again; an attempt under way may still have found none."""
        for _ in range(3):
            try:
                await self.journal.flush()
            except JournalError:
                continue
            return
        await self.journal.flush()

    @property
    def condition(self) -> Condition:
        return self.forwarder.status()[0].condition


def points(batch: Iterable[Sample]) -> Iterator[tuple[Point, Fields]]:
    for sample in batch:
        tags = frozenset((*sample.labels, *HOST, ("run", RUN)))
        value: Fields = {"state": float(sample.state.code)} if sample.value is None else {"value": sample.value}
        yield (sample.metric.name, tags, sample.at_ns), value


def spec(url: str, database: str, **keys: object) -> SinkSpec:
    os.environ["SOAKD_TEST_TOKEN"] = TOKEN
    config = influx.Config.model_validate(
        {"url": url, "bucket": database, "token_env": "SOAKD_TEST_TOKEN", "timeout": "2s", "every": "100ms", **keys}
    )
    return SinkSpec(config, lambda: influx.build(config, HOST))


@asynccontextmanager
async def machine(
    directory: Path, sinks: Mapping[str, SinkSpec], clock: FeedClock | None = None
) -> AsyncIterator[Machine]:
    clock = clock or FeedClock()
    journal = Journal.open(directory, clock=clock)
    forwarder = Forwarder(journal, directory, sinks, clock)
    forwarder.start()
    try:
        yield Machine(directory, clock, journal, forwarder)
    finally:
        await forwarder.stop()
        await journal.close()


async def arrive(server: Shim, host: Machine) -> None:
    await server.until(lambda: len(server.lines) >= len(host.expected))


def compare(database: Influx, name: str, host: Machine) -> None:
    found = compared(database, name)
    assert len(found) == len(host.expected)
    assert found == host.expected


def compared(database: Influx, name: str) -> dict[Point, Fields]:
    """What is in the database, but for what the forwarder says of itself."""
    found = database.points(name)
    return {key: value for key, value in found.items() if not key[0].startswith(("soakd_forward", "soakd_events"))}
