"""The activity log: what is read back is what was noted, and a torn last line costs only itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from soakd.rehearsal.activity import Activity, ActivityLog, ActivityReader, Change, parse

TWO_LIVES = Activity(
    (Change(0, 7, False), Change(10, 7, True), Change(50, 7, False), Change(60, 7, True), Change(80, None, False),
     Change(100, 8, False), Change(110, 8, True))
)  # fmt: skip


@pytest.mark.parametrize(
    ("at_s", "pid", "busy"), [(-1, None, False), (0, 7, False), (10, 7, True), (85, None, False), (200, 8, True)]
)
def test_the_state_at_a_time(at_s: float, pid: int | None, busy: bool) -> None:
    state = TWO_LIVES.at(at_s)
    assert (state.pid, state.busy) == (pid, busy)


@pytest.mark.parametrize(("at_s", "busy_s"), [(5, 0), (30, 20), (55, 40), (80 - 1e-9, 60), (90, 0), (111, 1)])
def test_work_counts_for_the_process_that_does_it(at_s: float, busy_s: float) -> None:
    assert TWO_LIVES.busy_s(at_s) == pytest.approx(busy_s)


def test_a_reader_sees_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "activity.jsonl"
    reader, log = ActivityReader(path), ActivityLog(path)
    assert reader.read() == Activity(())
    for change in TWO_LIVES.changes:
        log.append(change)
    assert reader.read() == TWO_LIVES


def test_a_torn_line_is_left_out() -> None:
    assert parse([b"[1.0, 5, true]", b"[2.0, 5, fal"]) == Activity((Change(1.0, 5, True),))


def test_the_log_is_bounded_but_never_misses_a_death(tmp_path: Path) -> None:
    log = ActivityLog(tmp_path / "activity.jsonl")
    for i in range(4100):
        log.append(Change(float(i), 7, i % 2 == 0))
    log.append(Change(5000.0, None, False))
    changes = ActivityReader(tmp_path / "activity.jsonl").read().changes
    assert len(changes) == 4001
    assert changes[-1].pid is None
