"""A process that feeds a journal and forwards it, to be killed: ``forward_child.py DIRECTORY URL DATABASE FROM TO``.

FROM and TO are seconds of the feed; each line it prints is a second up to which everything is committed.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.support.forwarding import FeedClock, machine, spec
from tests.support.readings import SECOND, T0


async def main(directory: Path, url: str, database: str, start: int, end: int) -> None:
    async with machine(directory, {"influx": spec(url, database)}, FeedClock(T0 + start * SECOND)) as host:
        for second in range(start, end):
            await host.run(1, seed=second)
            print(second + 1, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
