"""GPU memory as the server's own allocator sees it, read from the files that the probe in the server publishes.

Source: ``torch.cuda.memory_stats()`` through ``soakd.probe``. Several processes on one GPU are added up; to keep two
servers on one GPU apart, give each its own folder (``SOAKD_PROBE=/path``) and name that in ``folders``.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from soakd.blocking import BlockingReader
from soakd.fields import ConfigModel, Seconds
from soakd.model import Kind, Labels, Metric, Sample, State, labels
from soakd.ports import CollectorContext, GpuReply, Item
from soakd.probe.record import FILE_NAME, MAX_BYTES, DeviceRecord, ProcessRecord, decode
from soakd.procfs import boot_id, process_stat

KIND = "allocator"


def _gauge(name: str, unit: str, help_: str, source: str, *extra: str) -> Metric:
    return Metric(name, unit, Kind.GAUGE, help_, source, ("gpu", *extra))


def _counter(name: str, unit: str, help_: str, source: str) -> Metric:
    return Metric(name, unit, Kind.COUNTER, help_, source, ("gpu",))


ALLOCATED = _gauge("allocator_allocated_bytes", "bytes", "Memory that tensors occupy.",
                   "torch.cuda.memory_stats allocated_bytes.POOL.current", "pool")  # fmt: skip
RESERVED = _gauge("allocator_reserved_bytes", "bytes", "Memory taken from the driver and kept: what NVML sees.",
                  "torch.cuda.memory_stats reserved_bytes.POOL.current", "pool")  # fmt: skip
ACTIVE = _gauge("allocator_active_bytes", "bytes", "Memory of blocks in use or still awaited by a stream.",
                "torch.cuda.memory_stats active_bytes.POOL.current", "pool")  # fmt: skip
INACTIVE_SPLIT = _gauge("allocator_inactive_split_bytes", "bytes",
                        "Free remainders of split blocks: held back from the driver while a neighbour is in use.",
                        "torch.cuda.memory_stats inactive_split_bytes.POOL.current", "pool")  # fmt: skip
REQUESTED = _gauge("allocator_requested_bytes", "bytes", "What was asked for before rounding up.",
                   "torch.cuda.memory_stats requested_bytes.POOL.current", "pool")  # fmt: skip
SEGMENTS = _gauge("allocator_segments", "segments", "Pieces of memory taken from the driver.",
                  "torch.cuda.memory_stats segment.POOL.current", "pool")  # fmt: skip
RETRIES = _counter("allocator_retries_total", "retries", "Times the cache was given back because memory ran short.",
                   "torch.cuda.memory_stats num_alloc_retries")  # fmt: skip
OOMS = _counter("allocator_ooms_total", "errors", "Out-of-memory errors.", "torch.cuda.memory_stats num_ooms")
FRAGMENTATION = _gauge("allocator_fragmentation_ratio", "ratio",
                       "inactive_split / reserved: memory in holes that only smaller blocks fit into.",
                       "torch.cuda.memory_stats inactive_split_bytes.all / reserved_bytes.all")  # fmt: skip
SLACK = _gauge("allocator_slack_ratio", "ratio", "1 - allocated / reserved: all that is reserved and not used.",
               "torch.cuda.memory_stats allocated_bytes.all, reserved_bytes.all")  # fmt: skip
OUTSIDE = _gauge("gpu_memory_outside_allocator_bytes", "bytes",
                 "The server's GPU memory less what its allocator reserves: contexts, libraries, graphs; constant when "
                 "healthy, so growth here is a leak outside the allocator.",
                 "NVML compute processes usedGpuMemory - reserved_bytes.all at the same time")  # fmt: skip
PROBES = Metric("allocator_probes", "processes", Kind.GAUGE, "Server processes whose probe publishes.", "probe files")
ERRORS = Metric("allocator_probe_errors_total", "errors", Kind.COUNTER, "Failures inside the probes, contained there.",
                "probe files, errors")  # fmt: skip
BUSY = Metric("allocator_probe_busy_seconds_total", "seconds", Kind.COUNTER, "Processor time that the probes used.",
              "probe files, busy_s")  # fmt: skip
_POOLED = ((ALLOCATED, "allocated_bytes"), (RESERVED, "reserved_bytes"), (ACTIVE, "active_bytes"),
           (INACTIVE_SPLIT, "inactive_split_bytes"), (REQUESTED, "requested_bytes"), (SEGMENTS, "segment"))  # fmt: skip
METRICS = (*(m for m, _ in _POOLED), RETRIES, OOMS, FRAGMENTATION, SLACK, OUTSIDE, PROBES, ERRORS, BUSY)

_POOLS = (("all", "all"), ("small", "small_pool"), ("large", "large_pool"))
_MAX_FILES = 512
_HISTORY = 240
_MISSED_INTERVALS = 5
_HOW = (
    "no probe publishes; start the server with SOAKD_PROBE=1 and soakd installed in its environment (vLLM loads the "
    "probe by itself, any other torch server by `import soakd.probe.auto`)"
)


class Config(ConfigModel):
    """``folders``: where probes publish; by default /run/soakd/probe and the XDG runtime folders of the users.

    ``max_skew``: how far apart NVML's reading and the probe's may be for their difference to mean something.
    """

    folders: tuple[Path, ...] = Field(default=(), max_length=16)
    max_skew: Seconds = 3.0


@dataclass(frozen=True, slots=True)
class Found:
    """The probe files of one look: those of live processes, and why others were left out."""

    records: tuple[ProcessRecord, ...]
    refused: tuple[str, ...]


class ProbeFiles:
    """Reads the folders. Files are untrusted: regular, bounded, and no links are followed."""

    def __init__(self, proc: Path, folders: Sequence[Path]) -> None:
        self._proc = proc
        self._folders = folders

    def read(self, now_ns: int) -> Found:
        records: list[ProcessRecord] = []
        refused: list[str] = []
        boot = boot_id(self._proc)
        for path in self._paths(refused):
            try:
                record = decode(_bounded(path))
            except PermissionError:
                refused.append(f"{path} is not readable; add soakd's user to the server's group")
                continue
            except (OSError, ValueError) as error:
                refused.append(f"{path}: {error}")
                continue
            if self._live(record, boot, now_ns):
                records.append(record)
        return Found(tuple(records), tuple(refused))

    def _paths(self, refused: list[str]) -> list[Path]:
        found: list[Path] = []
        for folder in self._folders:
            try:
                names = sorted(name for name in os.listdir(folder) if FILE_NAME.fullmatch(name))
            except FileNotFoundError:
                continue
            except OSError as error:
                refused.append(f"{folder}: {error.strerror}")
                continue
            found += [folder / name for name in names]
        return found[:_MAX_FILES]

    def _live(self, record: ProcessRecord, boot: str, now_ns: int) -> bool:
        """Old files are stale; in our own PID namespace the process is looked up as well, by its start time."""
        age_s = (now_ns - record.wall_ns) / 1e9
        if age_s > max(10.0, _MISSED_INTERVALS * record.interval_s) or (boot and record.boot_id not in ("", boot)):
            return False
        if record.pid_namespace != _own_namespace(self._proc):
            return True
        running = process_stat(self._proc, record.pid)
        return running is not None and running.start_ticks == record.start_ticks


def _own_namespace(proc: Path) -> int:
    try:
        return (proc / "self/ns/pid").stat().st_ino
    except OSError:
        return -1


def _bounded(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("not a regular file")
        return os.read(descriptor, MAX_BYTES)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Holding:
    """What the probed processes hold of one GPU at one time: reserved bytes by (pid, PID namespace)."""

    at_ns: int
    reserved: Mapping[tuple[int, int], int]


def devices_by_gpu(records: Iterable[ProcessRecord]) -> dict[str, list[tuple[ProcessRecord, DeviceRecord]]]:
    """Devices by UUID; where torch is too old to tell one, by the process's own index."""
    found: dict[str, list[tuple[ProcessRecord, DeviceRecord]]] = {}
    for record in records:
        for device in record.devices:
            found.setdefault(device.uuid or f"cuda:{device.index}", []).append((record, device))
    return found


