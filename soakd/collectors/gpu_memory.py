"""GPU memory: total, used, reserved and free, per process, and BAR1.

NVML moves in steps of 2 MiB. Fragmentation can't be seen from here: the driver maps scattered pages, so that holes
inside a server's allocator look like used memory. The allocator probe inside the server measures it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field

from soakd.fields import ConfigModel
from soakd.model import Kind, Metric, Sample, State
from soakd.nvml.readings import CardReading, Fresh, no_gpu, readings
from soakd.ports import Collector, CollectorContext, Item

KIND = "gpu_memory"
INTERVAL_S = 1.0
DEADLINE_S = 8.0

_GPU = ("bdf", "gpu")
_INFO = "nvmlDeviceGetMemoryInfo"
TOTAL = Metric("gpu_memory_total_bytes", "bytes", Kind.GAUGE, "Memory of the card.", _INFO, _GPU)
USED = Metric(
    "gpu_memory_used_bytes", "bytes", Kind.GAUGE,
    "Memory in use by programs; with version 1 of the call the driver's own reserve is inside.", _INFO, _GPU,
)  # fmt: skip
RESERVED = Metric(
    "gpu_memory_reserved_bytes", "bytes", Kind.GAUGE,
    "Memory that driver and firmware keep for themselves; unknown with version 1 of the call.", _INFO, _GPU,
)  # fmt: skip
FREE = Metric("gpu_memory_free_bytes", "bytes", Kind.GAUGE, "Memory that can still be allocated.", _INFO, _GPU)
VERSION = Metric(
    "gpu_memory_call_version", "", Kind.STATE,
    "Which version of the call answered: used bytes of v1 and v2 differ by the reserve.", _INFO, _GPU,
    (("v1", 1), ("v2", 2)),
)  # fmt: skip
PROCESSES = Metric(
    "gpu_processes", "processes", Kind.GAUGE, "Programs with a context on the card.",
    "nvmlDeviceGetComputeRunningProcesses, nvmlDeviceGetGraphicsRunningProcesses", (*_GPU, "type"),
)  # fmt: skip
PROCESS_USED = Metric(
    "gpu_process_memory_bytes", "bytes", Kind.GAUGE,
    "Memory of one program. The process id may be wrong inside a container.",
    "nvmlDeviceGetComputeRunningProcesses, nvmlDeviceGetGraphicsRunningProcesses", (*_GPU, "pid", "type"),
)  # fmt: skip
PROCESSES_USED = Metric(
    "gpu_processes_memory_bytes", "bytes", Kind.GAUGE, "Memory of all programs of one type together.",
    "sum of gpu_process_memory_bytes", (*_GPU, "type"),
)  # fmt: skip
BAR1_TOTAL = Metric(
    "gpu_bar1_total_bytes", "bytes", Kind.GAUGE, "Size of the BAR1 window.", "nvmlDeviceGetBAR1MemoryInfo", _GPU
)
BAR1_USED = Metric(
    "gpu_bar1_used_bytes", "bytes", Kind.GAUGE, "BAR1 window in use.", "nvmlDeviceGetBAR1MemoryInfo", _GPU
)
METRICS = (
    TOTAL, USED, RESERVED, FREE, VERSION, PROCESSES, PROCESS_USED, PROCESSES_USED, BAR1_TOTAL, BAR1_USED,
)  # fmt: skip

_TYPES = (("compute", "compute_processes"), ("graphics", "graphics_processes"))


class Config(ConfigModel):
    """``max_processes`` bounds the series of one card; the largest are kept."""

    max_processes: int = Field(default=32, ge=1, le=256)


class GpuMemory:
    """Fast tier on each reading; processes and BAR1 whenever the slow tier is new."""

    def __init__(self, config: Config, context: CollectorContext) -> None:
        self._max_processes = config.max_processes
        self._context = context
        self._fresh = Fresh()

    async def collect(self) -> Sequence[Item]:
        fast = await readings(self._context.gpus, "fast")
        if not fast:
            return no_gpu(TOTAL, self._context.clock.wall_ns(), self._context.gpus)
        items = [sample for card in fast for sample in memory_samples(card)]
        for card in await readings(self._context.gpus, "slow"):
            if self._fresh(card.reply):
                items += process_samples(card, self._max_processes)
                if not card.mig:
                    items.append(card.sample(BAR1_TOTAL, "bar1", "bar1Total"))
                    items.append(card.sample(BAR1_USED, "bar1", "bar1Used"))
        return items

    async def close(self) -> None:
        return


def memory_samples(card: CardReading) -> list[Sample]:
    """Total, used, reserved, free and the version of the call."""
    samples = [
        card.sample(TOTAL, "memory", "total"),
        card.sample(USED, "memory", "used"),
        card.sample(FREE, "memory", "free"),
        card.sample(VERSION, "memory", "version"),
    ]
    if card.number("memory", "version") == 1:
        why = "version 1 of the call counts the reserve as used"
        return [*samples, card.unknown(RESERVED, State.UNSUPPORTED, why)]
    return [*samples, card.sample(RESERVED, "memory", "reserved")]


def process_samples(card: CardReading, most: int) -> list[Sample]:
    """Per type: how many, the sum, and the largest ``most`` of them."""
    samples: list[Sample] = []
    for name, key in _TYPES:
        tags = (("type", name),)
        answer = card.answer(key)
        listed = answer.value if answer is not None and card.known and answer.code == 0 else None
        if not isinstance(listed, list):
            samples += [card.sample(PROCESSES, key, extra=tags), card.sample(PROCESSES_USED, key, extra=tags)]
            continue
        processes = [p for p in listed if isinstance(p, Mapping)]
        samples.append(card.value(PROCESSES, len(processes), tags))
        sizes = [p["used"] for p in processes if isinstance(p.get("used"), int)]
        if len(sizes) == len(processes):
            samples.append(card.value(PROCESSES_USED, sum(sizes), tags))
        else:
            samples.append(card.unknown(PROCESSES_USED, State.ABSENT, "NVML can't tell the memory of a program", tags))
        for process in sorted(processes, key=lambda p: -(p.get("used") or 0))[:most]:
            samples.append(_process_sample(card, process, name))
    return samples


def _process_sample(card: CardReading, process: Mapping[str, object], name: str) -> Sample:
    tags = (("pid", str(process.get("pid"))), ("type", name))
    used = process.get("used")
    if isinstance(used, int):
        return card.value(PROCESS_USED, used, tags)
    return card.unknown(PROCESS_USED, State.ABSENT, "NVML can't tell the memory of this program", tags)


def build(config: Config, context: CollectorContext) -> Collector:
    return GpuMemory(config, context)
