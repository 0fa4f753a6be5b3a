"""Seeded memory series, in MiB at 1 Hz, quantised to NVML's 2 MiB pages, and the recordings of a served model."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.signal import lfilter

from soakd.analysis.series import Floats, SeriesQuestion

FIXTURES = Path(__file__).parent.parent / "fixtures"
Draw = Callable[..., Floats]
Ask = Callable[..., SeriesQuestion]
Recording = Callable[[str, str], dict[str, Floats]]


@pytest.fixture
def noise() -> Draw:
    """AR(1) with standard deviation ``sigma`` and correlation ``rho`` between readings."""

    def draw(n: int, seed: int, sigma: float = 4.0, rho: float = 0.99) -> Floats:
        rng = np.random.default_rng(seed)
        shocks = rng.standard_normal(n) * sigma * np.sqrt(1 - rho**2)
        shocks[0] = rng.standard_normal() * sigma
        return np.asarray(lfilter([1.0], [1.0, -rho], shocks), dtype=np.float64)

    return draw


@pytest.fixture
def ask() -> Ask:
    """A question about a series in MiB on a card of 32 GiB that held 20,000 MiB before."""

    def make(y: Floats, **more: object) -> SeriesQuestion:
        x = np.arange(float(len(y)))
        return SeriesQuestion(x, 2.0 * np.floor((20000.0 + y) / 2.0), page=2.0, total=32768.0, unit="MiB", **more)  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def recording() -> Recording:
    """Columns of ``h200-serving``: run ``clean`` or ``leak``, kind ``nvml`` or ``torch``; with ``serving_s``."""
    began = {"clean": 13.817, "leak": 14.809}

    def read(run: str, kind: str) -> dict[str, Floats]:
        with gzip.open(FIXTURES / "h200-serving" / f"{run}_{kind}.csv.gz", "rt") as f:
            rows = list(csv.DictReader(f))
        table = {k: np.array([float(r[k]) if r[k] else np.nan for r in rows]) for k in rows[0]}
        return {**table, "serving_s": table["t_s"] - began[run]}

    return read
