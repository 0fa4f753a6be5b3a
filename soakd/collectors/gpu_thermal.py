"""Temperatures of core and memory, the margin to slowdown, every threshold, and time in configured bands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from soakd.fields import ConfigModel, Seconds
from soakd.model import Kind, Labels, Metric, Sample
from soakd.nvml.bands import SIDES, Band, BandClock, SwingWindow
from soakd.nvml.readings import CardReading, Fresh, no_gpu, readings
from soakd.ports import Collector, CollectorContext, Item

KIND = "gpu_thermal"
INTERVAL_S = 1.0
DEADLINE_S = 8.0

_GPU = ("bdf", "gpu")
TEMPERATURE = Metric(
    "gpu_temperature_celsius", "celsius", Kind.GAUGE, "Temperature of the core or of the memory.",
    "nvmlDeviceGetTemperature, field NVML_FI_DEV_MEMORY_TEMP", (*_GPU, "sensor"),
)  # fmt: skip
MARGIN = Metric(
    "gpu_temperature_margin_celsius", "celsius", Kind.GAUGE,
    "Degrees left until the card slows down by itself.", "nvmlDeviceGetMarginTemperature", _GPU,
)  # fmt: skip
THRESHOLD = Metric(
    "gpu_temperature_threshold_celsius", "celsius", Kind.GAUGE, "Temperature at which the card acts.",
    "nvmlDeviceGetTemperatureThreshold", (*_GPU, "threshold"),
)  # fmt: skip
TLIMIT = Metric(
    "gpu_temperature_tlimit_celsius", "celsius", Kind.GAUGE,
    "Margin (may be negative) at which the card acts; the form newer cards use instead of thresholds.",
    "field NVML_FI_DEV_TEMPERATURE_*_TLIMIT", (*_GPU, "threshold"),
)  # fmt: skip
BAND = Metric(
    "gpu_temperature_band_seconds_total", "seconds", Kind.COUNTER,
    "Time of the core's temperature below, in and above a band; unknown where it was not read.",
    "gpu_temperature_celsius", (*_GPU, "band", "side"),
)  # fmt: skip
LOW = Metric(
    "gpu_temperature_window_min_celsius", "celsius", Kind.GAUGE, "Lowest temperature of the last window.",
    "gpu_temperature_celsius", (*_GPU, "sensor"),
)  # fmt: skip
HIGH = Metric(
    "gpu_temperature_window_max_celsius", "celsius", Kind.GAUGE, "Highest temperature of the last window.",
    "gpu_temperature_celsius", (*_GPU, "sensor"),
)  # fmt: skip
AMPLITUDE = Metric(
    "gpu_temperature_window_amplitude_celsius", "celsius", Kind.GAUGE,
    "Highest less lowest temperature of the last window: 78 +/- 2 C is an amplitude of 4.",
    "gpu_temperature_celsius", (*_GPU, "sensor"),
)  # fmt: skip
METRICS = (TEMPERATURE, MARGIN, THRESHOLD, TLIMIT, BAND, LOW, HIGH, AMPLITUDE)

_SENSORS = (("core", "temperature_gpu"), ("memory", "DEV_MEMORY_TEMP"))
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
_TLIMITS = ("shutdown", "slowdown", "mem_max", "gpu_max")


class BandConfig(ConfigModel):
    """A band as people write it: 78 +/- 2 C."""

    name: str = Field(min_length=1, max_length=40)
    centre_celsius: float
    plus_minus_celsius: float = Field(gt=0)


_DEFAULT_BANDS = (
    BandConfig(name="78+-2", centre_celsius=78, plus_minus_celsius=2),
    BandConfig(name="85+-5", centre_celsius=85, plus_minus_celsius=5),
)


class Config(ConfigModel):
    """``window`` is that of minimum, maximum and amplitude; ``max_gap`` the longest pause that counts as band time."""

    bands: Annotated[tuple[BandConfig, ...], Field(max_length=8)] = _DEFAULT_BANDS
    window: Seconds = 600.0
    max_gap: Seconds = 30.0


class GpuThermal:
    """Keeps, per card, one clock per band and one window per sensor."""

    def __init__(self, config: Config, context: CollectorContext) -> None:
        self._bands = tuple(Band.around(b.name, b.centre_celsius, b.plus_minus_celsius) for b in config.bands)
        self._window_s = config.window
        self._max_gap_s = config.max_gap
        self._context = context
        self._fresh = Fresh()
        self._clocks: dict[Labels, tuple[BandClock, ...]] = {}
        self._windows: dict[tuple[Labels, str], SwingWindow] = {}

    async def collect(self) -> Sequence[Item]:
        fast = [card for card in await readings(self._context.gpus, "fast") if not card.mig]
        if not fast:
            return no_gpu(TEMPERATURE, self._context.clock.wall_ns(), self._context.gpus)
        now_ns = self._context.clock.monotonic_ns()
        items = [sample for card in fast for sample in self._card(card, now_ns)]
        for card in await readings(self._context.gpus, "slow"):
            if not card.mig and self._fresh(card.reply):
                items += threshold_samples(card)
        return items

    async def close(self) -> None:
        return

    def _card(self, card: CardReading, now_ns: int) -> list[Sample]:
        samples = [card.sample(MARGIN, "temperature_margin")]
        gpu = card.reply.gpu.labels
        for sensor, key in _SENSORS:
            tags = (("sensor", sensor),)
            samples.append(card.sample(TEMPERATURE, key, extra=tags))
            value = card.number(key)
            if value is not None:
                window = self._windows.setdefault((gpu, sensor), SwingWindow(self._window_s))
                swing = window.add(value, now_ns)
                samples.append(card.value(LOW, swing.low, tags))
                samples.append(card.value(HIGH, swing.high, tags))
                samples.append(card.value(AMPLITUDE, swing.amplitude, tags))
            else:
                samples += [card.sample(metric, key, extra=tags) for metric in (LOW, HIGH, AMPLITUDE)]
        if gpu not in self._clocks:
            self._clocks[gpu] = tuple(BandClock(band, self._max_gap_s) for band in self._bands)
        for clock in self._clocks[gpu]:
            clock.add(card.number("temperature_gpu"), now_ns)
            for side in SIDES:
                samples.append(card.value(BAND, clock.seconds[side], (("band", clock.band.name), ("side", side))))
        return samples


def threshold_samples(card: CardReading) -> list[Sample]:
    samples = [card.sample(THRESHOLD, f"threshold_{name}", extra=(("threshold", name),)) for name in _THRESHOLDS]
    for name in _TLIMITS:
        samples.append(card.sample(TLIMIT, f"DEV_TEMPERATURE_{name.upper()}_TLIMIT", extra=(("threshold", name),)))
    return samples


def build(config: Config, context: CollectorContext) -> Collector:
    return GpuThermal(config, context)
