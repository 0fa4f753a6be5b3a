"""The accuracy table: false LEAKs on null families, power, shape, coverage and time to detection on leaks.

    python -m bench.detection.accuracy --seeds 1000 --jobs 2 > accuracy.md

Seeded: the same numbers on every machine with the same numpy and scipy.
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from bench.detection.baselines import methods
from bench.detection.families import LEAKS, NULLS, Maker
from soakd.analysis.judge import Leak, Shape, judge_series
from soakd.analysis.online import MonitorConfig, SeriesMonitor

ONLINE = (
    "flat ar4", "flat rho .999", "warm-up ar1", "warm-up ar4", "step ar4", "sawtooth ar4", "one-sided", "gaps",
    "spikes", "load ramp", "pools 2 h", "0.044 %/h ar4", "0.087 %/h ar4", "0.35 %/h ar16", "staircase",
)  # fmt: skip
_LIKE: dict[Shape, set[Shape]] = {Shape.WARM_UP: {Shape.WARM_UP, Shape.STEP, Shape.STAIRCASE}}
"""Pools that thin out are rightly called warm-up or steps."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One series judged: what was said, whether the shape and the interval were right, and how long it took."""

    verdict: Leak
    shape_right: bool
    covered: bool
    error: float
    seconds: float
    others: tuple[bool, ...]


def maker(name: str) -> Maker:
    return {**NULLS, **LEAKS}[name]


def seeded(name: str, seed: int, run: int) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(name.encode()), run])


def trial(name: str, seed: int, baselines: int, run: int) -> Trial:
    """Judge one series of a family; the first ``baselines`` runs are also put to the other methods."""
    made = maker(name)(seeded(name, seed, run))
    began = time.perf_counter()
    found = judge_series(made.question)
    took = time.perf_counter() - began
    right = {made.shape} if "pools" not in name else _LIKE.get(made.shape, {made.shape})
    low, high = found.slope_low, found.slope_high
    covered = low is None or high is None or low <= made.slope <= high
    others = tuple(m(made.question) for m in methods().values()) if run < baselines else ()
    return Trial(found.verdict, found.shape in right, covered, (found.slope or 0.0) - made.slope, took, others)


def online(name: str, seed: int, run: int) -> float | None:
    """Seconds to detection by a monitor that is fed one reading at a time, None where it never said LEAK."""
    q = maker(name)(seeded(name, seed, run)).question
    monitor = SeriesMonitor(MonitorConfig(page=q.page, total=q.total, unit=q.unit, wanted_span=float(q.x[-1])))
    for i in range(len(q.x)):
        monitor.add(float(q.x[i]), float(q.y[i]), None if q.load is None else float(q.load[i]))
        monitor.look(float(q.x[i]))
    return monitor.detected_at


def percent(values: Iterable[bool]) -> str:
    kept = list(values)
    return f"{100 * float(np.mean(kept)):.1f}" if kept else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--baselines", type=int, default=60, help="runs that the other methods judge too")
    parser.add_argument("--online", type=int, default=60, help="runs fed to a monitor")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", help="part of a family's name")
    options = parser.parse_args()
    names = list(methods())
    with ProcessPoolExecutor(options.jobs) as pool:
        print(f"seed {options.seed}; {options.seeds} series a family, {options.baselines} for the other methods\n")
        print(
            "| family | LEAK % | open % | shape % | coverage % | median error MiB/h | ms | " + " | ".join(names) + " |"
        )
        print("| --- |" + " --- |" * (6 + len(names)))
        for name in (*NULLS, *LEAKS):
            if options.only not in name:
                continue
            work = partial(trial, name, options.seed, options.baselines)
            trials = list(pool.map(work, range(options.seeds), chunksize=10))
            said = Counter(t.verdict for t in trials)
            cells = [
                percent(t.verdict is Leak.LEAK for t in trials),
                f"{100 * said[Leak.INCONCLUSIVE] / len(trials):.1f}",
                percent(t.shape_right for t in trials),
                percent(t.covered for t in trials),
                f"{float(np.median([t.error for t in trials])):+.2f}",
                f"{1000 * float(np.median([t.seconds for t in trials])):.0f}",
                *(percent(t.others[i] for t in trials if t.others) for i in range(len(names))),
            ]
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
        print(f"\n| fed one reading at a time ({options.online} runs) | said LEAK % | median minutes |")
        print("| --- | --- | --- |")
        for name in ONLINE:
            if options.only in name:
                times = list(pool.map(partial(online, name, options.seed), range(options.online)))
                found = [t / 60 for t in times if t is not None]
                median = f"{float(np.median(found)):.0f}" if found else "-"
                print(f"| {name} | {percent(t is not None for t in times)} | {median} |", flush=True)
    print("done", file=sys.stderr)


if __name__ == "__main__":
    main()
