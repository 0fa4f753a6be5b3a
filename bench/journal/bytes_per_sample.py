"""Bytes of disk for one sample: the journal beside the plain SQLite table that most would write, in one run.

    python bench/journal/bytes_per_sample.py [--hours 1] [--cards 8] [--metrics 40]

The feed is that of ``tests/support/readings.py``: a fifth each of whole degrees, bytes in pages, milliwatts, standing
counters, and noise of full precision (which nothing compresses); wall clock times with 2 ms of jitter.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import tempfile
import time
from pathlib import Path

from soakd.journal import Journal, JournalReader, RetentionPolicy
from soakd.journal.capacity import file_bytes
from soakd.journal.retention import DAY_NS
from tests.support.readings import feed


async def journal_bytes(directory: Path, seconds: int, cards: int, metrics: int) -> dict[str, float]:
    journal = Journal.open(directory, retention=RetentionPolicy(raw_ns=100 * 365 * DAY_NS))
    began, cpu = time.monotonic(), time.process_time()
    for batch in feed(seconds, cards=cards, metrics_per_card=metrics):
        journal.add(batch)
        if journal.stats().queue_depth > 20_000:
            await journal.flush()
    await journal.flush()
    took, spent = time.monotonic() - began, time.process_time() - cpu
    await journal.close()
    with JournalReader(directory) as reader:
        summary = reader.summary()
        began = time.monotonic()
        key = reader.series()[0]
        listed = time.monotonic() - began
        began = time.monotonic()
        reader.read(key.metric.name, key.labels)
        read = time.monotonic() - began
    return {
        "samples": summary.hot_rows + summary.sealed_rows,
        "sealed": summary.sealed_rows,
        "used_bytes": summary.used_bytes,
        "file_bytes": file_bytes(directory / "journal.sqlite"),
        "seconds": took,
        "cpu_seconds_with_the_feed": spent,
        "list_series_seconds": listed,
        "read_one_series_seconds": read,
    }


def plain_bytes(path: Path, seconds: int, cards: int, metrics: int) -> int:
    """(series, time, value) rows with an index on series and time."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE sample (series INTEGER, at_ns INTEGER, value REAL)")
    connection.execute("CREATE INDEX by_series ON sample (series, at_ns)")
    for batch in feed(seconds, cards=cards, metrics_per_card=metrics):
        connection.executemany(
            "INSERT INTO sample VALUES (?, ?, ?)", [(i, s.at_ns, s.value) for i, s in enumerate(batch)]
        )
    connection.commit()
    connection.close()
    return path.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--cards", type=int, default=8)
    parser.add_argument("--metrics", type=int, default=40)
    options = parser.parse_args()
    seconds = int(options.hours * 3600)
    with tempfile.TemporaryDirectory() as scratch:
        ours = asyncio.run(journal_bytes(Path(scratch) / "journal", seconds, options.cards, options.metrics))
        plain = plain_bytes(Path(scratch) / "plain.sqlite", seconds, options.cards, options.metrics)
    samples = ours["samples"]
    ours["bytes_per_sample"] = ours["used_bytes"] / samples
    ours["plain_table_bytes_per_sample"] = plain / samples
    ours["ratio_to_plain_table"] = ours["used_bytes"] / plain
    print(json.dumps({name: round(value, 4) for name, value in ours.items()}, indent=2))


if __name__ == "__main__":
    main()
