"""What soakd itself costs: CPU time and memory of its owner process and of the telemetry workers."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from soakd.ports import Clock

_TELEMETRY = frozenset({"soakd.nvml.worker", "soakd.nvml.replay", "soakd.rehearsal.gpu_worker"})


@dataclass(frozen=True, slots=True)
class Usage:
    """``real_ns`` monotonic real time; CPU seconds of the owner alone and of its NVML workers."""

    real_ns: int
    owner_cpu_s: float
    telemetry_children_cpu_s: float
    owner_rss_bytes: int


def measure_usage(clock: Clock) -> Usage:
    process = psutil.Process()
    times = process.cpu_times()
    children = 0.0
    for child in process.children():
        try:
            if not _TELEMETRY.intersection(child.cmdline()):
                continue  # load workers, and the demo server that a newcomer's first run starts
            spent = child.cpu_times()
            children += spent.user + spent.system
        except psutil.Error:  # it ended between the listing and the reading
            continue
    return Usage(
        int(clock.monotonic_ns() / clock.speed), times.user + times.system, children, process.memory_info().rss
    )


def cpu_share(first: Usage, last: Usage) -> float | None:
    """Share of one core that the owner and the telemetry workers took between two measurements."""
    seconds = (last.real_ns - first.real_ns) / 1e9
    if seconds <= 0:
        return None
    spent = last.owner_cpu_s - first.owner_cpu_s
    spent += max(0.0, last.telemetry_children_cpu_s - first.telemetry_children_cpu_s)
    return spent / seconds
