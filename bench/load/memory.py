"""Whether a load worker's memory stays flat at a high rate, judged by soakd's own analysis of growth.

``python -m bench.load.memory [--minutes 5] [--streams 256] [--transport raw] [--workers 1]`` drives the server of known
timing (TTFT 5 ms, ITL 10 ms, 8 tokens: short answers, so that many requests are made) with request records and
multi-turn prompts, reads each worker's RSS every second from /proc and tells its slope per hour and per million
requests. JSON goes to bench/out/memory.json.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import sys
import time
from pathlib import Path

import numpy as np

from bench.load.harness import KnownServer, known_server, pick_cores, save
from soakd.analysis.judge import judge_series
from soakd.analysis.series import SeriesQuestion
from soakd.load.arrivals import Closed
from soakd.load.driver import LoadDriver
from soakd.load.messages import Done, Tick
from soakd.load.prompts import make_spec
from soakd.load.spec import LoadSpec, Stage, TargetSpec, TransportKind

_SERVER = ("--tokens", "8", "--ttft-ms", "5", "--itl-ms", "10")
_MIB = 2**20


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """``t_s`` since the load began; ``rss_bytes`` of each worker; ``completed`` of all."""

    t_s: float
    completed: int
    rss_bytes: tuple[int, ...]


def rss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no VmRSS of process {pid}")


async def drive(server: KnownServer, options: argparse.Namespace) -> tuple[Done, list[Reading]]:
    transport: TransportKind = options.transport
    spec = LoadSpec(
        TargetSpec((server.url,), model="known-timing"),
        (Stage("hold", Closed(options.streams), options.minutes * 60),),
        make_spec("multi_turn", {}, context_tokens=4096),
        transport=transport,
        workers=options.workers,
        max_in_flight=20_000,
        window_s=10.0,
    )
    driver = LoadDriver()
    await driver.start(spec)
    began, done = time.monotonic(), None
    readings: list[Reading] = []
    async for message in driver.messages():
        if isinstance(message, Tick) and message.elapsed_s < spec.duration_s - 1:
            sizes = tuple(rss_bytes(pid) for pid in driver.worker_pids)
            readings.append(Reading(time.monotonic() - began, message.completed, sizes))
        elif isinstance(message, Done):
            done = message
    assert done is not None
    return done, readings


def judged(readings: list[Reading], worker: int) -> dict[str, object]:
    x = np.array([r.t_s for r in readings])
    y = np.array([float(r.rss_bytes[worker]) for r in readings])
    found = judge_series(SeriesQuestion(x, y, name="worker RSS", page=4096.0))
    requests = np.array([float(r.completed) for r in readings])
    # what is held between windows hides below what a window's records add for a moment
    lowest = [float(part.min()) for part in np.array_split(y, 4)]
    half = len(y) // 2
    more = (float(y[half:].min()) - float(y[len(y) // 4 : half].min())) / max(float(requests[-1] - requests[half]), 1.0)
    print(
        f"worker {worker + 1}: RSS {y[0] / _MIB:.1f} MiB at first, {y[-1] / _MIB:.1f} MiB at the end, peak "
        f"{y.max() / _MIB:.1f} MiB; lowest of each quarter {', '.join(f'{low / _MIB:.2f}' for low in lowest)} MiB"
    )
    print(f"  {found.verdict.value}, {found.shape.value}: {found.why}")
    print(
        f"  lowest of the second half less that of the second quarter: {more * 1e6 / 1024:+.0f} KiB a million requests"
    )
    return {
        "first_bytes": y[0], "last_bytes": y[-1], "peak_bytes": y.max(), "lowest_of_quarters_bytes": lowest,
        "verdict": found.verdict.value, "shape": found.shape.value, "slope_bytes_per_hour": found.slope,
        "slope_low": found.slope_low, "slope_high": found.slope_high, "bytes_per_million_requests": more * 1e6,
        "why": found.why,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="memory of a load worker over time")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--transport", choices=("raw", "aiohttp"), default="raw")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    with known_server(pick_cores().server, *_SERVER) as server:
        done, readings = asyncio.run(drive(server, options))
    total = done.total
    print(
        f"{options.transport}, {done.workers} workers, {options.streams} streams, {readings[-1].t_s:.0f} s: "
        f"{total.counts.completed:,} requests ({total.rate_per_s or 0:,.0f}/s), "
        f"{total.output_tokens_per_s or 0:,.0f} tokens/s, {total.counts.failed} failed"
    )
    workers = [judged(readings, number) for number in range(done.workers)]
    document = {
        "options": vars(options), "requests": total.counts.completed, "failed": total.counts.failed,
        "rate_per_s": total.rate_per_s, "bottleneck": done.bottleneck, "workers": workers,
    }  # fmt: skip
    print(save("memory.json", document), file=sys.stderr)


if __name__ == "__main__":
    main()
