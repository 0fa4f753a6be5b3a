"""The series of a report's charts: bounded, on one time axis in seconds since the run began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

MAX_POINTS = 600


@dataclass(frozen=True, slots=True)
class ChartSeries:
    """One line. ``mean`` is drawn, ``low`` to ``high`` shaded when given; NaN or None is a gap, never joined over.

    ``panel`` is one of Charts.PANELS; ``t_s`` ascends. ``limit`` draws the limit of the series as a dashed line.
    """

    name: str
    unit: str
    panel: str
    t_s: Sequence[float]
    mean: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    limit: float | None = None

    def __post_init__(self) -> None:
        if len(self.t_s) != len(self.mean) or {len(self.low), len(self.high)} - {0, len(self.t_s)}:
            raise ValueError(f"chart series {self.name}: lengths differ")


@dataclass(frozen=True, slots=True)
class Charts:
    """All series of a report. ``duration_s`` is the length of the axis."""

    duration_s: float
    series: tuple[ChartSeries, ...] = ()


PANELS = ("latency", "rate", "memory", "temperature", "power", "errors", "other")


def thin(
    name: str, unit: str, panel: str, t_s: Sequence[float], values: Sequence[float], *, points: int = MAX_POINTS,
    labels: Mapping[str, str] | None = None, limit: float | None = None, gap_s: float | None = None,
) -> ChartSeries:  # fmt: skip
    """Reduce readings of any number to a series of at most ``points`` bins of equal time with low, mean and high.

    Non-finite readings are left out; an empty bin is left out, unless the hole is wider than ``gap_s`` (default: four
    times the median step), which is marked by one None so that no line is drawn over it.
    """
    t, v = np.asarray(t_s, dtype=float), np.asarray(values, dtype=float)
    known = np.isfinite(t) & np.isfinite(v)
    order = np.argsort(t[known], kind="stable")
    t, v = t[known][order], v[known][order]
    if len(t) == 0:
        return ChartSeries(name, unit, panel, (), (), labels=labels or {}, limit=limit)
    hole = gap_s if gap_s is not None else 4 * float(np.median(np.diff(t))) if len(t) > 2 else float("inf")
    binned = len(t) > points
    if binned:
        width = max((t[-1] - t[0]) / points, 1e-9) * (1 + 1e-9)
        _, first = np.unique(((t - t[0]) / width).astype(int), return_index=True)
        hole = max(hole, 2.5 * width)
    else:
        first = np.arange(len(t))
    counts = np.diff(np.append(first, len(t)))
    mean = np.add.reduceat(v, first) / counts
    low, high = np.minimum.reduceat(v, first), np.maximum.reduceat(v, first)
    at = np.add.reduceat(t, first) / counts
    return _with_gaps(name, unit, panel, (at, mean, low, high), hole, binned, labels or {}, limit)


def _with_gaps(
    name: str, unit: str, panel: str, columns: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], hole: float,
    binned: bool, labels: Mapping[str, str], limit: float | None,
) -> ChartSeries:  # fmt: skip
    at, mean, low, high = columns
    breaks = np.flatnonzero(np.diff(at) > hole) + 1
    middles = (at[breaks - 1] + at[breaks]) / 2
    times = np.insert(at, breaks, middles)
    filled = [np.insert(column, breaks, np.nan) for column in (mean, low, high)]
    means, lows, highs = (tuple(None if np.isnan(x) else float(x) for x in column) for column in filled)
    return ChartSeries(name, unit, panel, tuple(float(x) for x in times), means, lows if binned else (),
                       highs if binned else (), labels, limit)  # fmt: skip
