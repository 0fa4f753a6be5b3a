"""soakd itself: the monitor must not be what leaks. Memory, CPU time and open files of the daemon and its workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from soakd.fields import ConfigModel
from soakd.model import Kind, Metric, Sample, labels
from soakd.ports import Clock, CollectorContext, Item

KIND = "soakd"
INTERVAL_S = 15.0

RESIDENT = Metric(
    "soakd_process_resident_bytes",
    "bytes",
    Kind.GAUGE,
    "Resident memory of soakd's own processes: the owner, and all its child processes together.",
    "/proc/PID/statm of soakd and its children",
    ("role",),
)
CPU = Metric(
    "soakd_process_cpu_seconds_total",
    "seconds",
    Kind.COUNTER,
    "CPU time of soakd's own processes since they started: the owner, and all its living children together.",
    "/proc/PID/stat of soakd and its children",
    ("role",),
)
OPEN_FILES = Metric(
    "soakd_process_open_files",
    "files",
    Kind.GAUGE,
    "Open files of soakd's owner process.",
    "/proc/self/fd",
)
METRICS = (RESIDENT, CPU, OPEN_FILES)


class Config(ConfigModel):
    """No keys of its own."""


@dataclass(frozen=True, slots=True)
class SelfCollector:
    clock: Clock
    process: psutil.Process

    async def collect(self) -> Sequence[Item]:
        now = self.clock.wall_ns()
        with self.process.oneshot():
            times = self.process.cpu_times()
            samples = [
                Sample.ok(RESIDENT, self.process.memory_info().rss, now, labels(role="owner")),
                Sample.ok(CPU, times.user + times.system, now, labels(role="owner")),
                Sample.ok(OPEN_FILES, self.process.num_fds(), now),
            ]
        resident, cpu = self._children()
        samples.append(Sample.ok(RESIDENT, resident, now, labels(role="children")))
        samples.append(Sample.ok(CPU, cpu, now, labels(role="children")))
        return samples

    async def close(self) -> None:
        return None

    def _children(self) -> tuple[int, float]:
        resident, cpu = 0, 0.0
        for child in self.process.children():
            try:
                with child.oneshot():
                    times = child.cpu_times()
                    resident += child.memory_info().rss
                    cpu += times.user + times.system
            except psutil.Error:  # it ended between the listing and the reading
                continue
        return resident, cpu


def build(config: Config, context: CollectorContext) -> SelfCollector:
    del config
    return SelfCollector(context.clock, psutil.Process())
