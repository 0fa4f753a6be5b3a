"""Power, energy and limits, clocks, why the card throttles and for how long, utilisation, performance state, fan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from soakd.counters import Increase
from soakd.fields import ConfigModel
from soakd.model import Kind, Labels, Metric, Sample, State
from soakd.nvml.readings import CardReading, Fresh, no_gpu, readings
from soakd.ports import Collector, CollectorContext, Item

KIND = "gpu_power_clocks"
INTERVAL_S = 1.0
DEADLINE_S = 8.0

_GPU = ("bdf", "gpu")
_NO_YES = (("no", 0), ("yes", 1))
POWER = Metric(
    "gpu_power_watts", "watts", Kind.GAUGE,
    "Power of the card: at this instant (may pass the limit for moments) and averaged over about a second.",
    "fields NVML_FI_DEV_POWER_INSTANT, NVML_FI_DEV_POWER_AVERAGE; nvmlDeviceGetPowerUsage", (*_GPU, "reading"),
)  # fmt: skip
ENERGY = Metric(
    "gpu_energy_joules_total", "joules", Kind.COUNTER, "Energy since the driver was loaded.",
    "nvmlDeviceGetTotalEnergyConsumption", _GPU,
)  # fmt: skip
LIMIT = Metric(
    "gpu_power_limit_watts", "watts", Kind.GAUGE, "Power limit: enforced now, set, by default, and what can be set.",
    "nvmlDeviceGetEnforcedPowerLimit, nvmlDeviceGetPowerManagement*", (*_GPU, "limit"),
)  # fmt: skip
CLOCK = Metric("gpu_clock_hertz", "hertz", Kind.GAUGE, "Clock now.", "nvmlDeviceGetClockInfo", (*_GPU, "clock"))
CLOCK_MAX = Metric(
    "gpu_clock_max_hertz", "hertz", Kind.GAUGE, "Highest clock the card can run.", "nvmlDeviceGetMaxClockInfo",
    (*_GPU, "clock"),
)  # fmt: skip
REASON = Metric(
    "gpu_throttle_active", "", Kind.STATE,
    "Whether this keeps the clocks down at the moment. A software power cap at full load is normal.",
    "nvmlDeviceGetCurrentClocksEventReasons", (*_GPU, "reason"), _NO_YES,
)  # fmt: skip
REASON_SECONDS = Metric(
    "gpu_throttle_seconds_total", "seconds", Kind.COUNTER,
    "Time this kept the clocks down, as the driver counts it: misses nothing between two readings.",
    "fields NVML_FI_DEV_CLOCKS_EVENT_REASON_*, ids taken from the installed pynvml by name", (*_GPU, "reason"),
)  # fmt: skip
COUNTERS_AGREE = Metric(
    "gpu_throttle_counters_agree", "", Kind.STATE,
    "Whether the thermal time counters agree with nvmlDeviceGetViolationStatus, so that a field id that means "
    "something else in this driver is noticed.",
    "change of both since soakd started", _GPU, (("no", 0), ("yes", 1)),
)  # fmt: skip
UTILISATION = Metric(
    "gpu_utilization_ratio", "ratio", Kind.GAUGE,
    "Share of the last sampling period in which a kernel ran (gpu) or memory was read or written (memory).",
    "nvmlDeviceGetUtilizationRates", (*_GPU, "engine"),
)  # fmt: skip
PSTATE = Metric(
    "gpu_performance_state", "", Kind.STATE, "P0 (fastest) to P15.", "nvmlDeviceGetPerformanceState", _GPU,
    (*((f"P{n}", n) for n in range(16)), ("unknown", 32)),
)  # fmt: skip
FAN = Metric(
    "gpu_fan_speed_ratio", "ratio", Kind.GAUGE, "Fan speed asked for; unsupported on cards without a fan.",
    "nvmlDeviceGetFanSpeed", _GPU,
)  # fmt: skip
METRICS = (
    POWER, ENERGY, LIMIT, CLOCK, CLOCK_MAX, REASON, REASON_SECONDS, COUNTERS_AGREE, UTILISATION, PSTATE, FAN,
)  # fmt: skip

REASONS = (
    ("idle", 0x1), ("application_clocks", 0x2), ("sw_power_cap", 0x4), ("hw_slowdown", 0x8), ("sync_boost", 0x10),
    ("sw_thermal", 0x20), ("hw_thermal", 0x40), ("power_brake", 0x80), ("display_clock", 0x100),
)  # fmt: skip
_REASON_FIELDS = (
    ("sw_power_cap", "DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP"),
    ("sync_boost", "DEV_CLOCKS_EVENT_REASON_SYNC_BOOST"),
    ("sw_thermal", "DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN"),
    ("hw_thermal", "DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN"),
    ("power_brake", "DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN"),
)
_THERMAL_FIELDS = ("DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN", "DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN")
_POWER = (("instant", "DEV_POWER_INSTANT"), ("average", "DEV_POWER_AVERAGE"), ("usage", "power_usage"))
_CLOCKS = ("graphics", "sm", "memory", "video")
_NS = 1e-9
_TOLERANCE_S = 1.0


class Config(ConfigModel):
    """Nothing to set."""


@dataclass(slots=True)
class ThermalCheck:
    """Change of the driver's two accounts of thermal throttling since the first reading, in seconds."""

    fields: Increase = field(default_factory=Increase)
    violation: Increase = field(default_factory=Increase)

    def agree(self, field_ns: float, violation_ns: float) -> bool:
        """The field counters may count what the policy does not (software slowdown is none on some cards), but they
        can't grow by more than the tolerance and 10 % while the policy counter stands, nor the other way round."""
        self.fields.add(field_ns * _NS)
        self.violation.add(violation_ns * _NS)
        larger = max(self.fields.total, self.violation.total)
        smaller = min(self.fields.total, self.violation.total)
        return larger - smaller <= max(_TOLERANCE_S, 0.1 * larger) or smaller > 0.1 * larger


