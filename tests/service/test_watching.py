"""What the daemon holds of readings: bounded, aged, and stale only for a reason."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from soakd.config import load_config
from soakd.journal import Journal
from soakd.model import Event, Kind, Metric, Sample, Severity, labels
from soakd.report.outcome_metrics import OUTCOME
from soakd.report.run_state import RUN_STATE
from soakd.schedule import UP
from soakd.service.watching import Watch
from soakd.soak.environment import Environment
from soakd.soak.feed import Feed
from tests.support.gpus import HandClock

GAUGE = Metric("a_gauge", "", Kind.GAUGE, "", "", ("n",))
OK, TIMEOUT, NO_PERMISSION = 1, 4, 7


class Unwritten(Journal):
    """Takes everything and writes nothing."""

    def __init__(self) -> None:
        self.taken = 0

    def add(self, items: object, run_id: str | None = None) -> None:
        self.taken += 1


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def watch(clock: HandClock, tmp_path: Path) -> Watch:
    every = {"data_dir": str(tmp_path), "collectors.host.interval": "60s"}
    return Watch(load_config(None, sets=every), Environment(clock=clock), Unwritten())


def up(watch: Watch, clock: HandClock, codes: dict[str, int]) -> None:
    watch.feed.emit([Sample.ok(UP, code, clock.now_ns, labels(collector=name)) for name, code in codes.items()])


def test_the_daemons_own_readings_are_no_sign_of_life(watch: Watch, clock: HandClock) -> None:
    up(watch, clock, {"host": OK})
    clock.turn(90)
    watch.feed.emit([Sample.ok(GAUGE, 1, clock.now_ns, labels(n="1")), Event("x", clock.now_ns, "y", Severity.INFO)])
    assert watch.silent_s() == 90


@pytest.mark.parametrize(("code", "stale"), [(OK, False), (NO_PERMISSION, False), (TIMEOUT, True)])
def test_a_collector_is_stale_when_it_was_not_read_for_three_of_its_intervals(
    watch: Watch, clock: HandClock, code: int, stale: bool
) -> None:
    names = list(watch._intervals)
    up(watch, clock, dict.fromkeys(names, OK))
    for _ in range(20):
        clock.turn(10)
        up(watch, clock, {**dict.fromkeys(names, OK), "host": code, "xid": code})
    found = watch.stale(60)
    assert found == (("collector host: timeout for 200 s", "collector xid: timeout for 200 s") if stale else ())
    assert watch.silent_s() == 0


def test_one_that_is_late_once_is_not_stale(watch: Watch, clock: HandClock) -> None:
    up(watch, clock, dict.fromkeys(watch._intervals, OK))
    clock.turn(10)
    up(watch, clock, {"xid": TIMEOUT})
    assert watch.stale(60) == ()


def test_series_that_speak_no_more_are_not_shown_but_the_last_outcome_is(watch: Watch, clock: HandClock) -> None:
    began = clock.now_ns
    watch.feed.emit([Sample.ok(m, 0, began) for m in (GAUGE, OUTCOME, RUN_STATE)])
    clock.turn(299)
    assert len(watch.samples()) == 3
    clock.turn(2)
    assert {s.metric for s in watch.samples()} == {OUTCOME, RUN_STATE}


def fed(feed: Feed, names: Sequence[int], at_ns: int) -> None:
    feed.emit([Sample.ok(GAUGE, 1, at_ns, labels(n=n)) for n in names])


def test_what_is_kept_is_bounded_and_old_series_make_room(clock: HandClock) -> None:
    feed = Feed(Unwritten(), None)
    fed(feed, range(25_000), clock.now_ns)
    assert (len(feed.everything()), feed.series_left_out) == (20_000, 5_000)
    clock.turn(3600)
    fed(feed, range(30_000, 30_010), clock.now_ns)
    assert len(feed.everything()) == 10
    for n in range(5000):
        feed.emit([Event("e", n, str(n), Severity.INFO)])
    assert [feed.events[0].at_ns, feed.events[-1].at_ns, len(feed.events)] == [3000, 4999, 2000]