def outside(reply: GpuReply, history: Sequence[Holding], namespace: int, max_skew_s: float) -> int | str:
    """NVML's bytes of the probed processes less what their allocators reserve; text where it can't be told.

    Takes the holding nearest to NVML's reading. A process in another PID namespace has another pid there, so that it
    is only matched when it is the single one on the card.
    """
    answer = reply.answers.get("compute_processes")
    if reply.state is not State.OK or answer is None or answer.code != 0 or not isinstance(answer.value, list | tuple):
        return "NVML does not tell the memory of processes here"
    near = min(history, key=lambda h: abs(h.at_ns - reply.at_ns), default=None)
    if near is None or abs(near.at_ns - reply.at_ns) > max_skew_s * 1e9:
        return f"no reading of the probe within {max_skew_s:g} s of NVML's"
    used: dict[int, int | None] = {int(p["pid"]): p["used"] for p in answer.value}
    if any(pidns != namespace for _, pidns in near.reserved):
        if len(used) != 1 or len(near.reserved) != 1:
            return "the server runs in a container and its processes can't be told apart on this GPU"
        total = next(iter(used.values()))
        return total - next(iter(near.reserved.values())) if total is not None else "NVML does not tell the memory"
    wanted = [used.get(pid) for pid, _ in near.reserved]
    if any(n is None for n in wanted):
        return "NVML does not list every probed process on this GPU"
    return sum(n for n in wanted if n is not None) - sum(near.reserved.values())


