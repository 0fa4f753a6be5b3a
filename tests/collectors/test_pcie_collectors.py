"""PCIe collectors over recorded sysfs trees: the whole path, both vocabularies, and no device woken."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.collectors import pcie_aer, pcie_link, pcie_power
from soakd.model import Sample, State
from soakd.nvml.device import Answer
from soakd.nvml.hest import firmware_first
from soakd.nvml.replay import Frame, Recording, load_recording
from soakd.nvml.replay_source import ReplaySource
from soakd.nvml.sysfs_tree import write_sysfs
from soakd.ports import CollectorContext, Item, Roots
from tests.support.gpus import FIXTURES, HandClock, context, events, machine, one, samples, sysfs_of, value

V100, A100, CONSUMER = "0000:b1:00.0", "0000:41:00.0", "0000:01:00.0"


async def collect_aer(ctx: CollectorContext) -> Sequence[Item]:
    collector = pcie_aer.build(pcie_aer.Config(), ctx)
    items = await collector.collect()
    await collector.close()
    return items


async def test_the_whole_path_is_read_in_the_old_vocabulary(tmp_path: Path) -> None:
    ctx, _ = machine(tmp_path, HandClock(), "v100")
    items = await collect_aer(ctx)
    devices = {dict(s.labels)["device"]: dict(s.labels)["role"] for s in samples(items, "pcie_aer_errors_total")}
    assert devices == {V100: "gpu", "0000:b0:08.0": "bridge", "0000:af:00.0": "bridge", "0000:ae:00.0": "root_port"}
    assert value(items, "pcie_aer_errors_total", device=V100, error="RxErr") == 7
    assert value(items, "pcie_aer_errors_total", device="0000:af:00.0", error="BadTLP") == 2
    assert value(items, "pcie_aer_rootport_messages_total", severity="correctable") == 6
    assert {dict(s.labels)["bdf"] for s in samples(items, "pcie_aer_errors_total")} == {V100}


async def test_the_kernels_total_stands_beside_the_sum(tmp_path: Path) -> None:
    ctx, _ = machine(tmp_path, HandClock(), "v100")
    items = await collect_aer(ctx)
    where = {"device": "0000:af:00.0", "severity": "correctable"}
    assert value(items, "pcie_aer_severity_errors_total", **where) == 3
    assert value(items, "pcie_aer_severity_types_total", **where) == 2


async def test_no_aer_capability_is_unknown_not_zero(tmp_path: Path) -> None:
    ctx, _ = machine(tmp_path, HandClock(), "h200")
    found = [s for s in await collect_aer(ctx) if isinstance(s, Sample)]
    assert {s.state for s in found} == {State.ABSENT}


async def test_the_new_vocabulary_has_the_same_names(tmp_path: Path) -> None:
    ctx, _ = machine(tmp_path, HandClock(), "a100")
    assert value(await collect_aer(ctx), "pcie_aer_errors_total", device=A100, error="RxErr") == 2


async def test_a_gpu_that_leaves_the_bus_is_lost_in_every_counter_it_had(tmp_path: Path) -> None:
    ctx, _ = machine(tmp_path, HandClock(), "a100")
    collector = pcie_aer.build(pcie_aer.Config(), ctx)
    before = {s.labels for s in samples(await collector.collect(), "pcie_aer_errors_total", device=A100)}
    unplug(tmp_path, A100)
    after = samples(await collector.collect(), "pcie_aer_errors_total", device=A100)
    assert {s.labels for s in after} == before
    assert {s.state for s in after} == {State.LOST}


def unplug(tmp_path: Path, bdf: str) -> None:
    entry = tmp_path / "sys/bus/pci/devices" / bdf
    shutil.rmtree(entry.resolve())
    entry.unlink()


async def test_errors_that_only_the_card_counts_are_a_disagreement(tmp_path: Path) -> None:
    """Firmware-first: the kernel's files stay at zero while the card counts."""
    clock = HandClock()
    write_sysfs(sysfs_of("a100"), tmp_path / "sys")
    recording = load_recording(FIXTURES / "a100")
    first = recording.frames[0]
    more = Frame(first.fast, {"": {**first.slow[""], "DEV_PCIE_COUNT_RECEIVER_ERROR": Answer(0, 9)}})
    source = ReplaySource([Recording(recording.card, (first, more))], clock)
    collector = pcie_aer.build(pcie_aer.Config(), context(clock, source, Roots(sys=tmp_path / "sys")))
    assert value(await collector.collect(), "pcie_aer_agreement") == 0  # both start above zero: no change yet
    source.step()
    assert value(await collector.collect(), "pcie_aer_agreement") == 1


def hest(*, first: bool) -> bytes:
    """A table with a machine check source of two banks before the AER root port."""
    check = bytearray(40 + 2 * 28)
    check[32] = 2
    root_port = bytearray(48)
    root_port[0], root_port[6] = 6, int(first)
    return b"HEST" + bytes(32) + (2).to_bytes(4, "little") + bytes(check) + bytes(root_port)


