"""A process that owns a journal and writes to it until it is killed: ``python journal_child.py DIRECTORY``.

Prints a line after each ``add``: the number of the reading and the monotonic clock, which all processes share.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from soakd.journal import Journal, RunRecord
from soakd.model import Kind, Metric, RunState, Sample

METRIC = Metric("count_total", "count", Kind.COUNTER, "How many were added", "test")


async def main(directory: Path) -> None:
    journal = Journal.open(directory)
    journal.start_run(RunRecord("run-1", time.time_ns(), RunState.RUNNING))
    for number in range(10**9):
        journal.add([Sample.ok(METRIC, float(number), number)], "run-1")
        print(number, time.monotonic_ns(), flush=True)
        await asyncio.sleep(0.002)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
