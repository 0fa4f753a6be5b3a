"""The keys of the answers, by tier: what each is, its unit and its shape. No imports, so that a worker stays small.

A simulated device answers these keys. A key that a device does not answer reads as ABSENT.
Fields of ``nvmlDeviceGetFieldValues`` go by their names without ``NVML_FI_``; their numbers are looked up in the
installed pynvml, because the same number means another thing in another release.
"""

from __future__ import annotations

from typing import NamedTuple


class Query(NamedTuple):
    """``function``/``args`` of pynvml; ``names`` are the parts of a tuple or structure, in order, to be kept.

    ``shape`` is ``count`` (the length of a list), ``processes``, or empty (a number, a text or the named parts).
    ``mig`` queries are asked of MIG instances as well.
    """

    key: str
    function: str
    args: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    mig: bool = False
    shape: str = ""


_THRESHOLDS = (
    "shutdown",
    "slowdown",
    "mem_max",
    "gpu_max",
    "acoustic_min",
    "acoustic_curr",
    "acoustic_max",
    "gps_curr",
)
LOCATIONS = ("l1_cache", "l2_cache", "dram", "register_file", "texture_memory", "texture_shm", "cbu", "sram")
"""nvmlMemoryLocation_t 0 to 7. DRAM and SRAM answer on Ampere and later, the caches on earlier cards."""
ERROR_TYPES = ("corrected", "uncorrected")
COUNTER_TYPES = ("volatile", "aggregate")

