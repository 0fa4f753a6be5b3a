"""A simulated card's reading as NVML answers it: keys and shapes of ``soakd.nvml.queries``."""

from __future__ import annotations

from soakd.nvml.device import FAST, GPU_IS_LOST, NOT_SUPPORTED, SUCCESS, Answer
from soakd.nvml.queries import calls, fields
from soakd.rehearsal.hardware import (
    MEMORY_MAX_C,
    POWER_LIMIT_W,
    RESERVED_BYTES,
    SHUTDOWN_C,
    SLOWDOWN_C,
    Reading,
)
from soakd.rehearsal.scenarios import CARD_BYTES


def answers_of(reading: Reading, tier: str) -> dict[str, Answer]:
    """Every key of the tier; what a V100 doesn't have is NotSupported, and a lost card answers GPU_IS_LOST to all."""
    keys = [*(query.key for query in calls(tier)), *fields(tier)]
    if reading.lost:
        return dict.fromkeys(keys, Answer(GPU_IS_LOST))
    known = _fast(reading) if tier == FAST else _slow(reading)
    return {key: Answer(SUCCESS, known[key]) if key in known else Answer(NOT_SUPPORTED) for key in keys}


def _fast(r: Reading) -> dict[str, object]:
    return {
        "memory": {
            "version": 2,
            "total": CARD_BYTES,
            "reserved": RESERVED_BYTES,
            "used": r.used_bytes,
            "free": r.free_bytes,
        },
        "temperature_gpu": round(r.temperature_c),
        "utilization": {"gpu": r.gpu_percent, "memory": r.memory_percent},
        "power_usage": round(r.power_w * 1000),
        "pstate": 0,
        "throttle_reasons": r.throttle,
        "clock_graphics": r.clock_sm_mhz,
        "clock_sm": r.clock_sm_mhz,
        "clock_memory": 877,
        "clock_video": 1372,
        "pcie_generation": r.pcie_generation,
        "pcie_width": 16,
        "DEV_MEMORY_TEMP": round(r.memory_temperature_c),
        "DEV_ECC_SBE_VOL_TOTAL": r.ecc_corrected,
        "DEV_ECC_DBE_VOL_TOTAL": r.ecc_uncorrected,
        "DEV_ECC_SBE_AGG_TOTAL": r.ecc_corrected_before + r.ecc_corrected,
        "DEV_ECC_DBE_AGG_TOTAL": r.ecc_uncorrected,
        "DEV_RETIRED_PENDING": int(r.ecc_uncorrected > 0),
        "DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP": round(r.power_cap_s * 1e9),
        "DEV_CLOCKS_EVENT_REASON_SYNC_BOOST": 0,
        "DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN": 0,
        "DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN": 0,
        "DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN": 0,
        "DEV_PCIE_REPLAY_COUNTER": 3,
        "DEV_PCIE_COUNT_TX_BYTES": r.pcie_tx_bytes,
        "DEV_PCIE_COUNT_RX_BYTES": r.pcie_rx_bytes,
    }


def _slow(r: Reading) -> dict[str, object]:
    limit = round(POWER_LIMIT_W * 1000)
    known: dict[str, object] = {
        "bar1": {"bar1Total": CARD_BYTES, "bar1Used": 2621440, "bar1Free": CARD_BYTES - 2621440},
        "compute_processes": [] if r.pid is None else [{"pid": r.pid, "used": r.process_bytes}],
        "graphics_processes": [],
        "ecc_mode": {"current": 1, "pending": 1},
        "retired_pages_sbe": 0,
        "retired_pages_dbe": r.ecc_uncorrected,
        "retired_pages_pending": int(r.ecc_uncorrected > 0),
        "energy": round(r.energy_j * 1000),
        "power_limit": limit,
        "power_limit_set": limit,
        "power_limit_default": limit,
        "power_limit_range": {"min": 150_000, "max": limit},
        "clock_max_graphics": 1530,
        "clock_max_sm": 1530,
        "clock_max_memory": 877,
        "clock_max_video": 1372,
        "compute_mode": 0,
        "persistence_mode": 1,
        "pcie_generation_max": 3,
        "pcie_generation_max_card": 3,
        "pcie_width_max": 16,
        "violation_power": {"referenceTime": round(r.at_s * 1e6), "violationTime": round(r.power_cap_s * 1e9)},
        "violation_thermal": {"referenceTime": round(r.at_s * 1e6), "violationTime": 0},
        "vbios_version": "SIMULATED",
        "driver_version": "SIMULATED",
        "nvml_version": "SIMULATED",
        "threshold_shutdown": SHUTDOWN_C,
        "threshold_slowdown": SLOWDOWN_C,
        "threshold_mem_max": MEMORY_MAX_C,
        "threshold_gpu_max": SLOWDOWN_C - 4,
        "DEV_PCIE_REPLAY_ROLLOVER_COUNTER": 0,
        "DEV_PCIE_L0_TO_RECOVERY_COUNTER": 41,
        "DEV_PCIE_COUNT_CORRECTABLE_ERRORS": 0,
        "DEV_PCIE_COUNT_NAKS_RECEIVED": 1,
        "DEV_PCIE_COUNT_NAKS_SENT": 2,
        "DEV_PCIE_COUNT_BAD_TLP": 2,
        "DEV_PCIE_COUNT_NON_FATAL_ERROR": 0,
        "DEV_PCIE_COUNT_FATAL_ERROR": 0,
        "DEV_RETIRED_SBE": 0,
        "DEV_RETIRED_DBE": r.ecc_uncorrected,
        "DEV_POWER_MIN_LIMIT": 150_000,
        "DEV_POWER_MAX_LIMIT": limit,
    }
    for error, count, before in (
        ("corrected", r.ecc_corrected, r.ecc_corrected_before),
        ("uncorrected", r.ecc_uncorrected, 0),
    ):
        for place in ("l1_cache", "l2_cache", "dram", "register_file"):
            own = count if place == "dram" else 0
            known[f"ecc_{error}_volatile_{place}"] = own
            known[f"ecc_{error}_aggregate_{place}"] = own + (before if place == "dram" else 0)
    return known
