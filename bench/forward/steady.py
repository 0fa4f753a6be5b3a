"""What forwarding costs while nothing is wrong: 8 cards, one sample a second, as a share of one core.

    python bench/forward/steady.py [--seconds 60]

The CPU time of the forwarder's thread and of the journal's, from the kernel's count for each thread.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import threading
import time
from pathlib import Path

from soakd.forward import Forwarder, SinkSpec
from soakd.journal import Journal, RetentionPolicy
from soakd.journal.retention import DAY_NS
from soakd.sinks import influx
from tests.support.databases import victoria
from tests.support.readings import feed


def cpu_seconds(name: str) -> float:
    """Of the thread of this process that has this name."""
    (thread,) = [thread for thread in threading.enumerate() if thread.name == name]
    fields = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(directory: Path, url: str, seconds: int) -> dict[str, float]:
    journal = Journal.open(directory, retention=RetentionPolicy(raw_ns=100 * 365 * DAY_NS))
    config = influx.Config(url=url, bucket="b", texts=False)
    forwarder = Forwarder(journal, directory, {"i": SinkSpec(config, lambda: influx.build(config, (("host", "h"),)))})
    forwarder.start()
    rows, began = 0, time.monotonic()
    await asyncio.sleep(1)
    before = cpu_seconds("soakd-forward"), cpu_seconds("journal")
    for batch in feed(seconds, start_ns=time.time_ns()):
        journal.add(batch)
        rows += len(batch)
        await asyncio.sleep(1)
    took = time.monotonic() - began - 1
    after = cpu_seconds("soakd-forward"), cpu_seconds("journal")
    (status,) = forwarder.status()
    await forwarder.stop()
    await journal.close()
    return {
        "rows_per_second": rows / took,
        "forwarder_share_of_a_core": (after[0] - before[0]) / took,
        "journal_share_of_a_core": (after[1] - before[1]) / took,
        "rows_taken": status.rows,
        "lag_seconds": status.lag_seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "db").mkdir()
        with victoria(Path(scratch) / "db") as server:
            result = asyncio.run(measure(Path(scratch) / "journal", server.url, options.seconds))
    print(json.dumps({name: round(value, 4) for name, value in result.items()}, indent=2))


if __name__ == "__main__":
    main()
