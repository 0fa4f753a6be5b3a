"""Catching up one hour of backlog of 8 cards, beside influxdb-client's own batching writer, in one run.

    python bench/forward/catch_up.py [--seconds 3600] [--database victoria|influx]

Both write the same points to the same real database: the forwarder from a journal (read, decoded, encoded, gzipped),
influxdb-client's ``WriteApi`` in batching mode from ``Point`` objects in memory, as its documentation shows it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from influxdb_client import InfluxDBClient, Point, WriteOptions, WritePrecision

from soakd.clock import RealClock
from soakd.forward.courier import Courier
from soakd.forward.route import Route
from soakd.journal import Cursor, Journal, JournalTail, RetentionPolicy
from soakd.journal.retention import DAY_NS
from soakd.sinks import influx
from tests.support.databases import influxd, victoria
from tests.support.influx_shim import TOKEN
from tests.support.readings import feed


@contextmanager
def database(kind: str, directory: Path) -> Iterator[str]:
    """The address of a v2 write API. InfluxDB 1.6 gets its shim in a process of its own."""
    if kind == "victoria":
        with victoria(directory) as server:
            yield server.url
        return
    with influxd(directory) as server:
        for name in ("forwarder", "client"):
            server.create(name)
        command = [sys.executable, "-m", "bench.forward.shim_process", server.url]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            process.wait(10)


async def fill(directory: Path, seconds: int) -> int:
    journal = Journal.open(directory, retention=RetentionPolicy(raw_ns=100 * 365 * DAY_NS))
    rows = 0
    for batch in feed(seconds):
        journal.add(batch)
        rows += len(batch)
        if journal.stats().queue_depth > 2_000:
            await journal.flush()
    await journal.flush()
    await journal.close()
    return rows


async def forward(directory: Path, url: str) -> tuple[float, float]:
    """Seconds of wall and of CPU for all of it."""
    clock, tail = RealClock(), JournalTail(directory)
    config = influx.Config(url=url, bucket="forwarder", catch_up_rows_per_s=10**9)
    sink = influx.InfluxSink(config, (("host", "gpu-01"),), TOKEN)
    courier = Courier("i", sink, config.batch_rows, clock, print, print, random.random)
    route = Route(tail, courier, Cursor("i"), config, clock, lambda cursor: None)
    wall, cpu = time.monotonic(), time.process_time()
    while route.cursor != Cursor("i", tail.latest()):
        await clock.sleep(await route.step())
    taken = time.monotonic() - wall, time.process_time() - cpu
    await sink.close()
    tail.close()
    return taken


def with_client(seconds: int, url: str) -> tuple[float, float]:
    """The same points with influxdb-client's batching writer; only its own part is timed."""
    client = InfluxDBClient(url=url, token=TOKEN, org="-", enable_gzip=True)
    wall = cpu = 0.0
    with client.write_api(WriteOptions(batch_size=5_000, flush_interval=1_000)) as writer:
        for batch in feed(seconds):
            began, spent = time.monotonic(), time.process_time()
            for sample in batch:
                point = Point(sample.metric.name).tag("host", "gpu-01")
                for name, value in sample.labels:
                    point = point.tag(name, value)
                if sample.value is None:
                    point = point.field("state", sample.state.code)
                else:
                    point = point.field("value", sample.value)
                writer.write("client", "-", point.time(sample.at_ns, WritePrecision.NS))
            wall, cpu = wall + time.monotonic() - began, cpu + time.process_time() - spent
        began, spent = time.monotonic(), time.process_time()
    wall, cpu = wall + time.monotonic() - began, cpu + time.process_time() - spent
    client.close()
    return wall, cpu


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--client-seconds", type=int, default=300, help="of the feed, for influxdb-client")
    parser.add_argument("--database", choices=("victoria", "influx"), default="victoria")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        journal = Path(scratch) / "journal"
        rows = asyncio.run(fill(journal, options.seconds))
        (Path(scratch) / "db").mkdir()
        with database(options.database, Path(scratch) / "db") as url:
            wall, cpu = asyncio.run(forward(journal, url))
            client_wall, client_cpu = with_client(options.client_seconds, url)
    client_rows = rows * options.client_seconds / options.seconds
    result = {
        "database": options.database,
        "rows": rows,
        "catch_up_seconds": wall,
        "rows_per_second": rows / wall,
        "cpu_microseconds_per_row": cpu / rows * 1e6,
        "client_rows_per_second": client_rows / client_wall,
        "client_cpu_microseconds_per_row": client_cpu / client_rows * 1e6,
        "cpu_ratio_to_client": cpu / rows / (client_cpu / client_rows),
        "max_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in result.items()}, indent=2))


if __name__ == "__main__":
    main()
