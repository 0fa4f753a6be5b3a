from __future__ import annotations

from pathlib import Path

import numpy as np

from soakd.journal import Cursor, RunRecord
from soakd.journal.reader import JournalReader
from soakd.journal.retention import DAY_NS, HOUR_NS, Retention, RetentionPolicy
from soakd.journal.store import ItemBatch, Store
from soakd.model import Event, RunState, Sample
from tests.support.hand_clock import HandClock
from tests.support.readings import ENERGY, SECOND, T0, TEMPERATURE, card

POLICY = RetentionPolicy(raw_ns=2 * DAY_NS, minute_ns=10 * DAY_NS, hour_ns=100 * DAY_NS)


class Bench:
    """A store whose clock is turned by hand, and its retention."""

    def __init__(self, directory: Path, max_bytes: int | None = None) -> None:
        self.directory = directory
        self.clock = HandClock(T0)
        self.store = Store(directory / "journal.sqlite", self.clock)
        self.retention = Retention(self.store, POLICY, max_bytes)

    def hours(self, count: int, run_id: str = "") -> None:
        """A counter and a gauge every 10 s; the clock goes along."""
        for _ in range(count):
            start = self.clock.now_ns
            times = range(start, start + HOUR_NS, 10 * SECOND)
            items = [Sample.ok(ENERGY, float((t - T0) // SECOND), t, card(0)) for t in times]
            items += [Sample.ok(TEMPERATURE, float(t // SECOND * 7919 % 1009) / 7, t, card(0)) for t in times]
            self.store.commit([ItemBatch(tuple(items), run_id)])
            self.clock.now_ns += HOUR_NS
            self.seal()

    def seal(self) -> None:
        while self.store.sealer.step(self.clock.now_ns, 100):
            pass

    def settle(self) -> int:
        self.store.sealer.note_old(self.clock.now_ns)
        self.seal()
        steps = 0
        while self.retention.step(self.clock.now_ns):
            steps += 1
            assert steps < 10_000
        return steps

    def reader(self) -> JournalReader:
        return JournalReader(self.directory)


def test_old_raw_becomes_minutes_and_no_increase_is_lost(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.hours(24)
    with bench.reader() as reader:
        before = reader.buckets(TEMPERATURE.name, width_ns=HOUR_NS)
    bench.clock.now_ns += 3 * DAY_NS
    assert bench.settle() > 0
    bench.hours(2)
    with bench.reader() as reader:
        summary = reader.summary()
        raw = reader.read(TEMPERATURE.name)
        after = reader.buckets(TEMPERATURE.name, width_ns=HOUR_NS)
        energy = reader.buckets(ENERGY.name, width_ns=HOUR_NS)
    assert summary.rollup_buckets == 2 * (24 * 60 + 1)  # T0 is not on a minute
    assert raw.at_ns[0] >= T0 + 4 * DAY_NS
    head = slice(0, len(before.start_ns) - 1)
    for name in ("start_ns", "count", "minimum", "mean", "maximum", "last"):
        np.testing.assert_allclose(getattr(after, name)[head], getattr(before, name)[head], err_msg=name)
    with bench.reader() as reader:
        last = reader.read(ENERGY.name).values[-1]
    assert energy.increase.sum() == last


def test_old_minutes_become_hours_and_old_hours_go(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.hours(24)
    bench.clock.now_ns += 13 * DAY_NS
    bench.settle()
    with bench.reader() as reader:
        assert reader.summary().rollup_buckets in {2 * 24, 2 * 25}
        assert reader.buckets(ENERGY.name, max_points=5).count.sum() == 24 * 360
    bench.clock.now_ns += 101 * DAY_NS
    bench.settle()
    with bench.reader() as reader:
        assert reader.summary().rollup_buckets == 0


def test_a_run_that_is_not_over_keeps_its_raw_data(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.store.put_run(RunRecord("r1", T0, RunState.RUNNING))
    bench.hours(24, "r1")
    bench.clock.now_ns += 5 * DAY_NS
    bench.settle()
    with bench.reader() as reader:
        assert len(reader.read(ENERGY.name, run_id="r1").at_ns) == 24 * 360
    bench.store.finish_run("r1", RunState.FINISHED, None, bench.clock.now_ns, None)
    bench.settle()
    with bench.reader() as reader:
        assert len(reader.read(ENERGY.name, run_id="r1").at_ns) == 0


def test_age_alone_never_takes_what_a_sink_has_not_got(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.hours(24)
    bench.store.put_cursor(Cursor("influx", 24, ((5, 10),)))
    bench.clock.now_ns += 5 * DAY_NS
    bench.settle()
    with bench.reader() as reader:
        kept = len(reader.read(ENERGY.name).at_ns)
        (lag,) = reader.summary().cursors
    assert kept >= 19 * 360
    assert lag.rows == 5 * 720
    bench.store.put_cursor(Cursor("influx", 24))
    bench.settle()
    with bench.reader() as reader:
        assert len(reader.read(ENERGY.name).at_ns) == 0


def test_the_cap_takes_the_oldest_first_and_says_so_when_it_was_not_forwarded(tmp_path: Path) -> None:
    bench = Bench(tmp_path, max_bytes=200_000)
    bench.store.put_cursor(Cursor("influx", 2))
    for _ in range(16):
        bench.hours(6)
        bench.clock.now_ns -= 6 * HOUR_NS - 6 * 60 * SECOND  # dense data: age alone takes nothing
        bench.settle()
    with bench.reader() as reader:
        events = reader.events(kind="journal.unforwarded_dropped")
        raw = reader.read(ENERGY.name)
    assert bench.retention.used_bytes() < 200_000
    assert events
    assert "a sink has not got yet" in events[0].what
    assert raw.at_ns[0] > T0


def test_old_events_and_commits_go_but_the_sequence_stays(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.store.commit([ItemBatch((Event("xid", T0, "x"),), "")])
    bench.hours(1)
    bench.clock.now_ns += 200 * DAY_NS
    bench.settle()
    with bench.reader() as reader:
        assert reader.events() == ()
        assert reader.summary().commit_seq == 2
    assert bench.store.rows_kept() == 720


def test_where_nothing_is_old_nothing_is_done(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.hours(3)
    assert bench.settle() == 0
