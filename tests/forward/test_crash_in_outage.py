"""The forwarding process dies while the database is down; a full disk during an outage."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from soakd.errors import JournalFullError
from tests.support.databases import Fields, Influx, Point
from tests.support.forwarding import Machine, compared, machine, points, spec
from tests.support.influx_shim import Shim, shim
from tests.support.readings import SECOND, T0, feed
from tests.support.small_disk import small_disk

pytestmark = pytest.mark.integration
CHILD = Path(__file__).parent.parent / "support" / "forward_child.py"


def fed(seconds: int) -> dict[Point, Fields]:
    """What the child fed in its first seconds, however often it was killed."""
    expected: dict[Point, Fields] = {}
    for second in range(seconds):
        for batch in feed(1, seed=second, start_ns=T0 + second * SECOND):
            expected.update(points(batch))
    return expected


async def start(directory: Path, server: Shim, database: str, begin: int, end: int) -> asyncio.subprocess.Process:
    environment = {**os.environ, "PYTHONPATH": str(CHILD.parent.parent.parent)}
    arguments = (str(CHILD), str(directory), server.url, database, str(begin), str(end))
    return await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    )


async def until_fed(child: asyncio.subprocess.Process, seconds: int) -> None:
    assert child.stdout is not None
    async for line in child.stdout:
        if line.strip().isdigit() and int(line) >= seconds:
            return
    raise AssertionError("the child ended")


async def kill(child: asyncio.subprocess.Process) -> int:
    """The last second the child said was committed."""
    child.send_signal(signal.SIGKILL)
    assert child.stdout is not None
    rest = (await child.stdout.read()).split()
    await child.wait()
    return int(rest[-1]) if rest else 0


async def test_kill_9_in_an_outage_loses_nothing_that_was_committed(
    tmp_path: Path, database: Influx, outage_s: int
) -> None:
    database.create("killed")
    done, third = 0, max(5, outage_s // 12)
    async with shim(database.url) as server:
        for mode in ("ok", "503", "hang", "503"):
            server.mode = mode
            target = done + random.Random(mode).randint(third, third + 40)
            child = await start(tmp_path, server, "killed", done, target + 100)
            await until_fed(child, target)
            done = max(target, await kill(child))
        server.mode = "ok"
        end = done + 110
        child = await start(tmp_path, server, "killed", done, end)
        await until_fed(child, end)
        expected = fed(end)
        await server.until(lambda: len(server.lines) >= len(expected))
        await kill(child)
    found = compared(database, "killed")
    assert len(found) == len(expected)
    assert found == expected


async def feed_until_full(host: Machine) -> int:
    """Seconds of the feed that are surely committed."""
    for second in range(10_000):
        try:
            await host.run(1, seed=second)
        except JournalFullError:
            return second
    raise AssertionError("the disk is not full yet")


async def test_a_full_disk_in_an_outage_loses_nothing_that_was_committed(tmp_path: Path, database: Influx) -> None:
    database.create("full")
    with small_disk(tmp_path / "disk", "6m") as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(3 * 2**20))
        async with shim(database.url) as server, machine(disk, {"influx": spec(server.url, "full")}) as host:
            server.mode = "503"
            committed = fed(await feed_until_full(host))
            server.mode = "ok"
            await server.until(lambda: len(server.lines) >= len(committed))
            ballast.unlink()
            await host.flush_in_the_end()
            await host.run(5, seed=99)
            assert host.journal.failure is None
            await server.until(lambda: len(server.lines) >= len(host.expected))
    found = compared(database, "full")
    assert {key: value for key, value in found.items() if key in committed} == committed
    assert found == host.expected
