"""Compares soakd's GPU samples with what ``nvidia-smi -q -x`` says of the same card."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from soakd.model import Sample, State

MIB, MHZ = 2.0**20, 1e6
_NOT_THERE = ("n/a", "[n/a]", "not supported", "", "unknown error", "requested functionality has been deprecated")
_WORDS = {"no": 0.0, "yes": 1.0, "enabled": 1.0, "disabled": 0.0, "active": 1.0, "not active": 0.0, "none": 0.0}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric against one element. ``paths`` are tried in order, relative to the ``gpu`` element, and where
    several are joined by ``+`` they are added up. ``tolerance`` is absolute, in the metric's unit."""

    metric: str
    labels: tuple[tuple[str, str], ...]
    paths: tuple[str, ...]
    scale: float = 1.0
    tolerance: float = 0.0
    moving: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """``verdict``: agree, differ, both_unknown, only_soakd, only_smi, not_in_smi (no such element in this driver)."""

    metric: str
    labels: str
    status: str
    value: float | None
    smi: str
    verdict: str
    moving: bool


def _c(
    metric: str, labels: str, path: str, scale: float = 1.0, tolerance: float = 0.0, moving: bool = False
) -> Comparison:
    pairs = tuple((a, b) for a, _, b in (pair.partition("=") for pair in labels.split()))
    return Comparison(metric, pairs, tuple(path.split("|")), scale, tolerance, moving)


def _each(build: Callable[[str, str], Comparison], names: Iterable[str]) -> list[Comparison]:
    return [build(*pair.split(":")) for pair in names]


_ECC = (
    ("corrected", "dram", "dram_correctable"),
    ("uncorrected", "dram", "dram_uncorrectable"),
    ("corrected", "sram", "sram_correctable"),
    ("uncorrected", "sram", "sram_uncorrectable"),
)
_SRAM_PARTS = "{c}/sram_uncorrectable_parity+ecc_errors/{c}/sram_uncorrectable_secded"

COMPARISONS: tuple[Comparison, ...] = (
    _c("gpu_memory_total_bytes", "", "fb_memory_usage/total", MIB, MIB),
    _c("gpu_memory_reserved_bytes", "", "fb_memory_usage/reserved", MIB, 2 * MIB),
    _c("gpu_memory_used_bytes", "", "fb_memory_usage/used", MIB, 4 * MIB, True),
    _c("gpu_memory_free_bytes", "", "fb_memory_usage/free", MIB, 4 * MIB, True),
    _c("gpu_bar1_total_bytes", "", "bar1_memory_usage/total", MIB, MIB),
    _c("gpu_bar1_used_bytes", "", "bar1_memory_usage/used", MIB, 2 * MIB, True),
    _c("gpu_temperature_celsius", "sensor=core", "temperature/gpu_temp", 1, 2, True),
    _c("gpu_temperature_celsius", "sensor=memory", "temperature/memory_temp", 1, 2, True),
    _c("gpu_temperature_margin_celsius", "", "temperature/gpu_temp_tlimit", 1, 2, True),
    *_each(
        lambda name, tag: _c("gpu_temperature_tlimit_celsius", f"threshold={name}", f"temperature/{tag}"),
        ("shutdown:gpu_temp_max_tlimit_threshold", "slowdown:gpu_temp_slow_tlimit_threshold",
         "gpu_max:gpu_temp_max_gpu_tlimit_threshold", "mem_max:gpu_temp_max_mem_tlimit_threshold"),
    ),
    _c("gpu_power_watts", "reading=instant",
       "gpu_power_readings/instant_power_draw|gpu_power_readings/power_draw", 1, 40, True),
    _c("gpu_power_watts", "reading=average", "gpu_power_readings/average_power_draw", 1, 40, True),
    *_each(
        lambda name, tag: _c("gpu_power_limit_watts", f"limit={name}", f"gpu_power_readings/{tag}", 1, 0.01),
        ("enforced:current_power_limit", "set:requested_power_limit", "default:default_power_limit",
         "min:min_power_limit", "max:max_power_limit"),
    ),
    *_each(
        lambda name, tag: _c("gpu_clock_hertz", f"clock={name}", f"clocks/{tag}", MHZ, 400 * MHZ, True),
        ("graphics:graphics_clock", "sm:sm_clock", "memory:mem_clock", "video:video_clock"),
    ),
    *_each(
        lambda name, tag: _c("gpu_clock_max_hertz", f"clock={name}", f"max_clocks/{tag}", MHZ),
        ("graphics:graphics_clock", "sm:sm_clock", "memory:mem_clock", "video:video_clock"),
    ),
    _c("gpu_utilization_ratio", "engine=gpu", "utilization/gpu_util", 0.01, 0.3, True),
    _c("gpu_utilization_ratio", "engine=memory", "utilization/memory_util", 0.01, 0.3, True),
    _c("gpu_performance_state", "", "performance_state", 1, 0, True),
    _c("gpu_fan_speed_ratio", "", "fan_speed", 0.01, 0.05, True),
    *_each(
        lambda name, tag: _c("gpu_throttle_active", f"reason={name}", f"clocks_event_reasons/clocks_event_reason_{tag}|"
                             f"clocks_throttle_reasons/clocks_throttle_reason_{tag}", 1, 0, True),
        ("idle:gpu_idle", "sw_power_cap:sw_power_cap", "hw_slowdown:hw_slowdown", "sync_boost:sync_boost",
         "sw_thermal:sw_thermal_slowdown", "hw_thermal:hw_thermal_slowdown", "power_brake:hw_power_brake_slowdown"),
    ),
    *_each(
        lambda name, tag: _c("gpu_throttle_seconds_total", f"reason={name}",
                             f"clocks_event_reasons_counters/clocks_event_reasons_counters_{tag}", 1e-6, 2, True),
        ("sw_power_cap:sw_power_cap", "sync_boost:sync_boost", "sw_thermal:sw_therm_slowdown",
         "hw_thermal:hw_therm_slowdown", "power_brake:hw_power_brake"),
    ),
    _c("gpu_ecc_mode", "when=current", "ecc_mode/current_ecc"),
    _c("gpu_ecc_mode", "when=pending", "ecc_mode/pending_ecc"),
    *(
        _c("gpu_ecc_location_errors_total", f"counter={c} error={e} location={loc}",
           f"ecc_errors/{c}/{tag}|ecc_errors/{_SRAM_PARTS.format(c=c)}")
        for c in ("volatile", "aggregate") for e, loc, tag in _ECC
    ),
    _c("gpu_remapped_rows_total", "error=corrected", "remapped_rows/remapped_row_corr"),
    _c("gpu_remapped_rows_total", "error=uncorrected", "remapped_rows/remapped_row_unc"),
    _c("gpu_row_remap_pending", "", "remapped_rows/remapped_row_pending"),
    _c("gpu_row_remap_failure", "", "remapped_rows/remapped_row_failure"),
    *_each(
        lambda name, tag: _c("gpu_row_remap_banks", f"spare={name}",
                             f"remapped_rows/row_remapper_histogram/row_remapper_histogram_{tag}"),
        ("max:max", "high:high", "partial:partial", "low:low", "none:none"),
    ),
    _c("gpu_retired_pages_total", "cause=double_bit", "retired_pages/double_bit_retirement/retired_count"),
    _c("gpu_retired_pages_pending", "", "retired_pages/pending_retirement|retired_pages/pending_blacklist"),
    _c("gpu_recovery_action", "", "gpu_recovery_action"),
    _c("gpu_pcie_generation", "which=current", "pci/pci_gpu_link_info/pcie_gen/current_link_gen", 1, 0, True),
    _c("gpu_pcie_generation", "which=max", "pci/pci_gpu_link_info/pcie_gen/max_link_gen"),
    _c("gpu_pcie_generation", "which=max_card", "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen|"
       "pci/pci_gpu_link_info/pcie_gen/device_max_link_gen"),
    _c("gpu_pcie_width_lanes", "which=current", "pci/pci_gpu_link_info/link_widths/current_link_width"),
    _c("gpu_pcie_width_lanes", "which=max", "pci/pci_gpu_link_info/link_widths/max_link_width"),
    _c("pcie_replays_total", "", "pci/replay_counter"),
    _c("pcie_replay_rollovers_total", "", "pci/replay_rollover_counter"),
)  # fmt: skip


