"""GPU collectors over recorded cards: each family says what it has, and what it has not is never 0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from soakd.collectors import gpu_ecc, gpu_memory, gpu_power_clocks, gpu_thermal, pcie_aer, pcie_link, pcie_power, xid
from soakd.model import Sample, State
from soakd.nvml.device import Answer
from soakd.nvml.replay import Frame, Recording, load_recording
from soakd.nvml.replay_source import ReplaySource
from soakd.ports import CollectorContext, Item, Roots
from tests.support.gpus import FAMILIES, FIXTURES, HandClock, context, events, machine, one, samples, value

MODULES = (gpu_memory, gpu_ecc, gpu_thermal, gpu_power_clocks, pcie_link, pcie_aer, pcie_power, xid)
GPU_MODULES = MODULES[:4]


async def collect(module: ModuleType, ctx: CollectorContext) -> Sequence[Item]:
    collector = module.build(module.Config(), ctx)
    items: Sequence[Item] = await collector.collect()
    await collector.close()
    return items


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.KIND)
async def test_every_sample_keeps_to_the_catalogue(module: ModuleType, family: str, tmp_path: Path) -> None:
    ctx, _ = machine(tmp_path, HandClock(), family)
    found = [i for i in await collect(module, ctx) if isinstance(i, Sample)]
    assert found
    declared = set(module.METRICS)
    for sample in found:
        assert sample.metric in declared
        assert {k for k, _ in sample.labels} <= set(sample.metric.label_names)
        assert list(sample.labels) == sorted(sample.labels)
        assert (sample.state is State.OK) or sample.why, f"{sample.metric.name} does not say why it is unknown"
    keys = [(s.metric.name, s.labels) for s in found]
    assert len(keys) == len(set(keys)), "a series was written twice in one reading"


@pytest.mark.parametrize("module", GPU_MODULES, ids=lambda m: m.KIND)
async def test_a_lost_card_is_lost_in_every_metric_it_had(module: ModuleType, tmp_path: Path) -> None:
    ctx, source = machine(tmp_path, HandClock(), "a100")
    collector = module.build(module.Config(), ctx)

    def series(items: Sequence[Item]) -> set[tuple[str, object]]:
        # processes come and go with the programs, everything else belongs to the card
        return {(s.metric.name, s.labels) for s in items if isinstance(s, Sample) and "pid" not in dict(s.labels)}

    before = await collector.collect()
    source.step()
    source.step()
    assert isinstance(ctx.clock, HandClock)
    ctx.clock.turn(60)
    after = await collector.collect()
    assert series(before) <= series(after)
    derived = {"gpu_temperature_band_seconds_total"}
    left = [s for s in after if isinstance(s, Sample) and s.metric.name not in derived]
    assert {s.state for s in left} == {State.LOST}
    assert {s.why for s in left} == {"the GPU is lost"} or module is gpu_power_clocks


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.KIND)
async def test_a_machine_without_gpu_says_so_in_one_sample(module: ModuleType, tmp_path: Path) -> None:
    clock = HandClock()
    none = ReplaySource([], clock, "no GPU found: NVML Shared Library Not Found")
    for gpus in (none, None):
        ctx = context(clock, gpus, Roots(sys=tmp_path, dev=tmp_path))
        found = [i for i in await collect(module, ctx) if isinstance(i, Sample) and i.metric.source != "/dev/kmsg"]
        cards = [s for s in found if dict(s.labels).get("source") != "kmsg"]
        assert [(s.state, s.labels) for s in cards] == [(State.ABSENT, ())]
        assert cards[0].why.startswith("no GPU found")


async def test_one_bad_card_does_not_cost_the_others_their_data(tmp_path: Path) -> None:
    ctx, source = machine(tmp_path, HandClock(), "a100", "v100")
    source.step()
    source.step()
    for module in GPU_MODULES:
        found = [s for s in await collect(module, ctx) if isinstance(s, Sample)]
        v100 = [s for s in found if dict(s.labels)["bdf"] == "0000:b1:00.0"]
        assert any(s.state is State.OK for s in v100)
        assert not any(s.state is State.LOST for s in v100)


async def test_memory_of_version_2_keeps_the_reserve_apart(tmp_path: Path) -> None:
    ctx, _ = machine(tmp_path, HandClock(), "h200")
    items = await collect(gpu_memory, ctx)
    assert value(items, "gpu_memory_used_bytes") == 0
    assert value(items, "gpu_memory_reserved_bytes") == 644_939_776
    assert value(items, "gpu_memory_call_version") == 2


async def test_memory_of_version_1_is_marked_and_has_no_reserve() -> None:
    clock = HandClock()
    recording = load_recording(FIXTURES / "h200")
    v1 = Answer(0, {"version": 1, "total": 150754820096, "used": 644939776, "free": 150109880320})
    frame = recording.frames[0]
    old = Frame({"": {**frame.fast[""], "memory": v1}}, frame.slow)
    source = ReplaySource([Recording(recording.card, (old,))], clock)
    items = await collect(gpu_memory, context(clock, source, Roots()))
    assert value(items, "gpu_memory_call_version") == 1
    assert one(items, "gpu_memory_reserved_bytes").state is State.UNSUPPORTED


async def test_a_program_whose_memory_nvml_cannot_tell_is_unknown_not_0(tmp_path: Path) -> None:
    ctx, _ = machine(tmp_path, HandClock(), "consumer")
    items = await collect(gpu_memory, ctx)
    assert value(items, "gpu_processes", type="compute") == 1
    assert one(items, "gpu_process_memory_bytes").state is State.ABSENT
    assert one(items, "gpu_processes_memory_bytes", type="compute").state is State.ABSENT


async def test_processes_are_bounded_and_the_largest_are_kept() -> None:
    clock = HandClock()
    recording = load_recording(FIXTURES / "v100")
    many = Answer(0, [{"pid": n, "used": n * 2**20} for n in range(500)])
    slow = {"": {**recording.frames[0].slow[""], "compute_processes": many}}
    source = ReplaySource([Recording(recording.card, (Frame(recording.frames[0].fast, slow),))], clock)
    items = await collect(gpu_memory, context(clock, source, Roots()))
    kept = samples(items, "gpu_process_memory_bytes")
    assert len(kept) == 32
    assert max(int(dict(s.labels)["pid"]) for s in kept) == 499
    assert value(items, "gpu_processes", type="compute") == 500


async def test_v100_has_retired_pages_and_no_row_remapper(tmp_path: Path) -> None:
    ctx, _ = machine(tmp_path, HandClock(), "v100")
    items = await collect(gpu_ecc, ctx)
    assert value(items, "gpu_retired_pages_total", cause="double_bit") == 1
    assert value(items, "gpu_retired_pages_pending") == 0
    assert one(items, "gpu_row_remap_pending").state is State.UNSUPPORTED
    assert {s.state for s in samples(items, "gpu_remapped_rows_total")} == {State.UNSUPPORTED}
    assert value(items, "gpu_ecc_location_errors_total", error="corrected", counter="aggregate", location="dram") == 5
    sram = one(items, "gpu_ecc_location_errors_total", error="corrected", counter="volatile", location="sram")
    assert sram.state is State.UNSUPPORTED


async def test_a100_has_a_row_remapper_and_sram_errors(tmp_path: Path) -> None:
    clock = HandClock()
    ctx, source = machine(tmp_path, clock, "a100")
    collector = gpu_ecc.build(gpu_ecc.Config(), ctx)
    await collector.collect()
    source.step()
    clock.turn(30)
    items = await collector.collect()
    assert value(items, "gpu_row_remap_pending") == 1
    assert value(items, "gpu_remapped_rows_total", error="uncorrected") == 1
    assert value(items, "gpu_ecc_location_errors_total", error="uncorrected", counter="volatile", location="sram") == 1
    assert {s.state for s in samples(items, "gpu_retired_pages_total")} == {State.UNSUPPORTED}


async def test_a_consumer_card_has_no_ecc_and_a_fan(tmp_path: Path) -> None:
    ctx, _ = machine(tmp_path, HandClock(), "consumer")
    items = await collect(gpu_ecc, ctx)
    assert {s.state for s in items if isinstance(s, Sample)} == {State.UNSUPPORTED}
    power = await collect(gpu_power_clocks, ctx)
    assert value(power, "gpu_fan_speed_ratio") == 0.41
    assert one(power, "gpu_throttle_counters_agree").state is State.UNSUPPORTED


async def test_a_slow_reading_is_handed_on_once() -> None:
    clock = HandClock()
    source = ReplaySource([load_recording(FIXTURES / "h200")], clock)
    collector = gpu_ecc.build(gpu_ecc.Config(), context(clock, source, Roots()))
    assert samples(await collector.collect(), "gpu_ecc_mode")
    assert not samples(await collector.collect(), "gpu_ecc_mode")


async def test_h200_temperatures_and_what_it_answers_with_an_empty_success(tmp_path: Path) -> None:
    ctx, _ = machine(tmp_path, HandClock(), "h200")
    items = await collect(gpu_thermal, ctx)
    assert value(items, "gpu_temperature_celsius", sensor="core") == 40
    assert value(items, "gpu_temperature_celsius", sensor="memory") == 39
    assert value(items, "gpu_temperature_threshold_celsius", threshold="gpu_max") == 87
    assert {s.state for s in samples(items, "gpu_temperature_tlimit_celsius")} == {State.ABSENT}


async def test_temperature_bands_and_swing_of_a_v100(tmp_path: Path) -> None:
    clock = HandClock()
    ctx, source = machine(tmp_path, clock, "v100")
    collector = gpu_thermal.build(gpu_thermal.Config(), ctx)
    items: Sequence[Item] = ()
    for _ in range(3):  # 78, 80 and 77 C, 10 s apart
        items = await collector.collect()
        source.step()
        clock.turn(10)
    assert value(items, "gpu_temperature_band_seconds_total", band="78+-2", side="in") == 20
    assert value(items, "gpu_temperature_band_seconds_total", band="85+-5", side="in") == 10
    assert value(items, "gpu_temperature_band_seconds_total", band="85+-5", side="below") == 10
    assert value(items, "gpu_temperature_window_amplitude_celsius", sensor="core") == 3
    assert one(items, "gpu_temperature_celsius", sensor="memory").state is State.ABSENT


async def test_power_clocks_and_throttling_of_an_h200(tmp_path: Path) -> None:
    ctx, _ = machine(tmp_path, HandClock(), "h200")
    items = await collect(gpu_power_clocks, ctx)
    assert value(items, "gpu_power_watts", reading="instant") == 81.231
    assert value(items, "gpu_power_limit_watts", limit="enforced") == 700
    assert value(items, "gpu_clock_hertz", clock="sm") == 495e6
    assert value(items, "gpu_energy_joules_total") == 2335.838
    assert value(items, "gpu_throttle_active", reason="idle") == 1
    assert value(items, "gpu_throttle_active", reason="sw_power_cap") == 0
    assert value(items, "gpu_throttle_seconds_total", reason="hw_thermal") == 0
    assert value(items, "gpu_performance_state") == 0
    assert one(items, "gpu_fan_speed_ratio").state is State.UNSUPPORTED


async def test_throttle_counters_of_another_driver_generation_are_unsupported(tmp_path: Path) -> None:
    ctx, _ = machine(tmp_path, HandClock(), "a100")
    items = await collect(gpu_power_clocks, ctx)
    thermal = one(items, "gpu_throttle_seconds_total", reason="hw_thermal")
    assert thermal.state is State.UNSUPPORTED
    assert "does not fit the driver" in thermal.why


@pytest.mark.parametrize(
    ("field_s", "violation_s", "agree"),
    [((0, 0), (0, 0), True), ((5, 65), (5, 64), True), ((0, 60), (7, 7), False), ((1, 1), (0, 60), False),
     ((0, 0.5), (0, 0), True)],
)  # fmt: skip
def test_the_two_accounts_of_thermal_throttling_are_compared(
    field_s: tuple[float, float], violation_s: tuple[float, float], agree: bool
) -> None:
    """A field id that means something else in this driver grows while the policy counter stands (or the reverse)."""
    check = gpu_power_clocks.ThermalCheck()
    verdicts = [check.agree(f * 1e9, v * 1e9) for f, v in zip(field_s, violation_s, strict=True)]
    assert verdicts[-1] is agree


async def test_mig_instances_have_memory_and_nothing_of_the_card() -> None:
    clock = HandClock()
    recording = load_recording(FIXTURES / "a100")
    memory = {"memory": recording.frames[0].fast[""]["memory"]}
    frame = Frame({**recording.frames[0].fast, "MIG-1": memory}, {**recording.frames[0].slow, "MIG-1": {}})
    source = ReplaySource([Recording(recording.card._replace(migs=("MIG-1",)), (frame,))], clock)
    ctx = context(clock, source, Roots())
    assert len(samples(await collect(gpu_memory, ctx), "gpu_memory_used_bytes")) == 2
    for module in (gpu_ecc, gpu_thermal, gpu_power_clocks):
        items = await collect(module, ctx)
        assert all(dict(s.labels)["gpu"] != "MIG-1" for s in items if isinstance(s, Sample))
    assert events(await collect(gpu_memory, ctx)) == []