@pytest.mark.parametrize(("first", "state"), [(True, State.ABSENT), (False, State.OK)])
async def test_a_zero_under_firmware_first_is_unknown(first: bool, state: State, tmp_path: Path) -> None:
    ctx, _ = machine(tmp_path, HandClock(), "a100")
    table = tmp_path / "sys/firmware/acpi/tables/HEST"
    table.parent.mkdir(parents=True)
    table.write_bytes(hest(first=first))
    items = await collect_aer(ctx)
    assert one(items, "pcie_aer_severity_errors_total", device=A100, severity="fatal").state is state
    assert {s.state for s in samples(items, "pcie_aer_errors_total", device=A100, severity="fatal")} == {state}
    assert value(items, "pcie_aer_errors_total", device=A100, error="RxErr") == 2, "a count that is there is one"


@given(st.binary(max_size=400))
def test_no_table_breaks_the_parser(data: bytes) -> None:
    assert firmware_first(b"HEST" + data) in (True, False, None)


async def test_sysfs_is_read_on_a_machine_whose_driver_is_gone(tmp_path: Path) -> None:
    write_sysfs(sysfs_of("v100"), tmp_path / "sys")
    ctx = context(HandClock(), None, Roots(sys=tmp_path / "sys"))
    items = await collect_aer(ctx)
    assert value(items, "pcie_aer_errors_total", device=V100, error="RxErr") == 7
    power = pcie_power.build(pcie_power.Config(), ctx)
    assert value(await power.collect(), "pcie_power_state", device=V100) == 0
    link = pcie_link.build(pcie_link.Config(), ctx)
    read = await link.collect()
    assert value(read, "pcie_link_speed_transfers_per_second", device=V100, which="current") == 8e9
    assert one(read, "pcie_link_state").state is State.ABSENT


async def collect_power(tmp_path: Path, tree: dict[str, dict[str, str]]) -> Sequence[Item]:
    write_sysfs(tree, tmp_path / "sys")
    ctx = context(HandClock(), None, Roots(sys=tmp_path / "sys"))
    return await pcie_power.build(pcie_power.Config(), ctx).collect()


async def test_an_absent_d3cold_allowed_is_not_0(tmp_path: Path) -> None:
    items = await collect_power(tmp_path, sysfs_of("v100"))
    assert one(items, "pcie_d3cold_allowed", device=V100).state is State.ABSENT
    assert value(items, "pcie_d3cold_allowed", device="0000:ae:00.0") == 1


async def test_one_unreadable_attribute_costs_itself_alone(tmp_path: Path) -> None:
    tree = sysfs_of("a100")
    tree[A100]["power/runtime_active_time"] = "<error: EIO>"
    items = await collect_power(tmp_path, tree)
    assert one(items, "pcie_runtime_active_seconds_total", device=A100).state is State.ABSENT
    assert value(items, "pcie_power_state", device=A100) == 0
    assert value(items, "pcie_driver", device=A100) == 1
    assert value(items, "pcie_subsystem_id", device=A100, part="device") == 0x1533


async def test_words_that_are_not_known_are_unknown_not_the_first_of_them(tmp_path: Path) -> None:
    tree = sysfs_of("a100")
    tree[A100] |= {"power_state": "D9\n", "power/control": "\n", "d3cold_allowed": "[N/A]\n"}
    items = await collect_power(tmp_path, tree)
    for name in ("pcie_power_state", "pcie_runtime_control", "pcie_d3cold_allowed"):
        assert one(items, name, device=A100).state is State.ABSENT


async def test_aspm_and_its_policy(tmp_path: Path) -> None:
    policy = tmp_path / "sys/module/pcie_aspm/parameters/policy"
    policy.parent.mkdir(parents=True)
    policy.write_text("[default] performance powersave powersupersave\n")
    tree = sysfs_of("a100")
    tree[A100]["link/l1_aspm"] = "1\n"
    items = await collect_power(tmp_path, tree)
    assert value(items, "pcie_aspm", device=A100) == 2
    assert value(items, "pcie_aspm_policy") == 0


async def test_a_device_that_leaves_and_comes_back_is_two_events(tmp_path: Path) -> None:
    write_sysfs(sysfs_of("a100"), tmp_path / "sys")
    collector = pcie_power.build(pcie_power.Config(), context(HandClock(), None, Roots(sys=tmp_path / "sys")))
    assert events(await collector.collect()) == []
    unplug(tmp_path, A100)
    lost = await collector.collect()
    assert [e.kind for e in events(lost)] == ["pcie.device_lost"]
    assert one(lost, "pcie_power_state", device=A100).state is State.LOST
    assert events(await collector.collect()) == []
    shutil.rmtree(tmp_path / "sys")
    write_sysfs(sysfs_of("a100"), tmp_path / "sys")
    assert [e.kind for e in events(await collector.collect())] == ["pcie.device_returned"]