def compare(samples: Iterable[Sample], gpu: ET.Element) -> list[Row]:
    """One row per comparison, in their order."""
    found = {(s.metric.name, s.labels): s for s in samples}
    return [_row(c, [s for (name, _), s in found.items() if name == c.metric], gpu) for c in COMPARISONS]


def _row(comparison: Comparison, candidates: list[Sample], gpu: ET.Element) -> Row:
    sample = next((s for s in candidates if set(comparison.labels) <= set(s.labels)), None)
    text = _text(gpu, comparison.paths)
    status = sample.state.value if sample is not None else "not_collected"
    value = sample.value if sample is not None else None
    told = parse(text) if text is not None else None
    if text is None:
        verdict = "not_in_smi"
    elif told is None:
        verdict = "both_unknown" if sample is None or sample.state is not State.OK else "only_soakd"
    elif value is None:
        verdict = "only_smi"
    else:
        verdict = "agree" if abs(value - told * comparison.scale) <= comparison.tolerance + 1e-9 else "differ"
    labels = " ".join(f"{a}={b}" for a, b in comparison.labels)
    return Row(comparison.metric, labels, status, value, text or "-", verdict, comparison.moving)


def _text(gpu: ET.Element, paths: Iterable[str]) -> str | None:
    for path in paths:
        parts = [gpu.findtext(part) for part in path.split("+")]
        numbers = [parse(part) for part in parts if part is not None]
        if len(parts) == 1 and parts[0] is not None:
            return parts[0].strip()
        if len(parts) > 1 and len(numbers) == len(parts) and all(n is not None for n in numbers):
            return str(sum(n for n in numbers if n is not None))
    return None


def parse(text: str) -> float | None:
    """``143771 MiB``, ``16x``, ``P0``, ``-8 C``, ``Not Active``: the number; None for N/A in any form (never 0)."""
    word = text.strip().lower()
    if word in _NOT_THERE:
        return None
    if word in _WORDS:
        return _WORDS[word]
    match = re.fullmatch(r"p?(-?\d+(?:\.\d+)?)\s*[a-z%()/]*", word)
    return float(match.group(1)) if match else None