class AllocatorCollector:
    """Keeps a short history of what was reserved, because NVML's process list is read less often."""

    def __init__(self, config: Config, context: CollectorContext) -> None:
        self._config = config
        self._clock = context.clock
        self._gpus = context.gpus
        self._proc = context.roots.proc
        run = context.roots.run
        self._fixed = config.folders
        self._run = run
        self._history: dict[str, deque[Holding]] = {}
        self._reader = BlockingReader("allocator")

    async def collect(self) -> Sequence[Item]:
        replies = {r.gpu.mig or r.gpu.uuid: r for r in await self._gpus.ask("slow")} if self._gpus else {}
        now = self._clock.wall_ns()
        found = await self._reader.call(lambda: ProbeFiles(self._proc, self._folders()).read(now))
        if not found.records:
            state = State.NO_PERMISSION if any("not readable" in text for text in found.refused) else State.ABSENT
            why = "; ".join(found.refused[:2]) or _HOW
            return [Sample.unknown(metric, state, now, why=why) for metric in METRICS if metric is not PROBES] + [
                Sample.ok(PROBES, 0, now)
            ]
        samples = [
            Sample.ok(PROBES, len(found.records), now),
            Sample.ok(ERRORS, sum(r.errors for r in found.records), now),
            Sample.ok(BUSY, sum(r.busy_s for r in found.records), now),
        ]
        by_gpu = devices_by_gpu(found.records)
        if not by_gpu:
            why = "the probed processes have not used CUDA yet"
            return samples + [Sample.unknown(m, State.ABSENT, now, why=why) for m in METRICS if "gpu" in m.label_names]
        for gpu in [gone for gone in self._history if gone not in by_gpu]:
            del self._history[gpu]
        for gpu, devices in by_gpu.items():
            samples += self._of_gpu(gpu, devices, replies.get(gpu), now)
        return samples

    async def close(self) -> None:
        self._reader.close()

    def _folders(self) -> tuple[Path, ...]:
        if self._fixed:
            return self._fixed
        users = sorted((self._run / "user").glob("*/soakd/probe"))[:64]
        return (self._run / "soakd/probe", *users)

    def _of_gpu(
        self, gpu: str, devices: Sequence[tuple[ProcessRecord, DeviceRecord]], reply: GpuReply | None, now: int
    ) -> list[Sample]:
        tags = labels(gpu=gpu)
        problem = next((device.problem for _, device in devices if device.problem), "")
        if problem:
            why = f"this allocator has no statistics: {problem}"
            return [Sample.unknown(m, State.UNSUPPORTED, now, tags, why) for m in METRICS if "gpu" in m.label_names]
        stats = [device.stats for _, device in devices]
        at_ns = min(record.wall_ns for record, _ in devices)
        samples = [
            _summed(metric, stats, f"{name}.{pool}.current", at_ns, labels(gpu=gpu, pool=short))
            for metric, name in _POOLED
            for short, pool in _POOLS
        ]
        samples += [
            _summed(RETRIES, stats, "num_alloc_retries", at_ns, tags),
            _summed(OOMS, stats, "num_ooms", at_ns, tags),
        ]
        samples += _ratios(stats, at_ns, tags)
        reserved = {
            (record.pid, record.pid_namespace): device.stats.get("reserved_bytes.all.current", 0)
            for record, device in devices
        }
        history = self._history.setdefault(gpu, deque(maxlen=_HISTORY))
        history.append(Holding(at_ns, reserved))
        samples.append(self._outside(reply, history, tags, now))
        return samples

    def _outside(self, reply: GpuReply | None, history: Sequence[Holding], tags: Labels, now: int) -> Sample:
        if reply is None:
            why = (self._gpus.why_none if self._gpus else "NVML is not asked") or "NVML does not know this GPU"
            return Sample.unknown(OUTSIDE, State.ABSENT, now, tags, why)
        value = outside(reply, history, _own_namespace(self._proc), self._config.max_skew)
        if isinstance(value, str):
            return Sample.unknown(OUTSIDE, State.ABSENT, now, tags, value)
        return Sample.ok(OUTSIDE, value, reply.at_ns, tags)


def _summed(metric: Metric, stats: Sequence[Mapping[str, int]], key: str, at_ns: int, tags: Labels) -> Sample:
    values = [s[key] for s in stats if key in s]
    if not values:
        return Sample.unknown(metric, State.UNSUPPORTED, at_ns, tags, f"this version of torch has no {key}")
    return Sample.ok(metric, sum(values), at_ns, tags)


def _ratios(stats: Sequence[Mapping[str, int]], at_ns: int, tags: Labels) -> list[Sample]:
    reserved, allocated, holes = (
        sum(s.get(f"{name}.all.current", 0) for s in stats)
        for name in ("reserved_bytes", "allocated_bytes", "inactive_split_bytes")
    )
    if not reserved:
        why = "nothing is reserved"
        return [Sample.unknown(metric, State.ABSENT, at_ns, tags, why) for metric in (FRAGMENTATION, SLACK)]
    return [
        Sample.ok(FRAGMENTATION, holes / reserved, at_ns, tags),
        Sample.ok(SLACK, 1 - allocated / reserved, at_ns, tags),
    ]


def build(config: Config, context: CollectorContext) -> AllocatorCollector:
    return AllocatorCollector(config, context)
