"""Runs GPU and PCIe telemetry on a real card and checks it against nvidia-smi. For a machine with an NVIDIA GPU.

    PYTHONPATH=. python bench/device/collect_h200.py --out DIR [--minutes 8] [--load "python load.py"]

1. The capability probe: every query with state, return code and latency.
2. Every collector once, idle: each metric with status and value, beside ``nvidia-smi -q -x`` (agreement table).
3. For ``--minutes``, every collector on its schedule (1 s for the fast ones) while the load runs: the same comparison
   in the middle, and the CPU and memory that this costs.

Writes to DIR: report.json, samples.csv (one row a second), nvidia_smi.xml, recording.json and sysfs.json (redacted).
Ends with 1 when a value that does not move differs from nvidia-smi.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import os
import re
import resource
import shlex
import shutil
import signal
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

from bench.device.smi_agreement import Row, compare
from soakd.clock import RealClock
from soakd.collectors import gpu_ecc, gpu_memory, gpu_power_clocks, gpu_thermal, pcie_aer, pcie_link, pcie_power, xid
from soakd.model import Event, Sample, State
from soakd.nvml.pool import GpuPool
from soakd.nvml.recorder import record
from soakd.ports import Collector, CollectorContext, Item, Roots

MODULES: tuple[ModuleType, ...] = (
    gpu_memory, gpu_ecc, gpu_thermal, gpu_power_clocks, pcie_link, pcie_aer, pcie_power, xid,
)  # fmt: skip
_TICKS = os.sysconf("SC_CLK_TCK")
_SECRET = re.compile(r"(?:GPU|MIG)-[0-9a-fA-F-]{36}")
_MAX_ROWS = 4000

COLUMNS: Mapping[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "used_bytes": ("gpu_memory_used_bytes", ()),
    "free_bytes": ("gpu_memory_free_bytes", ()),
    "process_bytes": ("gpu_processes_memory_bytes", (("type", "compute"),)),
    "core_celsius": ("gpu_temperature_celsius", (("sensor", "core"),)),
    "memory_celsius": ("gpu_temperature_celsius", (("sensor", "memory"),)),
    "margin_celsius": ("gpu_temperature_margin_celsius", ()),
    "power_instant_watts": ("gpu_power_watts", (("reading", "instant"),)),
    "power_average_watts": ("gpu_power_watts", (("reading", "average"),)),
    "sm_hertz": ("gpu_clock_hertz", (("clock", "sm"),)),
    "utilization_ratio": ("gpu_utilization_ratio", (("engine", "gpu"),)),
    "throttle_sw_power_cap_seconds": ("gpu_throttle_seconds_total", (("reason", "sw_power_cap"),)),
    "throttle_hw_thermal_seconds": ("gpu_throttle_seconds_total", (("reason", "hw_thermal"),)),
    "pcie_generation": ("gpu_pcie_generation", (("which", "current"),)),
    "pcie_replays": ("pcie_replays_total", ()),
    "pcie_tx_bytes": ("pcie_bytes_total", (("direction", "tx"),)),
    "pcie_rx_bytes": ("pcie_bytes_total", (("direction", "rx"),)),
    "link_state": ("pcie_link_state", ()),
}


class Latest:
    """The newest sample of every series, the events, and how many samples there were."""

    def __init__(self) -> None:
        self.samples: dict[tuple[str, object], Sample] = {}
        self.events: list[Event] = []
        self.count = 0

    def take(self, items: Sequence[Item]) -> None:
        for item in items:
            if isinstance(item, Sample):
                self.samples[item.metric.name, item.labels] = item
                self.count += 1
            elif len(self.events) < 1000:
                self.events.append(item)

    def value(self, name: str, labels: tuple[tuple[str, str], ...]) -> float | None:
        for (metric, _), sample in self.samples.items():
            if metric == name and set(labels) <= set(sample.labels):
                return sample.value
        return None


async def smi_xml() -> str:
    """``nvidia-smi -q -x``, bounded in time, redacted."""
    process = await asyncio.create_subprocess_exec("nvidia-smi", "-q", "-x", stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    text = _SECRET.sub("GPU-00000000-0000-0000-0000-000000000000", out.decode(errors="replace"))
    for tag in ("serial", "board_serial", "gpu_fabric_guid", "chassis_serial_number", "process_name"):
        text = re.sub(rf"<{tag}>[^<]*</{tag}>", f"<{tag}>redacted</{tag}>", text)
    return text


async def agreement(collectors: Sequence[Collector], latest: Latest, bdf: str) -> tuple[list[Row], str]:
    """Collect everything, ask nvidia-smi at once after, compare the card at this address."""
    for collector in collectors:
        latest.take(await collector.collect())
    text = await smi_xml()
    root = ET.fromstring(text)
    gpu = next((g for g in root.iter("gpu") if g.get("id", "").lower().endswith(bdf)), root.find("gpu"))
    if gpu is None:
        return [], text
    own = [s for s in latest.samples.values() if dict(s.labels).get("bdf") == bdf]
    return compare(own, gpu), text


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def pss_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def own_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def drive(module: ModuleType, collector: Collector, until: float, latest: Latest, took: dict[str, float]) -> None:
    """One collector on its schedule; ``took`` keeps its slowest reading in seconds."""
    due = time.monotonic()
    while due < until:
        started = time.monotonic()
        latest.take(await collector.collect())
        took[module.KIND] = max(took.get(module.KIND, 0.0), time.monotonic() - started)
        due += float(module.INTERVAL_S)
        await asyncio.sleep(max(0.0, due - time.monotonic()))


async def write_rows(file: TextIO, latest: Latest, until: float) -> None:
    """A row a second of the newest values; empty where nothing is known."""
    writer = csv.writer(file)
    writer.writerow(["t_s", *COLUMNS])
    started = time.monotonic()
    for n in range(_MAX_ROWS):
        if time.monotonic() >= until:
            return
        row = [latest.value(*where) for where in COLUMNS.values()]
        writer.writerow([round(time.monotonic() - started, 3), *("" if v is None else v for v in row)])
        await asyncio.sleep(max(0.0, started + n + 1 - time.monotonic()))


async def soak(
    collectors: Sequence[tuple[ModuleType, Collector]], pool: GpuPool, latest: Latest, minutes: float, out: Path
) -> dict[str, object]:
    """All collectors on their schedules, with the cost of it."""
    workers = pool.workers
    own, theirs = own_seconds(), sum(cpu_seconds(p) for p in workers)
    started, took, counted = time.monotonic(), dict[str, float](), latest.count
    until = started + minutes * 60
    with (out / "samples.csv").open("w", newline="") as file:
        await asyncio.gather(
            write_rows(file, latest, until), *(drive(m, c, until, latest, took) for m, c in collectors)
        )
    passed = time.monotonic() - started
    same = pool.workers == workers
    return {
        "seconds": round(passed, 1),
        "samples_per_second": round((latest.count - counted) / passed),
        "own_percent_of_a_core": round(100 * (own_seconds() - own) / passed, 2),
        "workers_percent_of_a_core": (
            round(100 * (sum(cpu_seconds(p) for p in workers) - theirs) / passed, 2) if same else None
        ),
        "workers": len(workers),
        "workers_replaced": not same,
        "workers_pss_mib": round(sum(pss_kib(p) for p in pool.workers) / 1024, 1),
        "slowest_reading_ms": {k: round(v * 1000, 1) for k, v in sorted(took.items())},
    }


def print_metrics(latest: Latest) -> None:
    print(f"\n{'metric':44} {'labels':60} {'status':13} value")
    for sample in sorted(latest.samples.values(), key=lambda s: (s.metric.name, s.labels)):
        tags = " ".join(f"{k}={v}" for k, v in sample.labels if k not in ("gpu", "bdf"))
        shown = f"{sample.value:.15g}" if sample.value is not None else f"({sample.why})"
        print(f"{sample.metric.name:44} {tags:60} {sample.state.value:13} {shown}")


def print_rows(title: str, rows: Sequence[Row]) -> None:
    print(f"\n{title}\n{'metric':34} {'labels':48} {'status':13} {'soakd':>16} {'nvidia-smi':>18}  verdict")
    for row in rows:
        shown = f"{row.value:.12g}" if row.value is not None else "-"
        moving = " (moving)" if row.moving else ""
        print(f"{row.metric:34} {row.labels:48} {row.status:13} {shown:>16} {row.smi:>18}  {row.verdict}{moving}")
    counts = {v: sum(r.verdict == v for r in rows) for v in sorted({r.verdict for r in rows})}
    print("   ".join(f"{verdict}: {n}" for verdict, n in counts.items()))


def series(latest: Latest) -> list[dict[str, object]]:
    return [
        {"metric": s.metric.name, "value": s.value, "status": s.state.value, "unit": s.metric.unit, "why": s.why,
         "labels": {k: v for k, v in s.labels if k != "gpu"}}
        for s in latest.samples.values()
    ]  # fmt: skip


async def run(arguments: argparse.Namespace) -> int:
    out: Path = arguments.out
    clock, roots = RealClock(), Roots()
    pool = GpuPool(clock)
    started = time.monotonic()
    await pool.start()
    start_s = time.monotonic() - started
    probes = await pool.probe()
    if not probes:
        print(pool.why_none)
        return 2
    report: dict[str, Any] = {"start_s": round(start_s, 3), "python": sys.version, "probe": {}}
    for probe in probes:
        print(f"{probe.gpu.name} at {probe.gpu.bdf}: {probe.state.value} {probe.why}")
        queries = {k: {"state": q.state.value, "code": q.code, "us": q.us} for k, q in probe.queries.items()}
        report["probe"][probe.gpu.bdf] = queries
        for key, query in queries.items():
            print(f"  {key:48} {query['state']:14} code {query['code']:>4} {query['us']:>8} us")
    context = CollectorContext(clock, roots, pool, None)
    collectors = [(m, m.build(m.Config(), context)) for m in MODULES]
    latest, bdf = Latest(), probes[0].gpu.bdf
    idle, text = await agreement([c for _, c in collectors], latest, bdf)
    await asyncio.to_thread((out / "nvidia_smi.xml").write_text, text)
    print_metrics(latest)
    print_rows("Agreement with nvidia-smi, before the load", idle)
    report |= {"metrics": series(latest), "agreement_idle": [asdict(r) for r in idle]}
    busy: list[Row] = []
    if arguments.minutes > 0:
        load = None
        if arguments.load:
            load = await asyncio.create_subprocess_exec(*shlex.split(arguments.load), start_new_session=True)
        try:
            report["cost"] = await soak(collectors, pool, latest, arguments.minutes, out)
            busy, _ = await agreement([c for _, c in collectors], latest, bdf)
        finally:
            if load is not None and load.returncode is None:
                os.killpg(load.pid, signal.SIGTERM)
                await load.wait()
        print_rows("Agreement with nvidia-smi, under load", busy)
        print("\n" + json.dumps(report["cost"], indent=1))
    report["agreement_load"] = [asdict(r) for r in busy]
    report["events"] = [{"kind": e.kind, "at_ns": e.at_ns, "what": e.what} for e in latest.events]
    report["last"] = series(latest)
    await save_recording(pool, clock, roots, out)
    await finish(collectors, pool)
    await asyncio.to_thread((out / "report.json").write_text, json.dumps(report, indent=1))
    wrong = [r for r in (*idle, *busy) if r.verdict == "differ" and not r.moving]
    unknown = sum(s.state is not State.OK for s in latest.samples.values())
    print(f"\n{len(latest.samples)} series, {unknown} of them unknown; {len(wrong)} differ from nvidia-smi")
    return 1 if wrong else 0


async def save_recording(pool: GpuPool, clock: RealClock, roots: Roots, out: Path) -> None:
    """The first card's recording, flat in ``out``."""
    folder = out / "recording"
    await record(pool, clock, roots.sys, folder, frames=5, interval_s=1.0)
    for name in ("recording.json", "sysfs.json"):
        (folder / "gpu-0" / name).replace(out / name)
    await asyncio.to_thread(shutil.rmtree, folder)


async def finish(collectors: Sequence[tuple[ModuleType, Collector]], pool: GpuPool) -> None:
    for _, collector in collectors:
        await collector.close()
    await pool.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "out")))
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--load", default="", help="command of the load, ended after the run")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    return asyncio.run(run(arguments))


if __name__ == "__main__":
    sys.exit(main())
