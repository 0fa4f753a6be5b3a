"""Latency and throughput over a run of constant load: trend, change points, what else happened then, retention."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from soakd.analysis.series import Floats
from soakd.model import Event


class Trend(enum.Enum):
    WORSE = "worse"
    BETTER = "better"
    STEADY = "steady"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class LatencyQuestion:
    """A measure per window: ``x`` the windows' middles in seconds, ``y`` the measure (seconds, tokens/s).

    ``load`` is the load of each window (rate or concurrency), so that a change of load is not taken for one of the
    server; ``more_is_worse`` is False for throughput.
    """

    x: Floats
    y: Floats
    name: str = "e2e_p95"
    unit: str = "s"
    load: Floats | None = None
    more_is_worse: bool = True


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """The level changed at ``x`` (seconds) from ``before`` to ``after``; ``ratio`` is after / before."""

    x: float
    before: float
    after: float
    ratio: float
    p_value: float


@dataclass(frozen=True, slots=True)
class LatencyJudgement:
    """``slope`` is relative per hour (0.1: +10 % of the mean level an hour), with a 98 % interval."""

    trend: Trend
    why: str
    slope: float | None
    slope_low: float | None
    slope_high: float | None
    smallest_detectable: float | None
    changes: tuple[ChangePoint, ...]
    points: int
    name: str


@dataclass(frozen=True, slots=True)
class Coincidence:
    """A change point and the events near it, nearest first; ``what`` is a sentence such as 'e2e_p95 doubled 40 s after
    the restart'."""

    change: ChangePoint
    events: tuple[Event, ...]
    what: str


@dataclass(frozen=True, slots=True)
class Retention:
    """Rate at the end over rate at the start, over disjoint windows; None where there are too few."""

    first: float | None
    last: float | None
    ratio: float | None
    low: float | None
    high: float | None
    windows: int
    why: str


def judge_latency(question: LatencyQuestion) -> LatencyJudgement:
    raise NotImplementedError


def coincidences(
    judgement: LatencyJudgement, events: Sequence[Event], origin_ns: int, within_s: float = 120.0
) -> tuple[Coincidence, ...]:
    """Events within ``within_s`` seconds before each change point (or 15 s after); ``origin_ns`` is x = 0."""
    raise NotImplementedError


def decode_retention(x: Floats, rate: Floats, kinds: Sequence[str] | None = None) -> Retention:
    """Decode rate of the last quarter over that of the first, comparing turns of the same kind only."""
    raise NotImplementedError