@pytest.mark.parametrize(
    "asleep", [{"power/runtime_status": "suspended\n"}, {"power_state": "D3hot\n"}, {"power_state": "D3cold\n"}]
)
async def test_a_sleeping_device_is_not_woken(asleep: dict[str, str], tmp_path: Path) -> None:
    """Reading its link or its configuration space would resume it: neither may be opened."""
    tree = sysfs_of("a100")
    tree[A100] |= asleep
    write_sysfs(tree, tmp_path / "sys")
    place = tmp_path / "sys/bus/pci/devices" / A100
    for name in ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width"):
        (place / name).write_text("read although asleep\n")
    (place / "config").write_bytes(b"\xff" * 256)
    ctx = context(HandClock(), None, Roots(sys=tmp_path / "sys"))
    items = await pcie_link.build(pcie_link.Config(), ctx).collect()
    found = samples(items, "pcie_link_speed_transfers_per_second", device=A100)
    assert {s.state for s in found} == {State.ABSENT}
    assert all("wake" in s.why for s in found)
    power = await pcie_power.build(pcie_power.Config(), ctx).collect()
    assert "wake" in one(power, "pcie_aspm", device=A100).why


def busy(recording: Recording, ratio: int, **answers: Answer) -> Recording:
    frame = recording.frames[0]
    fast = {"": {**frame.fast[""], "utilization": Answer(0, {"gpu": ratio, "memory": 0}), **answers}}
    return Recording(recording.card, (Frame(fast, frame.slow),))


async def test_an_idle_gen1_link_is_not_judged_and_does_not_set_the_replay_limit(tmp_path: Path) -> None:
    ctx, _ = machine(tmp_path, HandClock(), "consumer")
    items = await pcie_link.build(pcie_link.Config(), ctx).collect()
    assert value(items, "pcie_link_speed_transfers_per_second", device=CONSUMER, which="current") == 2.5e9
    assert value(items, "pcie_link_state") == dict(pcie_link.LINK.codes)["idle"]
    assert value(items, "pcie_replay_limit_per_minute") == 16  # gen4 x16, what card and path can do


async def test_a_link_that_stays_slow_under_load_is_degraded_once(tmp_path: Path) -> None:
    clock = HandClock()
    write_sysfs(sysfs_of("consumer"), tmp_path / "sys")
    source = ReplaySource([busy(load_recording(FIXTURES / "consumer"), 90)], clock)
    collector = pcie_link.build(pcie_link.Config(), context(clock, source, Roots(sys=tmp_path / "sys")))
    codes = dict(pcie_link.LINK.codes)
    assert value(await collector.collect(), "pcie_link_state") == codes["settling"]
    clock.turn(11)
    first = await collector.collect()
    assert value(first, "pcie_link_state") == codes["degraded"]
    assert [e.kind for e in events(first)] == ["pcie.link_degraded"]
    assert "2.5 GT/s x16 under load, 16 GT/s x16 is possible" in events(first)[0].what
    clock.turn(1)
    assert events(await collector.collect()) == []


async def test_byte_counters_say_what_they_can_tell(tmp_path: Path) -> None:
    clock = HandClock()
    ctx, _ = machine(tmp_path, clock, "a100")
    collector = pcie_link.build(pcie_link.Config(), ctx)
    first = await collector.collect()
    assert one(first, "pcie_bytes_ceiling_bytes_per_second").state is State.ABSENT
    clock.turn(2)
    items = await collector.collect()
    assert value(items, "pcie_bytes_ceiling_bytes_per_second") == 2**31
    assert pcie_link.BYTES.wraps_at == 2**32


async def test_nvmls_own_error_fields_of_an_h200(tmp_path: Path) -> None:
    ctx, _ = machine(tmp_path, HandClock(), "h200")
    items = await pcie_link.build(pcie_link.Config(), ctx).collect()
    assert {dict(s.labels)["error"]: s.value for s in samples(items, "pcie_nvml_errors_total") if s.value} == {
        "receiver_error": 12, "bad_tlp": 15, "naks_sent": 10, "bad_dllp": 1, "lane_error": 14,
    }  # fmt: skip
    assert value(items, "pcie_l0_recoveries_total") == 874
    assert value(items, "pcie_replay_limit_per_minute") == 31


@pytest.mark.parametrize("text", ["63", "255", "0", "[N/A]", ""])
async def test_a_width_that_is_none_is_unknown(text: str, tmp_path: Path) -> None:
    tree = sysfs_of("a100")
    tree[A100]["current_link_width"] = text + "\n"
    write_sysfs(tree, tmp_path / "sys")
    ctx = context(HandClock(), None, Roots(sys=tmp_path / "sys"))
    items = await pcie_link.build(pcie_link.Config(), ctx).collect()
    assert one(items, "pcie_link_width_lanes", device=A100, which="current").state is State.ABSENT
