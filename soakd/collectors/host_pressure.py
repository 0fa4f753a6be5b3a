"""The host under pressure: stalls (PSI), kills for lack of memory, reboots, and driver threads stuck in the kernel.

Sources: Documentation/accounting/psi.rst, cgroup-v2.rst (memory.events), proc(5).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from soakd.blocking import BlockingReader
from soakd.fields import ConfigModel
from soakd.model import Event, Kind, Metric, Sample, Severity, State, labels
from soakd.ports import CollectorContext, Item
from soakd.procfs import ProcessStat, boot_id, memory_cgroup, parse_counters, process_table, read_text

KIND = "host_pressure"

PRESSURE = Metric(
    "host_pressure_ratio",
    "ratio",
    Kind.GAUGE,
    "Share of the last 10 s in which some (or all) work waited for the resource.",
    "/proc/pressure/*, avg10 / 100",
    ("resource", "share"),
)
STALLED = Metric(
    "host_pressure_stalled_seconds_total",
    "seconds",
    Kind.COUNTER,
    "Time in which some (or all) work waited for the resource.",
    "/proc/pressure/*, total",
    ("resource", "share"),
)
OOM_KILLS = Metric(
    "host_oom_kills_total",
    "processes",
    Kind.COUNTER,
    "Processes that the kernel killed for lack of memory since boot, on the whole host.",
    "/proc/vmstat oom_kill",
)
CGROUP_EVENTS = Metric(
    "server_cgroup_memory_events_total",
    "events",
    Kind.COUNTER,
    "Times that the server's control group was throttled (high), hit its limit (max), ran out (oom) or lost a "
    "process for it (oom_kill).",
    "cgroup v2 memory.events; v1 memory.oom_control oom_kill and memory.failcnt (as max)",
    ("event",),
)
CGROUP_MEMORY = Metric(
    "server_cgroup_memory_bytes",
    "bytes",
    Kind.GAUGE,
    "Memory charged to the server's control group, page cache included.",
    "cgroup v2 memory.current, v1 memory.usage_in_bytes",
)
CGROUP_LIMIT = Metric(
    "server_cgroup_memory_limit_bytes",
    "bytes",
    Kind.GAUGE,
    "Memory that the server's control group may have; absent where it has no limit.",
    "cgroup v2 memory.max, v1 memory.limit_in_bytes",
)
BOOT_TIME = Metric(
    "host_boot_time_seconds", "seconds", Kind.GAUGE, "When the host booted, in seconds since 1970.", "/proc/stat btime"
)
STUCK = Metric(
    "host_driver_threads_blocked",
    "threads",
    Kind.GAUGE,
    "Threads of the GPU driver (nvidia*, nv_*, UVM*) in uninterruptible sleep; for several readings: a hung driver.",
    "/proc/PID/stat state D",
)
METRICS = (PRESSURE, STALLED, OOM_KILLS, CGROUP_EVENTS, CGROUP_MEMORY, CGROUP_LIMIT, BOOT_TIME, STUCK)

_RESOURCES = ("cpu", "memory", "io")
_PSI = re.compile(r"(some|full) avg10=([0-9.]+) avg60=[0-9.]+ avg300=[0-9.]+ total=(\d+)")
_DRIVER_THREAD = re.compile(r"nvidia|nv_|nvswitch|UVM|irq/\d+-nvidia")
_NO_LIMIT_V1 = 2**62
_CGROUP_EVENTS = ("low", "high", "max", "oom", "oom_kill", "oom_group_kill")


class Config(ConfigModel):
    """``last_boot_id``: the boot id of the journal's last run; a different one now is a reboot.

    ``stuck_readings``: consecutive readings with a driver thread in state D until that is an event.
    """

    last_boot_id: str = ""
    stuck_readings: int = Field(default=5, ge=1, le=1000)


@dataclass(frozen=True, slots=True)
class Stuck:
    """How long driver threads have been stuck, in readings."""

    readings: int = 0

    def step(self, names: Sequence[str], wanted: int) -> tuple[Stuck, bool]:
        """The next state, and whether this very reading makes it an event."""
        now = Stuck(self.readings + 1 if names else 0)
        return now, now.readings == wanted


def parse_pressure(text: str) -> list[tuple[str, float, float]]:
    """``(some|full, share of the last 10 s, seconds stalled in all)`` of one PSI file."""
    return [(m[1], float(m[2]) / 100, int(m[3]) / 1e6) for m in _PSI.finditer(text)]


def stuck_driver_threads(table: Sequence[ProcessStat]) -> tuple[str, ...]:
    return tuple(sorted(s.command for s in table if s.state == "D" and _DRIVER_THREAD.match(s.command)))


class HostPressureCollector:
    """Keeps the boot id it saw last; everything else is read afresh."""

    def __init__(self, config: Config, context: CollectorContext) -> None:
        self._clock = context.clock
        self._proc = context.roots.proc
        self._cgroups = context.roots.sys / "fs/cgroup"
        self._pid = context.target.pid if context.target and context.target.local else None
        self._group: tuple[Path, int] | None = None
        self._boot_id = config.last_boot_id
        self._stuck_readings = config.stuck_readings
        self._stuck = Stuck()
        self._reader = BlockingReader("host_pressure")

    async def collect(self) -> Sequence[Item]:
        return await self._reader.call(self._read)

    async def close(self) -> None:
        self._reader.close()

    def _read(self) -> list[Item]:
        now = self._clock.wall_ns()
        return [*self._pressure(now), *self._kills(now), *self._cgroup(now), *self._boot(now), *self._threads(now)]

    def _pressure(self, now: int) -> list[Sample]:
        samples: list[Sample] = []
        for resource in _RESOURCES:
            try:
                rows = parse_pressure(read_text(self._proc / "pressure" / resource))
            except OSError as error:
                tags = labels(resource=resource)
                why = f"{error.strerror}; PSI needs CONFIG_PSI, and psi=1 on the kernel command line on some systems"
                samples += [Sample.unknown(m, State.UNSUPPORTED, now, tags, why) for m in (PRESSURE, STALLED)]
                continue
            for share, ratio, seconds in rows:
                tags = labels(resource=resource, share=share)
                samples += [Sample.ok(PRESSURE, ratio, now, tags), Sample.ok(STALLED, seconds, now, tags)]
        return samples

    def _kills(self, now: int) -> list[Sample]:
        try:
            kills = parse_counters(read_text(self._proc / "vmstat")).get("oom_kill")
        except OSError:
            kills = None
        if kills is None:
            return [Sample.unknown(OOM_KILLS, State.UNSUPPORTED, now, why="no oom_kill in /proc/vmstat (Linux < 4.13)")]
        return [Sample.ok(OOM_KILLS, kills, now)]

    def _cgroup(self, now: int) -> list[Sample]:
        if self._pid is not None:
            # kept from before when the server is gone: its group may outlive it and tell why it died
            self._group = memory_cgroup(self._proc, self._cgroups, self._pid) or self._group
        if self._group is None:
            why = "no local server process is known"
            return [Sample.unknown(m, State.ABSENT, now, why=why) for m in (CGROUP_EVENTS, CGROUP_MEMORY, CGROUP_LIMIT)]
        folder, version = self._group
        return self._cgroup_v2(folder, now) if version == 2 else self._cgroup_v1(folder, now)

    def _cgroup_v2(self, folder: Path, now: int) -> list[Sample]:
        counters = parse_counters(_text_or_empty(folder / "memory.events"))
        samples = [
            Sample.ok(CGROUP_EVENTS, counters[name], now, labels(event=name))
            for name in _CGROUP_EVENTS
            if name in counters
        ]
        if not samples:
            why = f"{folder} has no memory.events (the root group, or the memory controller is off)"
            samples.append(Sample.unknown(CGROUP_EVENTS, State.UNSUPPORTED, now, why=why))
        samples.append(_size(CGROUP_MEMORY, _text_or_empty(folder / "memory.current"), now))
        samples.append(_size(CGROUP_LIMIT, _text_or_empty(folder / "memory.max"), now))
        return samples

    def _cgroup_v1(self, folder: Path, now: int) -> list[Sample]:
        events = parse_counters(_text_or_empty(folder / "memory.oom_control"))
        failures = _text_or_empty(folder / "memory.failcnt").strip()
        samples = []
        if "oom_kill" in events:
            samples.append(Sample.ok(CGROUP_EVENTS, events["oom_kill"], now, labels(event="oom_kill")))
        if failures.isdigit():
            samples.append(Sample.ok(CGROUP_EVENTS, int(failures), now, labels(event="max")))
        if not samples:
            samples.append(Sample.unknown(CGROUP_EVENTS, State.UNSUPPORTED, now, why=f"{folder} counts no events"))
        samples.append(_size(CGROUP_MEMORY, _text_or_empty(folder / "memory.usage_in_bytes"), now))
        samples.append(_size(CGROUP_LIMIT, _text_or_empty(folder / "memory.limit_in_bytes"), now))
        return samples

    def _boot(self, now: int) -> list[Item]:
        items: list[Item] = []
        found = boot_id(self._proc)
        if found and self._boot_id and found != self._boot_id:
            what = "the host was restarted since the reading before"
            attrs = labels(boot_id=found, boot_id_before=self._boot_id)
            items.append(Event("host.reboot", now, what, Severity.CRITICAL, (), attrs))
        elif found and not self._boot_id:
            items.append(Event("host.boot", now, f"boot id {found}", Severity.INFO, (), labels(boot_id=found)))
        self._boot_id = found or self._boot_id
        booted = parse_counters(_text_or_empty(self._proc / "stat")).get("btime")
        if booted is None:
            items.append(Sample.unknown(BOOT_TIME, State.ABSENT, now, why="no btime in /proc/stat"))
        else:
            items.append(Sample.ok(BOOT_TIME, booted, now))
        return items

    def _threads(self, now: int) -> list[Item]:
        names = stuck_driver_threads(tuple(process_table(self._proc).values()))
        self._stuck, report = self._stuck.step(names, self._stuck_readings)
        items: list[Item] = [Sample.ok(STUCK, len(names), now)]
        if report:
            what = f"driver threads stuck in the kernel for {self._stuck_readings} readings: {', '.join(names[:8])}"
            items.append(Event("host.driver_stuck", now, what, Severity.CRITICAL))
        return items


def _text_or_empty(path: Path) -> str:
    try:
        return read_text(path)
    except OSError:
        return ""


def _size(metric: Metric, text: str, now: int) -> Sample:
    text = text.strip()
    if text == "max" or (text.isdigit() and int(text) >= _NO_LIMIT_V1):
        return Sample.unknown(metric, State.ABSENT, now, why="the control group has no limit")
    if not text.isdigit():
        return Sample.unknown(metric, State.UNSUPPORTED, now, why="the control group does not say")
    return Sample.ok(metric, int(text), now)


def build(config: Config, context: CollectorContext) -> HostPressureCollector:
    return HostPressureCollector(config, context)
