from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from soakd.collectors.allocator import AllocatorCollector, Config, Holding, build, outside
from soakd.model import Event, GpuIdentity, State
from soakd.ports import GpuReply, NvmlAnswer
from soakd.probe.record import DeviceRecord, ProcessRecord, encode
from tests.support.proc_tree import START_NS, HandClock, add_process, context, roots, samples, states, values, write

GIB = 2**30
GPU = GpuIdentity("GPU-a", "0000:01:00.0", "1", "V100", 0)


@dataclass
class FakeGpus:
    """One card whose processes are given; ``at_ns`` is when NVML was asked."""

    used: Mapping[int, int | None]
    at_ns: int = START_NS
    state: State = State.OK
    why_none: str = ""
    asked: list[str] = field(default_factory=list)

    async def ask(self, tier: str) -> Sequence[GpuReply]:
        self.asked.append(tier)
        listed = [{"pid": pid, "used": used} for pid, used in self.used.items()]
        return [GpuReply(GPU, self.state, self.at_ns, {"compute_processes": NvmlAnswer(0, listed)})]

    async def take_events(self) -> Sequence[Event]:
        return ()


def stats(allocated: int, reserved: int, holes: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in (
        ("allocated_bytes", allocated), ("reserved_bytes", reserved), ("active_bytes", allocated),
        ("inactive_split_bytes", holes), ("segment", 4),
    ):  # fmt: skip
        found |= {f"{name}.all.current": value, f"{name}.small_pool.current": 0, f"{name}.large_pool.current": value}
    return found | {"num_alloc_retries": 1, "num_ooms": 0}


def publish(
    folder: Path, pid: int, devices: Sequence[DeviceRecord], *, namespace: int = 1, start: int = 500,
    wall_ns: int = START_NS, errors: int = 0,
) -> None:  # fmt: skip
    record = ProcessRecord(
        pid, namespace, start, "boot", wall_ns, 1, 1.0, 9, errors, "", 0.5, "2.11", True, "", tuple(devices)
    )
    write(folder, {f"probe-{namespace}-{pid}.json": encode(record)})


def device(
    allocated: int = 6 * GIB, reserved: int = 10 * GIB, holes: int = 2 * GIB, uuid: str = "GPU-a"
) -> DeviceRecord:
    return DeviceRecord(0, uuid, "V100", stats(allocated, reserved, holes))


def machine(
    tmp_path: Path, gpus: FakeGpus | None = None, clock: HandClock | None = None
) -> tuple[AllocatorCollector, Path, int]:
    """The collector, the probe folder and the inode of this made-up machine's PID namespace."""
    found = roots(tmp_path)
    write(found.proc, {"self/ns/pid": "", "sys/kernel/random/boot_id": "boot\n"})
    folder = found.run / "soakd/probe"
    folder.mkdir(parents=True)
    collector = build(Config(), context(found, clock or HandClock(), gpus=gpus))
    return collector, folder, (found.proc / "self/ns/pid").stat().st_ino


async def test_without_a_probe_it_says_how_to_get_one(tmp_path: Path) -> None:
    collector, _, _ = machine(tmp_path)
    items = await collector.collect()
    assert values(items, "allocator_probes") == [0]
    unknown = samples(items, "allocator_reserved_bytes")[0]
    assert unknown.state is State.ABSENT
    assert "SOAKD_PROBE=1" in unknown.why
    await collector.close()


async def test_figures_and_ratios(tmp_path: Path) -> None:
    collector, folder, namespace = machine(tmp_path)
    add_process(tmp_path / "proc", 100, "python", start=500)
    publish(folder, 100, [device()], namespace=namespace, errors=3)
    items = await collector.collect()
    assert values(items, "allocator_reserved_bytes", gpu="GPU-a", pool="all") == [10 * GIB]
    assert values(items, "allocator_allocated_bytes", pool="large") == [6 * GIB]
    assert values(items, "allocator_fragmentation_ratio") == [pytest.approx(0.2)]
    assert values(items, "allocator_slack_ratio") == [pytest.approx(0.4)]
    assert values(items, "allocator_retries_total") == [1]
    assert values(items, "allocator_probe_errors_total") == [3]
    assert samples(items, "allocator_requested_bytes")[0].state is State.UNSUPPORTED, "not in this torch: not zero"
    assert samples(items, "gpu_memory_outside_allocator_bytes")[0].state is State.ABSENT
    await collector.close()


async def test_processes_on_one_gpu_add_up_and_nvml_gives_the_rest(tmp_path: Path) -> None:
    collector, folder, namespace = machine(tmp_path, FakeGpus({100: 11 * GIB, 101: 4 * GIB, 999: 7 * GIB}))
    for pid, reserved in ((100, 10 * GIB), (101, 3 * GIB)):
        add_process(tmp_path / "proc", pid, "python", start=500)
        publish(folder, pid, [device(reserved=reserved)], namespace=namespace)
    items = await collector.collect()
    assert values(items, "allocator_probes") == [2]
    assert values(items, "allocator_reserved_bytes", pool="all") == [13 * GIB]
    assert values(items, "gpu_memory_outside_allocator_bytes") == [2 * GIB]
    await collector.close()


async def test_stale_files_are_not_evidence(tmp_path: Path) -> None:
    collector, folder, namespace = machine(tmp_path)
    add_process(tmp_path / "proc", 100, "python", start=777)
    publish(folder, 100, [device()], namespace=namespace, start=500)
    publish(folder, 101, [device()], namespace=namespace)
    publish(folder, 102, [device()], namespace=55, wall_ns=START_NS - 60 * 10**9)
    items = await collector.collect()
    assert values(items, "allocator_probes") == [0], "a reused pid, a dead process, and a silent container"
    publish(folder, 103, [device()], namespace=55)
    assert values(await collector.collect(), "allocator_probes") == [1], "a container is judged by the age of its file"
    await collector.close()


async def test_bad_files_cost_nothing_else(tmp_path: Path) -> None:
    collector, folder, namespace = machine(tmp_path)
    add_process(tmp_path / "proc", 100, "python", start=500)
    publish(folder, 100, [device()], namespace=namespace)
    write(folder, {"probe-1-1.json": "{", "probe-1-2.json": b"\xff" * 10, "other.json": "{}"})
    (folder / "probe-1-3.json").symlink_to(folder / f"probe-{namespace}-100.json")
    os.mkfifo(folder / "probe-1-4.json")
    items = await collector.collect()
    assert values(items, "allocator_probes") == [1]
    await collector.close()


async def test_only_bad_files_are_named(tmp_path: Path) -> None:
    collector, folder, _ = machine(tmp_path)
    write(folder, {"probe-1-1.json": "{"})
    assert "probe-1-1.json" in samples(await collector.collect(), "allocator_reserved_bytes")[0].why
    await collector.close()


async def test_a_server_that_has_not_used_cuda_yet(tmp_path: Path) -> None:
    collector, folder, namespace = machine(tmp_path)
    add_process(tmp_path / "proc", 100, "python", start=500)
    publish(folder, 100, [], namespace=namespace)
    items = await collector.collect()
    assert values(items, "allocator_probes") == [1]
    assert "not used CUDA" in samples(items, "allocator_reserved_bytes")[0].why
    await collector.close()


async def test_an_allocator_without_statistics_is_unsupported(tmp_path: Path) -> None:
    collector, folder, namespace = machine(tmp_path)
    add_process(tmp_path / "proc", 100, "python", start=500)
    publish(folder, 100, [DeviceRecord(0, "GPU-a", "", {}, "no getDeviceStats")], namespace=namespace)
    items = await collector.collect()
    assert states(samples(items, "allocator_reserved_bytes")) == {State.UNSUPPORTED}
    await collector.close()


def reply(used: Mapping[int, int | None], at_ns: int = START_NS) -> GpuReply:
    listed = [{"pid": pid, "used": n} for pid, n in used.items()]
    return GpuReply(GPU, State.OK, at_ns, {"compute_processes": NvmlAnswer(0, listed)})


def test_the_reading_nearest_to_nvmls_counts() -> None:
    history = [Holding(START_NS + n * 10**9, {(1, 7): n * GIB}) for n in range(30)]
    assert outside(reply({1: 20 * GIB}, START_NS + 12 * 10**9), history, 7, 3.0) == 8 * GIB


@pytest.mark.parametrize(
    ("used", "reserved", "why"),
    [
        ({1: 20}, {(1, 9): 5, (2, 9): 5}, "container"),
        ({2: 20}, {(1, 7): 5}, "does not list"),
        ({1: None}, {(1, 7): 5}, "does not list"),
    ],
)
def test_what_can_not_be_told_apart_is_unknown(
    used: dict[int, int | None], reserved: dict[tuple[int, int], int], why: str
) -> None:
    found = outside(reply(used), [Holding(START_NS, reserved)], 7, 3.0)
    assert isinstance(found, str)
    assert why in found


def test_readings_too_far_apart_and_lost_cards_are_unknown() -> None:
    near = [Holding(START_NS, {(1, 7): 5})]
    assert "within 3 s" in str(outside(reply({1: 20}, START_NS + 4 * 10**9), near, 7, 3.0))
    lost = GpuReply(GPU, State.LOST, START_NS, {}, "fell off")
    assert isinstance(outside(lost, near, 7, 3.0), str)
    refused = GpuReply(GPU, State.OK, START_NS, {"compute_processes": NvmlAnswer(3)})
    assert isinstance(outside(refused, near, 7, 3.0), str)


def test_one_container_alone_on_a_card_is_matched() -> None:
    assert outside(reply({4711: 20}), [Holding(START_NS, {(1, 9): 5})], 7, 3.0) == 15
