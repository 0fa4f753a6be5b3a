"""What the journal promises when its process dies or its disk fails, on a real process and a real file system."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from soakd.errors import JournalError, JournalFullError
from soakd.journal import Journal, JournalReader, RunRecord
from soakd.journal.schema import FILE_NAME
from soakd.model import RunState
from tests.support.journal_child import METRIC
from tests.support.readings import T0, feed
from tests.support.small_disk import small_disk

CHILD = Path(__file__).parent.parent / "support" / "journal_child.py"


async def killed_writer(directory: Path, after_s: float) -> dict[int, int]:
    """Run the child for a while and kill it; when it added each reading, on the monotonic clock, and at -1 when it was
    killed."""
    child = await asyncio.create_subprocess_exec(sys.executable, str(CHILD), str(directory), stdout=subprocess.PIPE)
    assert child.stdout is not None
    added: dict[int, int] = {}
    first = (await child.stdout.readline()).split()
    added[int(first[0])] = int(first[1])
    await asyncio.sleep(after_s)
    child.send_signal(signal.SIGKILL)
    killed = time.monotonic_ns()
    for line in (await child.stdout.read()).decode().splitlines():
        if len(parts := line.split()) == 2:
            added[int(parts[0])] = int(parts[1])
    await child.wait()
    added[-1] = killed
    return added


@pytest.mark.integration
@pytest.mark.parametrize("seed", range(4))
async def test_kill_9_loses_at_most_the_last_second(tmp_path: Path, seed: int) -> None:
    added = await killed_writer(tmp_path, random.Random(seed).uniform(0.6, 3.0))
    killed = added.pop(-1)
    with JournalReader(tmp_path) as reader:
        assert reader.run("run-1").state is RunState.RUNNING
        kept = [int(v) for v in reader.read(METRIC.name).values]
    assert kept == list(range(len(kept)))
    lost = [number for number in added if number >= len(kept)]
    assert all(added[number] > killed - 1_000_000_000 for number in lost)
    journal = Journal.open(tmp_path)
    await journal.close()
    with JournalReader(tmp_path) as reader:
        assert reader.run("latest").state is RunState.INTERRUPTED
        assert len(reader.read(METRIC.name).values) == len(kept)
    check = sqlite3.connect(tmp_path / FILE_NAME)
    assert check.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    check.close()


async def fill(journal: Journal) -> None:
    for batch in feed(5000):
        journal.add(batch, "r1")
        await journal.flush()


@pytest.mark.integration
async def test_a_full_disk_is_named_and_writing_goes_on_when_there_is_room_again(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        await _fill_and_free(disk)


async def _fill_and_free(disk: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(2**20))
    journal = Journal.open(disk, queue_limit=10_000)
    journal.start_run(RunRecord("r1", T0, RunState.RUNNING))
    with pytest.raises(JournalFullError, match="is full"):
        await fill(journal)
    for batch in feed(100):
        journal.add(batch, "r1")
    stats = journal.stats()
    assert stats.queue_depth <= 10_000
    assert stats.dropped > 0
    with JournalReader(disk) as reader:
        assert sum(series.count for series in reader.series()) == stats.rows
    ballast.unlink()
    await _flush_in_the_end(journal)
    assert journal.failure is None
    with JournalReader(disk) as reader:
        (event,) = reader.events(kind="journal.recovered")
    assert dict(event.attrs)["lost"] == str(stats.dropped)
    await journal.close()


async def _flush_in_the_end(journal: Journal) -> None:
    for _ in range(3):  # the attempt under way may still have found the disk full
        try:
            await journal.flush()
        except JournalError:
            continue
        return
    await journal.flush()


_LIMITED = """
import asyncio, pathlib, resource, sys
from soakd.errors import JournalError
from soakd.journal import Journal
from tests.support.readings import feed
async def main():
    journal = Journal.open(pathlib.Path(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
    try:
        for batch in feed(5000):
            journal.add(batch)
            await journal.flush()
    except JournalError as error:
        print(journal.stats().rows, type(error).__name__, error, sep="|")
asyncio.run(main())
"""


@pytest.mark.integration
async def test_a_quota_stops_the_journal_with_a_clear_error_and_a_readable_file(tmp_path: Path) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _LIMITED, str(tmp_path), stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": "."}
    )
    output, _ = await child.communicate()
    rows, kind, text = output.decode().strip().split("|")
    assert kind == "JournalFullError", text
    with JournalReader(tmp_path) as reader:
        assert sum(series.count for series in reader.series()) == int(rows)
