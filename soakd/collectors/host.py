"""The host: processors, memory, swap, load, shared memory, huge pages, disks and network errors.

Sources: proc(5), Documentation/filesystems/proc.rst, statvfs(3).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from soakd.blocking import BlockingReader
from soakd.fields import ConfigModel
from soakd.model import Kind, Labels, Metric, Sample, State, labels
from soakd.ports import CollectorContext
from soakd.procfs import parse_counters, parse_sizes, read_text

KIND = "host"


def _gauge(name: str, unit: str, help_: str, source: str, *label_names: str) -> Metric:
    return Metric(name, unit, Kind.GAUGE, help_, source, label_names)


def _counter(name: str, unit: str, help_: str, source: str, *label_names: str) -> Metric:
    return Metric(name, unit, Kind.COUNTER, help_, source, label_names)


CPU_SECONDS = _counter("host_cpu_seconds_total", "seconds", "Time of all processors by mode.", "/proc/stat cpu", "mode")
CPU_BUSY = _gauge(
    "host_cpu_busy_ratio",
    "ratio",
    "Share of processor time not idle and not waiting for I/O since the reading before.",
    "/proc/stat cpu",
)
CPUS = _gauge("host_cpus", "processors", "Processors online.", "/proc/stat cpuN")
LOAD = _gauge(
    "host_load_average", "processes", "Runnable and uninterruptible processes, averaged.", "/proc/loadavg", "window"
)
BLOCKED = _gauge("host_processes_blocked", "processes", "Processes waiting for I/O.", "/proc/stat procs_blocked")
SWITCHES = _counter("host_context_switches_total", "switches", "Context switches since boot.", "/proc/stat ctxt")
MEMORY = _gauge("host_memory_total_bytes", "bytes", "Memory of the host.", "/proc/meminfo MemTotal")
AVAILABLE = _gauge(
    "host_memory_available_bytes", "bytes", "Memory that can be had without swapping.", "/proc/meminfo MemAvailable"
)
FREE = _gauge("host_memory_free_bytes", "bytes", "Memory used for nothing.", "/proc/meminfo MemFree")
CACHED = _gauge("host_memory_cached_bytes", "bytes", "Page cache, shared memory included.", "/proc/meminfo Cached")
SLAB = _gauge(
    "host_memory_unreclaimable_slab_bytes",
    "bytes",
    "Kernel memory that can't be reclaimed: where a driver leaks.",
    "/proc/meminfo SUnreclaim",
)
SWAP = _gauge("host_swap_total_bytes", "bytes", "Swap space.", "/proc/meminfo SwapTotal")
SWAP_USED = _gauge("host_swap_used_bytes", "bytes", "SwapTotal - SwapFree.", "/proc/meminfo")
SWAPPED = _counter(
    "host_swap_transfer_bytes_total",
    "bytes",
    "Swapped in and out since boot.",
    "/proc/vmstat pswpin, pswpout x page size",
    "direction",
)
HUGE = _gauge("host_huge_pages", "pages", "Pages of the default huge page pool.", "/proc/meminfo HugePages_Total")
HUGE_FREE = _gauge("host_huge_pages_free", "pages", "Unused pages of the pool.", "/proc/meminfo HugePages_Free")
HUGE_SIZE = _gauge("host_huge_page_size_bytes", "bytes", "Default huge page size.", "/proc/meminfo Hugepagesize")
SHM = _gauge("host_shm_total_bytes", "bytes", "Size of /dev/shm.", "statvfs /dev/shm")
SHM_USED = _gauge("host_shm_used_bytes", "bytes", "Used in /dev/shm.", "statvfs /dev/shm")
DISK = _gauge("host_disk_total_bytes", "bytes", "Size of the file system.", "statvfs", "path")
DISK_FREE = _gauge("host_disk_free_bytes", "bytes", "Free for unprivileged users.", "statvfs f_bavail", "path")
INODES_FREE = _gauge("host_disk_files_free", "files", "Files that can still be made.", "statvfs f_favail", "path")
FILES = _gauge("host_open_files", "files", "File handles allocated on the host.", "/proc/sys/fs/file-nr, first")
FILES_LIMIT = _gauge("host_open_files_limit", "files", "File handles the host allows.", "/proc/sys/fs/file-nr, third")
NET_BYTES = _counter(
    "host_network_bytes_total", "bytes", "Traffic of an interface.", "/proc/net/dev", "device", "direction"
)
NET_ERRORS = _counter(
    "host_network_errors_total", "errors", "Errors of an interface.", "/proc/net/dev errs", "device", "direction"
)
NET_DROPS = _counter(
    "host_network_dropped_total",
    "packets",
    "Packets dropped by an interface.",
    "/proc/net/dev drop",
    "device",
    "direction",
)
RETRANSMITS = _counter(
    "host_tcp_retransmits_total", "segments", "TCP segments sent again.", "/proc/net/snmp Tcp RetransSegs"
)
OVERFLOWS = _counter(
    "host_tcp_listen_overflows_total",
    "connections",
    "Connections refused because a listen queue was full.",
    "/proc/net/netstat TcpExt ListenOverflows",
)

METRICS = (
    CPU_SECONDS, CPU_BUSY, CPUS, LOAD, BLOCKED, SWITCHES, MEMORY, AVAILABLE, FREE, CACHED, SLAB, SWAP, SWAP_USED,
    SWAPPED, HUGE, HUGE_FREE, HUGE_SIZE, SHM, SHM_USED, DISK, DISK_FREE, INODES_FREE, FILES, FILES_LIMIT, NET_BYTES,
    NET_ERRORS, NET_DROPS, RETRANSMITS, OVERFLOWS,
)  # fmt: skip

_CPU_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_MEMINFO = (
    (MEMORY, "MemTotal"), (AVAILABLE, "MemAvailable"), (FREE, "MemFree"), (CACHED, "Cached"), (SLAB, "SUnreclaim"),
    (SWAP, "SwapTotal"), (HUGE, "HugePages_Total"), (HUGE_FREE, "HugePages_Free"), (HUGE_SIZE, "Hugepagesize"),
)  # fmt: skip
_VIRTUAL_DEVICES = ("lo", "veth", "docker", "br-", "cali", "cni", "flannel", "tap", "virbr")
_MAX_DEVICES = 16


class Config(ConfigModel):
    """``disks``: paths whose file systems are watched (the data directory belongs here)."""

    disks: tuple[Path, ...] = Field(default=(Path("/"),), max_length=16)


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Ticks of all processors by mode, in the order of /proc/stat."""

    ticks: tuple[int, ...]

    def busy_since(self, earlier: CpuTimes) -> float | None:
        """Share of the time between that was neither idle nor iowait; None when no time passed."""
        spent = [max(0, now - then) for now, then in zip(self.ticks, earlier.ticks, strict=False)]
        total = sum(spent)
        return (total - spent[3] - spent[4]) / total if total and len(spent) > 4 else None


