"""What the daemon costs a host: CPU as shares of one core and resident memory, by process and by thread.

    python -m bench.daemon.cost [--seconds 300] [--cards 8]

A real `soakd daemon`, its collectors at their own intervals (GPU telemetry once a second), default rules, replayed
cards. What the driver's calls cost comes on top on a real card. ``--cards 0`` is a host without one. One JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from pathlib import Path

from tests.support.daemons import configured, daemon, replayed

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SETTLE_S = 20.0
_PARTS = 6


def cpu_s(stat: Path) -> float:
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def threads(pid: int) -> dict[str, float]:
    """CPU seconds of the thread with the event loop, and of all others: journal, forwarder, readers of /proc."""
    found: dict[str, float] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name = "loop" if task.name == str(pid) else "others"
            found[name] = found.get(name, 0.0) + cpu_s(task / "stat")
        except OSError:  # it has just ended
            continue
    return found


def resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 2**20


def pss_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def helpers_s(pid: int) -> float:
    """CPU seconds of children that have ended: what lists cards and asks chrony."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / _TICKS


def nvml_workers(pid: int) -> list[int]:
    found = [int(c) for task in Path(f"/proc/{pid}/task").iterdir() for c in (task / "children").read_text().split()]
    return [c for c in found if b"\0serve\0" in Path(f"/proc/{c}/cmdline").read_bytes()]


async def measure(cards: int, seconds: float) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        environment = replayed("h200", copies=cards) if cards else None
        async with daemon(configured(Path(folder)), environment) as running:
            pid = running.process.pid
            await asyncio.sleep(_SETTLE_S)
            workers = nvml_workers(pid)
            rows_before = (await running.get("/status"))[1]["journal"]["rows"]
            own = cpu_s(Path(f"/proc/{pid}/stat"))
            theirs = sum(cpu_s(Path(f"/proc/{w}/stat")) for w in workers)
            by_thread, short = threads(pid), helpers_s(pid)
            memory = [resident_mib(pid)]
            for _ in range(_PARTS):
                await asyncio.sleep(seconds / _PARTS)
                memory.append(resident_mib(pid))
            own = cpu_s(Path(f"/proc/{pid}/stat")) - own
            theirs = sum(cpu_s(Path(f"/proc/{w}/stat")) for w in workers) - theirs
            after, short = threads(pid), helpers_s(pid) - short
            status = (await running.get("/status"))[1]
            share = {n: round(100 * (t - by_thread.get(n, 0.0)) / seconds, 2) for n, t in after.items()}
            return {
                "cards": cards,
                "seconds": seconds,
                "rows_per_second": round((status["journal"]["rows"] - rows_before) / seconds, 1),
                "series": status["series"],
                "owner_percent_of_a_core": round(100 * own / seconds, 2),
                "workers_percent_of_a_core": round(100 * theirs / seconds, 2),
                "short_lived_children_percent_of_a_core": round(100 * short / seconds, 2),
                "together_percent_of_a_core": round(100 * (own + theirs + short) / seconds, 2),
                "owner_by_thread": {n: s for n, s in sorted(share.items(), key=lambda i: -i[1]) if s >= 0.05},
                "owner_resident_mib": [round(m, 1) for m in memory],
                "workers_pss_mib": round(sum(pss_mib(w) for w in workers), 1),
                "healthy": status["health"]["problems"],
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--cards", type=int, default=8)
    arguments = parser.parse_args()
    print(json.dumps(asyncio.run(measure(arguments.cards, arguments.seconds)), indent=1))


if __name__ == "__main__":
    main()
