"""Cost of GPU and PCIe telemetry: eight replayed H200 at one reading a second, every GPU and PCIe collector.

Says the share of one core used by this process (the daemon's side) and by the workers, and the memory (PSS) of all
workers together. The workers load pynvml, as real ones do, and play a recording; what the driver's calls cost comes
on top on a real card.

    python bench/telemetry/eight_cards.py [--seconds 60] [--cards 8]

One JSON object on stdout. The daemon's share is measured with the collectors alone, without journal and rules.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from soakd.clock import RealClock
from soakd.collectors import gpu_ecc, gpu_memory, gpu_power_clocks, gpu_thermal, pcie_aer, pcie_link, pcie_power, xid
from soakd.nvml.card import Limits
from soakd.nvml.pool import GpuPool
from soakd.nvml.replay import ReplayBackend
from soakd.nvml.sysfs_tree import write_sysfs
from soakd.ports import Collector, CollectorContext, Roots

FIXTURES = Path(__file__).parents[2] / "tests/fixtures"
MODULES: tuple[ModuleType, ...] = (
    gpu_memory, gpu_ecc, gpu_thermal, gpu_power_clocks, pcie_link, pcie_aer, pcie_power, xid,
)  # fmt: skip
_WORKER = "import sys, pynvml; from soakd.nvml.replay import main; sys.exit(main(sys.argv[1:]))"
_TICKS = os.sysconf("SC_CLK_TCK")


def pss_kib(pid: int) -> int:
    """Proportional set size of a process in KiB."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def own_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def drive(collector: Collector, interval_s: float, until: float, counts: list[int]) -> None:
    """Collect on a fixed schedule, as the runner does."""
    due = time.monotonic()
    while due < until:
        counts.append(len(await collector.collect()))
        due += interval_s
        await asyncio.sleep(max(0.0, due - time.monotonic()))


def machine(root: Path, cards: int) -> Path:
    """A sysfs tree with as many GPUs as there are cards, each behind a root port of its own with AER."""
    own = json.loads((FIXTURES / "a100/sysfs.json").read_text())
    port, gpu = own["0000:40:01.1"], own["0000:41:00.0"]
    tree: dict[str, dict[str, str]] = {}
    for card in ReplayBackend([FIXTURES / "h200"], cards).list_cards():
        above = f"{card.bdf[:8]}1f.0"
        tree |= {above: port, card.bdf: {**gpu, "above": above}}
    return write_sysfs(tree, root)


async def measure(cards: int, seconds: float) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        sysfs = await asyncio.to_thread(machine, Path(folder), cards)
        command = (sys.executable, "-c", _WORKER, "--copies", str(cards), str(FIXTURES / "h200"))
        clock = RealClock()
        pool = GpuPool(clock, command, Limits())
        await pool.start()
        context = CollectorContext(clock, Roots(sys=sysfs), pool, None)
        collectors = [(m, m.build(m.Config(), context)) for m in MODULES]
        for _, collector in collectors:
            await collector.collect()
        workers: Sequence[int] = pool.workers
        own_before, workers_before = own_cpu_seconds(), sum(cpu_seconds(p) for p in workers)
        started = time.monotonic()
        counts: list[int] = []
        await asyncio.gather(*(drive(c, m.INTERVAL_S, started + seconds, counts) for m, c in collectors))
        took = time.monotonic() - started
        own = own_cpu_seconds() - own_before
        theirs = sum(cpu_seconds(p) for p in workers) - workers_before
        pss = [pss_kib(p) for p in workers]
        for _, collector in collectors:
            await collector.close()
        await pool.close()
    return {
        "cards": cards,
        "seconds": round(took, 1),
        "samples_per_second": round(sum(counts) / took),
        "daemon_side_percent_of_a_core": round(100 * own / took, 2),
        "workers_percent_of_a_core": round(100 * theirs / took, 2),
        "together_percent_of_a_core": round(100 * (own + theirs) / took, 2),
        "workers_pss_mib": round(sum(pss) / 1024, 1),
        "largest_worker_pss_mib": round(max(pss) / 1024, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--cards", type=int, default=8)
    arguments = parser.parse_args()
    print(json.dumps(asyncio.run(measure(arguments.cards, arguments.seconds)), indent=1))


if __name__ == "__main__":
    main()