class HostCollector:
    """Reads the trees under ``roots``; a file that is not there makes its metrics unknown and no others."""

    def __init__(self, config: Config, context: CollectorContext) -> None:
        self._config = config
        self._clock = context.clock
        self._proc = context.roots.proc
        self._shm = context.roots.dev / "shm"
        self._before: CpuTimes | None = None
        # statvfs of a dead network mount hangs for good; /proc does not, but one thread is simpler than two paths
        self._reader = BlockingReader("host")

    async def collect(self) -> Sequence[Sample]:
        return await self._reader.call(self._read)

    async def close(self) -> None:
        self._reader.close()

    def _read(self) -> list[Sample]:
        now = self._clock.wall_ns()
        samples: list[Sample] = []
        parts: tuple[tuple[Callable[[int], list[Sample]], tuple[Metric, ...]], ...] = (
            (self._stat, (CPU_SECONDS, CPU_BUSY, CPUS, BLOCKED, SWITCHES)),
            (self._meminfo, (*(m for m, _ in _MEMINFO), SWAP_USED)),
            (self._load, (LOAD,)),
            (self._vmstat, (SWAPPED,)),
            (self._files, (FILES, FILES_LIMIT)),
            (self._devices, (NET_BYTES, NET_ERRORS, NET_DROPS)),
            (self._tcp, (RETRANSMITS, OVERFLOWS)),
            (self._shared_memory, (SHM, SHM_USED)),
        )
        for read, metrics in parts:
            try:
                samples += read(now)
            except (OSError, ValueError, IndexError) as error:
                samples += [_unknown(metric, error, now) for metric in metrics]
        for path in self._config.disks:
            samples += self._disk(path, now)
        return samples

    def _stat(self, now: int) -> list[Sample]:
        lines = read_text(self._proc / "stat").splitlines()
        fields = {line.split(" ", 1)[0]: line.split()[1:] for line in lines if line}
        times = CpuTimes(tuple(int(t) for t in fields["cpu"][: len(_CPU_MODES)])) if "cpu" in fields else None
        if times is None:
            raise ValueError("no cpu line")
        ticks_per_second = os.sysconf("SC_CLK_TCK")
        samples = [
            Sample.ok(CPU_SECONDS, ticks / ticks_per_second, now, labels(mode=mode))
            for mode, ticks in zip(_CPU_MODES, times.ticks, strict=False)
        ]
        busy = times.busy_since(self._before) if self._before else None
        self._before = times
        samples.append(
            Sample.ok(CPU_BUSY, busy, now)
            if busy is not None
            else Sample.unknown(CPU_BUSY, State.ABSENT, now, why="a share needs a second reading")
        )
        samples.append(Sample.ok(CPUS, sum(1 for name in fields if name[:3] == "cpu" and name[3:].isdigit()), now))
        samples += [
            Sample.ok(metric, int(fields[key][0]), now)
            if key in fields
            else Sample.unknown(metric, State.UNSUPPORTED, now, why=f"no {key} in /proc/stat")
            for metric, key in ((BLOCKED, "procs_blocked"), (SWITCHES, "ctxt"))
        ]
        return samples

    def _meminfo(self, now: int) -> list[Sample]:
        sizes = parse_sizes(read_text(self._proc / "meminfo"))
        samples = [
            Sample.ok(metric, sizes[key], now)
            if key in sizes
            else Sample.unknown(metric, State.UNSUPPORTED, now, why=f"this kernel has no {key} in /proc/meminfo")
            for metric, key in _MEMINFO
        ]
        if "SwapTotal" in sizes and "SwapFree" in sizes:
            samples.append(Sample.ok(SWAP_USED, sizes["SwapTotal"] - sizes["SwapFree"], now))
        else:
            samples.append(Sample.unknown(SWAP_USED, State.UNSUPPORTED, now, why="this kernel has no swap"))
        return samples

    def _load(self, now: int) -> list[Sample]:
        values = [float(part) for part in read_text(self._proc / "loadavg").split()[:3]]
        return [Sample.ok(LOAD, v, now, labels(window=w)) for v, w in zip(values, ("1m", "5m", "15m"), strict=True)]

    def _vmstat(self, now: int) -> list[Sample]:
        counters = parse_counters(read_text(self._proc / "vmstat"))
        page = os.sysconf("SC_PAGE_SIZE")
        return [
            Sample.ok(SWAPPED, counters[key] * page, now, labels(direction=direction))
            if key in counters
            else Sample.unknown(SWAPPED, State.UNSUPPORTED, now, labels(direction=direction), f"no {key}")
            for key, direction in (("pswpin", "in"), ("pswpout", "out"))
        ]

    def _files(self, now: int) -> list[Sample]:
        used, _, limit = (int(part) for part in read_text(self._proc / "sys/fs/file-nr").split())
        return [Sample.ok(FILES, used, now), Sample.ok(FILES_LIMIT, limit, now)]

    def _devices(self, now: int) -> list[Sample]:
        samples: list[Sample] = []
        for device, numbers in parse_devices(read_text(self._proc / "net/dev"))[:_MAX_DEVICES]:
            for direction, first in (("receive", 0), ("transmit", 8)):
                tags = labels(device=device, direction=direction)
                samples += [
                    Sample.ok(metric, numbers[first + offset], now, tags)
                    for metric, offset in ((NET_BYTES, 0), (NET_ERRORS, 2), (NET_DROPS, 3))
                ]
        return samples

    def _tcp(self, now: int) -> list[Sample]:
        sources = (
            (RETRANSMITS, "net/snmp", "Tcp", "RetransSegs"),
            (OVERFLOWS, "net/netstat", "TcpExt", "ListenOverflows"),
        )
        samples = []
        for metric, file, group, name in sources:
            value = parse_protocol(read_text(self._proc / file), group).get(name)
            samples.append(
                Sample.ok(metric, value, now)
                if value is not None
                else Sample.unknown(metric, State.UNSUPPORTED, now, why=f"no {name} in /proc/{file}")
            )
        return samples

    def _shared_memory(self, now: int) -> list[Sample]:
        found = os.statvfs(self._shm)
        used = (found.f_blocks - found.f_bfree) * found.f_frsize
        return [Sample.ok(SHM, found.f_blocks * found.f_frsize, now), Sample.ok(SHM_USED, used, now)]

    def _disk(self, path: Path, now: int) -> list[Sample]:
        tags = labels(path=str(path))
        try:
            found = os.statvfs(path)
        except OSError as error:
            return [_unknown(metric, error, now, tags) for metric in (DISK, DISK_FREE, INODES_FREE)]
        samples = [
            Sample.ok(DISK, found.f_blocks * found.f_frsize, now, tags),
            Sample.ok(DISK_FREE, found.f_bavail * found.f_frsize, now, tags),
        ]
        if found.f_files:
            samples.append(Sample.ok(INODES_FREE, found.f_favail, now, tags))
        else:  # btrfs and others have no fixed number
            samples.append(Sample.unknown(INODES_FREE, State.UNSUPPORTED, now, tags, "no limit on this file system"))
        return samples


def parse_devices(text: str) -> list[tuple[str, tuple[int, ...]]]:
    """Interfaces of ``/proc/net/dev`` with their 16 counters; loopback and virtual ones are left out."""
    found = []
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        numbers = rest.split()
        if len(numbers) >= 16 and not name.strip().startswith(_VIRTUAL_DEVICES):
            found.append((name.strip(), tuple(int(n) for n in numbers[:16])))
    return found


def parse_protocol(text: str, group: str) -> dict[str, int]:
    """One group of ``/proc/net/snmp`` or ``netstat``: a line of names, then a line of values."""
    rows = [line.split()[1:] for line in text.splitlines() if line.startswith(f"{group}: ")]
    return {name: int(value) for name, value in zip(rows[0], rows[1], strict=True)} if len(rows) == 2 else {}


def _unknown(metric: Metric, error: Exception, now: int, tags: Labels = ()) -> Sample:
    state = State.NO_PERMISSION if isinstance(error, PermissionError) else State.ABSENT
    return Sample.unknown(metric, state, now, tags, str(error))


def build(config: Config, context: CollectorContext) -> HostCollector:
    return HostCollector(config, context)
