"""The question put to a series of readings and the answer to it: plain frozen values, free of I/O."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NVML_PAGE_BYTES = 2.0 * 2**20
"""NVML's memory figures move in steps of 2 MiB (measured on H200)."""


class Leak(enum.Enum):
    LEAK = "leak"
    NO_LEAK = "no_leak"
    INCONCLUSIVE = "inconclusive"


class Shape(enum.Enum):
    """What the series looks like over the run. UNKNOWN is what too few readings give."""

    FLAT = "flat"
    WARM_UP = "warm-up"
    LINEAR = "linear"
    STAIRCASE = "staircase"
    SAWTOOTH = "sawtooth"
    STEP = "step"
    RESTART = "restart"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SeriesQuestion:
    """One series to be judged.

    ``x`` is seconds where ``per`` is ``hour``, otherwise a count of work (``request``, ``token``, ...), and ``y`` the
    reading; arrays of equal length in any order, NaN and duplicates allowed. ``page`` is the quantum of ``y`` (2 MiB
    for NVML, 0 for none): growth of a page or less over the run is flat. ``total`` is the size of what fills up (the
    card, the host), ``cap`` a declared limit of a cache within which growth is by design, ``limit`` the largest growth
    allowed per ``per`` in units of ``y``. ``load`` is a covariate of the same length (requests running, tokens held),
    ``starts`` the ``x`` at which a process started anew, ``warmup`` how much of ``x`` to leave out at the beginning
    (None: ten minutes, or a quarter of a shorter run).
    """

    x: Floats
    y: Floats
    per: str = "hour"
    page: float = 0.0
    total: float | None = None
    cap: float | None = None
    limit: float | None = None
    load: Floats | None = None
    starts: tuple[float, ...] = ()
    warmup: float | None = None
    name: str = ""
    unit: str = "bytes"


@dataclass(frozen=True, slots=True)
class Jump:
    """A sudden sustained change of level: ``size`` in units of ``y``, at ``x``."""

    x: float
    size: float


@dataclass(frozen=True, slots=True)
class Segment:
    """One lifetime of a process, from its start to its end, and the growth found in it (per ``per``)."""

    start: float
    end: float
    points: int
    slope: float | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the judgement rests on. ``line_x``/``line_y`` are the fitted line's ends, for a chart.

    ``tau`` is the time constant of a warm-up (units of ``x``), ``rho`` the correlation of neighbouring blocks of width
    ``block``, ``noise`` the standard deviation of the residual, ``p_value`` one-sided for growth.
    ``jump_rate`` counts upward jumps per ``per`` in the last half; ``jumps_due`` how many records of a steady demand
    would have given there.
    """

    jumps: tuple[Jump, ...] = ()
    segments: tuple[Segment, ...] = ()
    tau: float | None = None
    rho: float | None = None
    noise: float | None = None
    block: float | None = None
    p_value: float | None = None
    judged_from: float | None = None
    judged_to: float | None = None
    growth: float | None = None
    jump_rate: float | None = None
    jumps_due: float | None = None
    load_effect: float | None = None
    line_x: tuple[float, ...] = ()
    line_y: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class SeriesJudgement:
    """The answer. Slopes are in units of ``y`` per ``per`` (per hour where ``x`` is seconds), with a 98 % interval.

    ``slope`` is over the whole judged part, ``slope_now`` over its last half. ``smallest_detectable`` is the slope that
    this run would have found 99 times in 100; ``needed_span`` is how much ``x`` a run would need to find ``limit``
    (or, without one, to settle what is inconclusive), None where no length would. ``headroom`` is what is left of
    ``total``; ``time_to_exhaustion`` and ``time_to_cap`` are in units of ``per`` (hours) at the slope found, None where
    there is no growth. ``points`` were given, ``used_points`` were judged.
    """

    verdict: Leak
    shape: Shape
    per: str
    why: str
    points: int
    used_points: int
    slope: float | None = None
    slope_low: float | None = None
    slope_high: float | None = None
    slope_now: float | None = None
    percent_per_hour: float | None = None
    smallest_detectable: float | None = None
    needed_span: float | None = None
    headroom: float | None = None
    time_to_exhaustion: float | None = None
    time_to_cap: float | None = None
    name: str = ""
    unit: str = "bytes"
    evidence: Evidence = field(default_factory=Evidence)
