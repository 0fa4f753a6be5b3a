"""Temperature against power: drift that power does not explain, band, oscillation, throttling, siblings."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from soakd.analysis.series import Floats


class Drift(enum.Enum):
    DRIFT = "drift"
    NO_DRIFT = "no_drift"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class ThermalQuestion:
    """One card. ``x`` seconds, ``temperature`` C, ``power`` W, of equal length; ``inlet`` C and ``fan`` % where read.

    ``warmup`` seconds are left out; ``limit`` is the drift in C/h above which it counts.
    """

    x: Floats
    temperature: Floats
    power: Floats
    inlet: Floats | None = None
    fan: Floats | None = None
    warmup: float = 900.0
    limit: float = 0.5
    name: str = ""


@dataclass(frozen=True, slots=True)
class ThermalJudgement:
    """Drift in C/h with its 98 % interval; ``resistance`` is the total C/W, ``resistances``/``taus`` its two poles."""

    verdict: Drift
    why: str
    slope: float | None = None
    slope_low: float | None = None
    slope_high: float | None = None
    smallest_detectable: float | None = None
    resistance: float | None = None
    resistances: tuple[float, ...] = ()
    taus: tuple[float, ...] = ()
    residual: float | None = None
    points: int = 0
    used_points: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class Band:
    """How long a temperature kept to a band: shares of the time that is known (0 to 1), and SD and range in C."""

    low: float
    high: float
    inside: float
    below: float
    above: float
    mean: float
    deviation: float
    least: float
    most: float
    known_s: float


@dataclass(frozen=True, slots=True)
class Oscillation:
    """Half the peak-to-peak swing (C) and its period (s); None where nothing swings more than its resolution."""

    amplitude: float
    period: float | None


@dataclass(frozen=True, slots=True)
class Throttling:
    """Seconds spent under each cause of the clock-event bitmask. A power cap is not thermal."""

    thermal_s: float
    power_cap_s: float
    hardware_slowdown_s: float
    known_s: float


@dataclass(frozen=True, slots=True)
class Sibling:
    """One card against the median of the others at the same times: C above them, and how many cards."""

    name: str
    difference: float
    low: float
    high: float
    cards: int


def judge_thermal(question: ThermalQuestion) -> ThermalJudgement:
    """Drift of one card's temperature that its power does not explain."""
    raise NotImplementedError


def band_occupancy(x: Floats, temperature: Floats, low: float, high: float) -> Band:
    raise NotImplementedError


def oscillation(x: Floats, temperature: Floats) -> Oscillation:
    raise NotImplementedError


def throttle_time(x: Floats, reasons: Floats) -> Throttling:
    raise NotImplementedError


def against_siblings(cards: Sequence[tuple[str, Floats, Floats]]) -> tuple[Sibling, ...]:
    """``cards`` are (name, x, temperature)."""
    raise NotImplementedError
