from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from soakd.errors import JournalError, JournalFullError
from soakd.journal import Journal, JournalReader, RunRecord, new_run_id
from soakd.journal.schema import APPLICATION_ID, FILE_NAME, VERSION, migrate
from soakd.model import Event, Finding, Outcome, RunState, Sample, Severity, State, labels
from tests.support.hand_clock import HandClock
from tests.support.readings import MEMORY, SECOND, T0, TEMPERATURE, card, feed


async def test_what_was_added_is_read_back_the_same(journal: Journal, tmp_path: Path) -> None:
    event = Event("xid", T0, "XID 79", Severity.CRITICAL, labels(gpu="a"), labels(code=79))
    finding = Finding("limit.leak", Severity.WARNING, "grows", "by much", T0, labels(gpu="a"), "m", 1.5, "bytes")
    journal.add([Sample.ok(TEMPERATURE, 61.5, T0 + i, card(0)) for i in range(3)], "run-1")
    journal.add([Sample.unknown(TEMPERATURE, State.LOST, T0 + 3, card(0), "fell off the bus"), event, finding], "run-1")
    await journal.flush()
    with JournalReader(tmp_path) as reader:
        series = reader.read(TEMPERATURE.name, card(0))
        assert series.metric == TEMPERATURE
        assert (list(series.at_ns), list(series.values)) == ([T0, T0 + 1, T0 + 2], [61.5] * 3)
        assert series.states == {State.OK: 3, State.LOST: 1}
        assert reader.events() == (event,)
        assert reader.findings(run_id="run-1") == (finding,)


async def test_a_reading_that_is_no_number_is_stored_as_unknown(journal: Journal, tmp_path: Path) -> None:
    journal.add([Sample.ok(TEMPERATURE, float("nan"), T0, card(0)), Sample.ok(TEMPERATURE, 1.0, T0 + 1, card(0))])
    await journal.flush()
    with JournalReader(tmp_path) as reader:
        series = reader.read(TEMPERATURE.name)
    assert (list(series.values), series.unknown) == ([1.0], 1)


async def test_the_run_goes_from_running_to_finished(journal: Journal, tmp_path: Path) -> None:
    run = RunRecord(new_run_id(T0), T0, RunState.RUNNING, target="http://x", profile="p", simulated=True)
    journal.start_run(run)
    journal.add_blob("load.windows", run.id, T0, T0 + 5, 2, b"\x00\x01")
    journal.finish_run(run.id, RunState.FINISHED, Outcome.FAIL, T0 + SECOND, b'{"schema": 1}')
    await journal.flush()
    with JournalReader(tmp_path) as reader:
        found = reader.run("latest")
        assert (found.state, found.outcome, found.report) == (RunState.FINISHED, "FAIL", b'{"schema": 1}')
        assert reader.run(run.id[:10]) == found
        assert [(b.count, b.data) for b in reader.blobs("load.windows", run.id)] == [(2, b"\x00\x01")]
        with pytest.raises(JournalError, match="no run 'nope'"):
            reader.run("nope")


async def test_a_run_nobody_finished_is_interrupted_at_the_next_start(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    journal.start_run(RunRecord("r1", T0, RunState.RUNNING))
    await journal.close()
    again = Journal.open(tmp_path)
    await again.close()
    with JournalReader(tmp_path) as reader:
        assert reader.run("r1").state is RunState.INTERRUPTED
        assert reader.run("r1").ended_ns is not None


async def test_commits_are_numbered_on_over_a_restart(tmp_path: Path) -> None:
    for expected in (1, 2):
        journal = Journal.open(tmp_path)
        journal.add([Sample.ok(TEMPERATURE, 1.0, T0)])
        await journal.flush()
        assert journal.stats().commit_seq == expected
        assert journal.stats().rows == expected
        await journal.close()


async def test_a_second_owner_is_told_who_holds_the_directory(journal: Journal, tmp_path: Path) -> None:
    code = "import sys, pathlib; from soakd.journal import Journal; Journal.open(pathlib.Path(sys.argv[1]))"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(tmp_path), stderr=subprocess.PIPE)
    _, stderr = await child.communicate()
    assert f"in use by process {os.getpid()}" in stderr.decode()


async def test_a_flood_drops_samples_before_events(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, queue_limit=10)
    event = Event("gpu.lost", T0, "gone")
    journal.add([Sample.ok(TEMPERATURE, 1.0, T0 + i) for i in range(10)])
    journal.add([Sample.ok(TEMPERATURE, 1.0, T0 + 100), event])
    assert journal.stats().dropped == 1
    await journal.flush()
    with JournalReader(tmp_path) as reader:
        assert reader.events() == (event,)
        assert len(reader.read(TEMPERATURE.name).at_ns) == 10
    await journal.close()


