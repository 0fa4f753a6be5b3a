from __future__ import annotations

from collections.abc import Sequence

import pytest

from soakd.forward.courier import Courier, Stopping
from soakd.forward.status import Condition
from soakd.journal.records import SetAside
from soakd.model import Event, Sample
from soakd.sinks.delivery import Record, SinkError, SinkRefusedError, SinkUnavailableError
from tests.support.fake_sink import FakeSink
from tests.support.hand_clock import HandClock
from tests.support.readings import T0, TEMPERATURE, card


class Desk:
    """A courier, and what it told."""

    def __init__(self, sink: FakeSink, batch_rows: int = 100) -> None:
        self.sink = sink
        self.clock = HandClock(T0)
        self.events: list[Event] = []
        self.aside: list[SetAside] = []
        self.courier = Courier(
            "influx", sink, batch_rows, self.clock, self.events.append, self.aside.extend, lambda: 1.0
        )

    @property
    def told(self) -> list[str]:
        return [event.kind for event in self.events]


def records(count: int) -> list[Record]:
    return [Sample.ok(TEMPERATURE, float(i), T0 + i, card(0)) for i in range(count)]


class Failing:
    """Gives these errors first, then none."""

    def __init__(self, *errors: SinkError) -> None:
        self._errors = list(errors)

    def __call__(self, batch: Sequence[Record]) -> SinkError | None:
        return self._errors.pop(0) if self._errors else None


async def test_batches_are_cut_to_size_and_kept_in_order() -> None:
    desk = Desk(FakeSink())
    await desk.courier.deliver(records(250))
    assert desk.sink.writes == 3
    assert [line.rsplit(" ", 1)[1] for line in desk.sink.order] == [str(T0 + i) for i in range(250)]
    assert (desk.courier.status.rows, desk.courier.status.batches) == (250, 3)


async def test_failures_are_waited_out_ever_longer_and_told_once() -> None:
    desk = Desk(FakeSink(Failing(*[SinkUnavailableError("503")] * 6)))
    await desk.courier.deliver(records(10))
    assert len(desk.sink.points) == 10
    assert desk.clock.slept_s == pytest.approx(0.5 + 1 + 2 + 4 + 8 + 16)
    assert desk.told == ["forward.unavailable", "forward.recovered"]
    assert desk.courier.status.retries == 6
    assert desk.courier.status.condition is Condition.OK


async def test_a_hiccup_is_not_worth_telling() -> None:
    desk = Desk(FakeSink(Failing(SinkUnavailableError("timeout"))))
    await desk.courier.deliver(records(1))
    assert desk.told == []


async def test_the_servers_own_wish_is_honoured() -> None:
    desk = Desk(FakeSink(Failing(SinkUnavailableError("429", retry_after_s=30.0))))
    await desk.courier.deliver(records(1))
    assert desk.clock.slept_s >= 30.0


async def test_a_wrong_token_is_told_at_once_once_and_again_when_it_works() -> None:
    desk = Desk(FakeSink(Failing(*[SinkRefusedError("401")] * 20)))
    await desk.courier.deliver(records(5))
    assert desk.told == ["forward.refused", "forward.recovered"]
    assert len(desk.sink.points) == 5


async def test_what_is_too_large_is_halved_and_stays_halved() -> None:
    desk = Desk(FakeSink(takes=20))
    await desk.courier.deliver(records(200))
    assert len(desk.sink.points) == 200
    assert desk.courier.status.batch_rows <= 20
    before = desk.sink.writes
    await desk.courier.deliver(records(100))
    assert desk.sink.writes - before == -(-100 // desk.courier.status.batch_rows)


async def test_a_single_line_that_is_too_large_is_set_aside() -> None:
    desk = Desk(FakeSink(takes=0))
    await desk.courier.deliver(records(2))
    assert [aside.reason for aside in desk.aside] == ["413", "413"]


@pytest.mark.parametrize("bad", [{0}, {99}, {3, 4, 57}, set(range(100))])
async def test_only_the_lines_that_are_refused_are_set_aside(bad: set[int]) -> None:
    times = {str(T0 + i) for i in bad}
    desk = Desk(FakeSink(bad=lambda line: line.rsplit(" ", 1)[1] in times))
    await desk.courier.deliver(records(100))
    assert {aside.line.rsplit(" ", 1)[1] for aside in desk.aside} == times
    assert len(desk.aside) == len(bad)
    assert len(desk.sink.points) == 100 - len(bad)
    assert desk.aside[0].reason == "partial write: field type conflict"
    assert desk.told == ["forward.rejected"]
    assert desk.courier.status.rejected == len(bad)


async def test_a_stop_ends_the_waiting() -> None:
    desk = Desk(FakeSink(lambda batch: SinkUnavailableError("down")))
    desk.courier.stop()
    with pytest.raises(Stopping):
        await desk.courier.deliver(records(1))
    assert desk.sink.points == {}


async def test_what_was_set_aside_before_a_stop_is_kept() -> None:
    desk = Desk(FakeSink(bad=lambda line: line.endswith(str(T0))), batch_rows=1)
    sink_write = desk.sink.write

    async def write(batch: Sequence[Record]) -> None:
        if batch[0].at_ns == T0 + 1:
            desk.courier.stop()
            raise SinkUnavailableError("down")
        await sink_write(batch)

    desk.sink.write = write  # type: ignore[method-assign]
    with pytest.raises(Stopping):
        await desk.courier.deliver(records(3))
    assert len(desk.aside) == 1
