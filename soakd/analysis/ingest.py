"""Reads a series from a file: CSV, JSONL, Prometheus range-query JSON. Refuses with file and line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from soakd.analysis.series import Floats


@dataclass(frozen=True, slots=True)
class FileSeries:
    """One column. ``x`` is seconds where ``per`` is ``hour``; ``y`` is in ``unit`` (``bytes`` where the suffix was a
    size). ``notes`` say what was repaired (gaps, duplicates, order)."""

    name: str
    unit: str
    per: str
    x: Floats
    y: Floats
    page: float
    notes: tuple[str, ...]


def read_series(path: Path, column: str | None = None) -> tuple[FileSeries, ...]:
    """Every series of the file, or the one named. Raises ConfigError."""
    raise NotImplementedError