FAST_CALLS: tuple[Query, ...] = (
    # bytes; {"version": 2, "total", "reserved", "used", "free"}, or version 1 without "reserved" (then inside "used")
    Query("memory", "nvmlDeviceGetMemoryInfo", mig=True),
    Query("temperature_gpu", "nvmlDeviceGetTemperature", (0,)),  # C
    Query("temperature_margin", "nvmlDeviceGetMarginTemperature"),  # C below the slowdown limit
    Query("utilization", "nvmlDeviceGetUtilizationRates", (), ("gpu", "memory")),  # percent
    Query("power_usage", "nvmlDeviceGetPowerUsage"),  # mW
    Query("pstate", "nvmlDeviceGetPerformanceState"),  # 0 to 15, 32 unknown
    Query("throttle_reasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),  # bit mask
    Query("clock_graphics", "nvmlDeviceGetClockInfo", (0,)),  # MHz
    Query("clock_sm", "nvmlDeviceGetClockInfo", (1,)),
    Query("clock_memory", "nvmlDeviceGetClockInfo", (2,)),
    Query("clock_video", "nvmlDeviceGetClockInfo", (3,)),
    Query("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),  # 1 to 6
    Query("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),  # lanes
)

FAST_FIELDS: tuple[str, ...] = (
    "DEV_MEMORY_TEMP",  # C
    "DEV_POWER_INSTANT",  # mW
    "DEV_POWER_AVERAGE",  # mW
    "DEV_ECC_SBE_VOL_TOTAL",
    "DEV_ECC_DBE_VOL_TOTAL",
    "DEV_ECC_SBE_AGG_TOTAL",
    "DEV_ECC_DBE_AGG_TOTAL",
    "DEV_REMAPPED_PENDING",
    "DEV_REMAPPED_FAILURE",
    "DEV_RETIRED_PENDING",
    "DEV_GET_GPU_RECOVERY_ACTION",  # nvmlDeviceGpuRecoveryAction_t
    "DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP",  # ns
    "DEV_CLOCKS_EVENT_REASON_SYNC_BOOST",  # ns
    "DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN",  # ns
    "DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN",  # ns
    "DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN",  # ns
    "DEV_PCIE_REPLAY_COUNTER",
    "DEV_PCIE_COUNT_TX_BYTES",  # wraps at 2**32
    "DEV_PCIE_COUNT_RX_BYTES",  # wraps at 2**32
)

SLOW_CALLS: tuple[Query, ...] = (
    Query("bar1", "nvmlDeviceGetBAR1MemoryInfo", (), ("bar1Total", "bar1Used", "bar1Free")),  # bytes
    # [{"pid", "used"}]; used is bytes, or None where NVML can't tell
    Query("compute_processes", "nvmlDeviceGetComputeRunningProcesses", mig=True, shape="processes"),
    Query("graphics_processes", "nvmlDeviceGetGraphicsRunningProcesses", mig=True, shape="processes"),
    Query("ecc_mode", "nvmlDeviceGetEccMode", (), ("current", "pending")),
    Query("remapped_rows", "nvmlDeviceGetRemappedRows", (), ("corrected", "uncorrected", "pending", "failure")),
    Query("remap_histogram", "nvmlDeviceGetRowRemapperHistogram", (), ("max", "high", "partial", "low", "none")),
    Query(
        "retired_pages_sbe", "nvmlDeviceGetRetiredPages", (0,), shape="count"
    ),  # a count (the addresses are not kept)
    Query("retired_pages_dbe", "nvmlDeviceGetRetiredPages", (1,), shape="count"),
    Query("retired_pages_pending", "nvmlDeviceGetRetiredPagesPendingStatus"),
    Query("energy", "nvmlDeviceGetTotalEnergyConsumption"),  # mJ since the driver was loaded
    Query("power_limit", "nvmlDeviceGetEnforcedPowerLimit"),  # mW
    Query("power_limit_set", "nvmlDeviceGetPowerManagementLimit"),  # mW
    Query("power_limit_default", "nvmlDeviceGetPowerManagementDefaultLimit"),  # mW
    Query("power_limit_range", "nvmlDeviceGetPowerManagementLimitConstraints", (), ("min", "max")),  # mW
    Query("clock_max_graphics", "nvmlDeviceGetMaxClockInfo", (0,)),  # MHz
    Query("clock_max_sm", "nvmlDeviceGetMaxClockInfo", (1,)),
    Query("clock_max_memory", "nvmlDeviceGetMaxClockInfo", (2,)),
    Query("clock_max_video", "nvmlDeviceGetMaxClockInfo", (3,)),
    Query("fan_count", "nvmlDeviceGetNumFans"),
    Query("fan_speed", "nvmlDeviceGetFanSpeed"),  # percent of maximum
    Query("compute_mode", "nvmlDeviceGetComputeMode"),
    Query("persistence_mode", "nvmlDeviceGetPersistenceMode"),
    Query("mig_mode", "nvmlDeviceGetMigMode", (), ("current", "pending")),
    Query("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration"),  # of the card and the path
    Query("pcie_generation_max_card", "nvmlDeviceGetGpuMaxPcieLinkGeneration"),
    Query("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
    # {"referenceTime": us, "violationTime": ns}: what the throttle counters are checked against
    Query("violation_power", "nvmlDeviceGetViolationStatus", (0,), ("referenceTime", "violationTime")),
    Query("violation_thermal", "nvmlDeviceGetViolationStatus", (1,), ("referenceTime", "violationTime")),
    Query("vbios_version", "nvmlDeviceGetVbiosVersion"),
    Query("driver_version", "nvmlSystemGetDriverVersion"),
    Query("nvml_version", "nvmlSystemGetNVMLVersion"),
    *(Query(f"threshold_{name}", "nvmlDeviceGetTemperatureThreshold", (i,)) for i, name in enumerate(_THRESHOLDS)),
    *(
        Query(f"ecc_{error}_{counter}_{location}", "nvmlDeviceGetMemoryErrorCounter", (e, c, i))
        for e, error in enumerate(ERROR_TYPES)
        for c, counter in enumerate(COUNTER_TYPES)
        for i, location in enumerate(LOCATIONS)
    ),
)

SLOW_FIELDS: tuple[str, ...] = (
    "DEV_PCIE_REPLAY_ROLLOVER_COUNTER",
    "DEV_PCIE_L0_TO_RECOVERY_COUNTER",
    "DEV_PCIE_COUNT_CORRECTABLE_ERRORS",
    "DEV_PCIE_COUNT_NAKS_RECEIVED",
    "DEV_PCIE_COUNT_RECEIVER_ERROR",
    "DEV_PCIE_COUNT_BAD_TLP",
    "DEV_PCIE_COUNT_NAKS_SENT",
    "DEV_PCIE_COUNT_BAD_DLLP",
    "DEV_PCIE_COUNT_NON_FATAL_ERROR",
    "DEV_PCIE_COUNT_FATAL_ERROR",
    "DEV_PCIE_COUNT_UNSUPPORTED_REQ",
    "DEV_PCIE_COUNT_LCRC_ERROR",
    "DEV_PCIE_COUNT_LANE_ERROR",
    "DEV_REMAPPED_COR",
    "DEV_REMAPPED_UNC",
    "DEV_RETIRED_SBE",
    "DEV_RETIRED_DBE",
    "DEV_TEMPERATURE_SHUTDOWN_TLIMIT",
    "DEV_TEMPERATURE_SLOWDOWN_TLIMIT",
    "DEV_TEMPERATURE_MEM_MAX_TLIMIT",
    "DEV_TEMPERATURE_GPU_MAX_TLIMIT",
    "DEV_POWER_MIN_LIMIT",
    "DEV_POWER_MAX_LIMIT",
)

MIG_KEYS: tuple[str, ...] = tuple(q.key for q in (*FAST_CALLS, *SLOW_CALLS) if q.mig)
"""What is asked of a MIG instance; everything else belongs to the card."""


def calls(tier: str) -> tuple[Query, ...]:
    """``tier`` is ``fast`` or ``slow``."""
    return FAST_CALLS if tier == "fast" else SLOW_CALLS


def fields(tier: str) -> tuple[str, ...]:
    return FAST_FIELDS if tier == "fast" else SLOW_FIELDS