class GpuPowerClocks:
    """Fast tier on each reading; limits, maxima, energy, fan and the check of the counters with the slow tier."""

    def __init__(self, context: CollectorContext) -> None:
        self._context = context
        self._fresh = Fresh()
        self._checks: dict[Labels, ThermalCheck] = {}

    async def collect(self) -> Sequence[Item]:
        fast = [card for card in await readings(self._context.gpus, "fast") if not card.mig]
        if not fast:
            return no_gpu(POWER, self._context.clock.wall_ns(), self._context.gpus)
        items = [sample for card in fast for sample in fast_samples(card)]
        by_gpu = {card.reply.gpu.labels: card for card in fast}
        for card in await readings(self._context.gpus, "slow"):
            if not card.mig and self._fresh(card.reply):
                items += slow_samples(card)
                items.append(self._check(card, by_gpu.get(card.reply.gpu.labels)))
        return items

    async def close(self) -> None:
        return

    def _check(self, slow: CardReading, fast: CardReading | None) -> Sample:
        violation = slow.number("violation_thermal", "violationTime")
        times = [] if fast is None else [fast.number(name) for name in _THERMAL_FIELDS]
        known = [t for t in times if t is not None]
        if violation is None or not known:
            return slow.unknown(COUNTERS_AGREE, _why_unchecked(slow), "one of the two accounts is not there")
        check = self._checks.setdefault(slow.reply.gpu.labels, ThermalCheck())
        return slow.value(COUNTERS_AGREE, 1 if check.agree(max(known), violation) else 0)


def _why_unchecked(slow: CardReading) -> State:
    state = slow.state("violation_thermal")
    return State.UNSUPPORTED if state is State.OK else state


def fast_samples(card: CardReading) -> list[Sample]:
    """Power, clocks, throttling, utilisation, performance state."""
    samples = [card.sample(POWER, key, scale=1e-3, extra=(("reading", name),)) for name, key in _POWER]
    samples += [card.sample(CLOCK, f"clock_{name}", scale=1e6, extra=(("clock", name),)) for name in _CLOCKS]
    mask = card.number("throttle_reasons")
    for name, bit in REASONS:
        tags = (("reason", name),)
        if mask is None:
            samples.append(card.sample(REASON, "throttle_reasons", extra=tags))
        else:
            samples.append(card.value(REASON, 1 if int(mask) & bit else 0, tags))
    samples += [card.sample(REASON_SECONDS, key, scale=_NS, extra=(("reason", name),)) for name, key in _REASON_FIELDS]
    samples += [
        card.sample(UTILISATION, "utilization", engine, 0.01, (("engine", engine),)) for engine in ("gpu", "memory")
    ]
    samples.append(card.sample(PSTATE, "pstate"))
    return samples


def slow_samples(card: CardReading) -> list[Sample]:
    """Energy, limits, maxima and fan. A card without fans says so in its count; NVML's speed is then unsupported."""
    samples = [card.sample(ENERGY, "energy", scale=1e-3)]
    for name, key, part in (
        ("enforced", "power_limit", ""), ("set", "power_limit_set", ""), ("default", "power_limit_default", ""),
        ("min", "power_limit_range", "min"), ("max", "power_limit_range", "max"),
    ):  # fmt: skip
        samples.append(card.sample(LIMIT, key, part, 1e-3, (("limit", name),)))
    samples += [card.sample(CLOCK_MAX, f"clock_max_{name}", scale=1e6, extra=(("clock", name),)) for name in _CLOCKS]
    samples.append(card.sample(FAN, "fan_speed", scale=0.01))
    return samples


def build(config: Config, context: CollectorContext) -> Collector:
    return GpuPowerClocks(context)