async def test_one_item_that_cannot_be_stored_takes_no_other_with_it(journal: Journal, tmp_path: Path) -> None:
    good = [Event("good", T0 + i, "fine") for i in range(9)]
    journal.add([*good[:5], Event("bad", T0, "a lone surrogate \ud800"), *good[5:]], "run-1")
    journal.add([Sample.ok(TEMPERATURE, 1.0, 2**70), Sample.ok(TEMPERATURE, 1.0, T0)])
    await journal.flush()
    with JournalReader(tmp_path) as reader:
        assert reader.events(run_id="run-1") == tuple(good)
        assert len(reader.read(TEMPERATURE.name).at_ns) == 1
    assert journal.stats().dropped == 2
    assert journal.stats().queue_depth == 0
    assert journal.failure is None


async def write_all(journal: Journal, seconds: int, run_id: str) -> None:
    for batch in feed(seconds):
        journal.add(batch, run_id)
        await journal.flush()


async def test_a_cap_fills_the_journal_and_what_was_written_stays_readable(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, max_bytes=2**20, queue_limit=5000)
    journal.start_run(RunRecord("r1", T0, RunState.RUNNING))
    with pytest.raises(JournalFullError, match="cap of 1048576 bytes"):
        await write_all(journal, 2000, "r1")
    assert isinstance(journal.failure, JournalFullError)
    for batch in feed(100):
        journal.add(batch, "r1")
    stats = journal.stats()
    assert stats.queue_depth <= 5000
    assert stats.dropped > 0
    assert stats.file_bytes <= 1.1 * 2**20
    with JournalReader(tmp_path) as reader:
        assert sum(s.count for s in reader.series()) == stats.rows
        assert reader.run("r1").state is RunState.RUNNING
    with pytest.raises(JournalError, match="could not be written"):
        await journal.close()
    assert sqlite3.connect(tmp_path / FILE_NAME).execute("PRAGMA integrity_check").fetchone() == ("ok",)


class StuckClock(HandClock):
    """Stops the writing thread in the middle of a commit, as a disk that hangs does."""

    release = threading.Event()

    def wall_ns(self) -> int:
        if threading.current_thread().name == "journal":
            self.release.wait(30)
        return self.now_ns


async def test_a_disk_that_hangs_holds_neither_the_loop_nor_the_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("soakd.journal.writer._CLOSE_S", 0.05)
    clock = StuckClock(T0)
    journal = Journal.open(tmp_path, clock=clock, queue_limit=100)
    for at in range(1000):
        journal.add([Sample.ok(TEMPERATURE, 1.0, T0 + at)])
    with pytest.raises(JournalError, match="could not be closed"):
        await journal.close()
    assert journal.stats().dropped >= 900
    clock.release.set()
    await journal.close()


async def test_a_closed_journal_says_so(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    await journal.close()
    with pytest.raises(JournalError, match="closed"):
        await journal.flush()


async def test_a_newer_schema_is_refused_by_owner_and_reader(tmp_path: Path) -> None:
    await Journal.open(tmp_path).close()
    sqlite3.connect(tmp_path / FILE_NAME).execute(f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(JournalError, match=f"schema {VERSION + 1}"):
        Journal.open(tmp_path)
    with pytest.raises(JournalError, match=f"schema {VERSION + 1}"):
        JournalReader(tmp_path)


async def test_a_journal_of_schema_1_is_migrated_with_its_data(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    old.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    migrate(old, 0, to=1)
    old.execute("INSERT INTO metric VALUES (1, 'm_bytes', 'bytes', 'gauge', 'h', 's', '[]', '[]', NULL)")
    old.execute("INSERT INTO labelset VALUES (1, '[]')")
    old.execute("INSERT INTO series VALUES (1, 1, 1, 0)")
    old.execute("INSERT INTO hot VALUES (?, 1, ?, 0, 7.5)", (1 << 20, T0))
    old.execute("INSERT INTO commits VALUES (1, ?, 1)", (T0,))
    old.close()
    with JournalReader(tmp_path) as reader:
        assert list(reader.read("m_bytes").values) == [7.5]
        assert reader.summary().schema == 1
    await Journal.open(tmp_path).close()
    with JournalReader(tmp_path) as reader:
        assert reader.summary().schema == VERSION
        assert list(reader.read("m_bytes").values) == [7.5]


@pytest.mark.parametrize("content", [b"not a database, but long enough to be looked at" * 50, b""])
def test_another_file_in_its_place_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(JournalError, match=r"not SQLite|empty file|not a database"):
        JournalReader(tmp_path)


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / FILE_NAME)
    other.execute("CREATE TABLE cookies (name TEXT)")
    other.close()
    with pytest.raises(JournalError, match="not a journal of soakd"):
        Journal.open(tmp_path)


def test_a_missing_journal_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="no journal at"):
        JournalReader(tmp_path / "nowhere")


async def test_memory_grows_with_the_queue_alone(journal: Journal) -> None:
    for batch in feed(50):
        journal.add(batch)
    journal.add([Sample.ok(MEMORY, 1.0, T0, card(0))])
    await journal.flush()
    assert journal.stats().queue_depth == 0
