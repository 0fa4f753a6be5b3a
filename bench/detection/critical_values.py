"""Monte Carlo table of critical values for soakd.analysis.slope, to be written into soakd/analysis/critical_table.py.

For each number of readings and each true correlation, seeded AR(1) series without a trend are fitted exactly as the
judge fits them, and put into bins by their *estimated* persistence. The critical values of the bins are those that
cost the least power (the smallest mean over noise of short memory) while, *whichever the true correlation is*, no more
than the tail's share of all its series lies above them: series whose memory was underestimated count in full. Noise
that is remembered for over ``SHORT_SHARE`` of the span, a random walk among it, is allowed ``LONG_FACTOR`` times the
share, since nothing tells it from growth for sure.

    python -m bench.detection.critical_values --sims 3000 --jobs 2 > soakd/analysis/critical_table.py
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.signal import lfilter
from scipy.special import ndtri

from soakd.analysis.series import Floats
from soakd.analysis.slope import fit_growth

SIZES = (6, 8, 10, 13, 17, 24, 40, 70, 120, 180, 240, 480)
CORRELATIONS = (0.0, 0.4, 0.7, 0.85, 0.93, 0.97, 0.985, 0.995, 1.0)
NUGGETS = (0.0, 0.5, 2.0)
EDGES = (0.0, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, np.inf)
BINS = len(EDGES) - 1
TAILS = (0.05, 0.01, 0.001)
SHORT_SHARE = 0.3
LONG_FACTOR = 3.0
_TYPICAL_SHARE = 0.1
_STEPS = (1.03, 1.15, 1.5)
_FEWEST = 100


@dataclass(frozen=True, slots=True)
class Drawn:
    """|slope / sd| by bin (sorted) of the series of one true correlation, and that as a share of the span."""

    ratios: tuple[Floats, ...]
    share: float

    @property
    def count(self) -> int:
        return sum(map(len, self.ratios))

    def above(self, b: int, value: float) -> int:
        return len(self.ratios[b]) - int(np.searchsorted(self.ratios[b], value, side="right"))


def draw(size: int, rho: float, nugget: float, rng: np.random.Generator, sims: int) -> Drawn:
    """``sims`` AR(1) series with unrelated noise of ``nugget`` standard deviations of their change from one reading to
    the next."""
    t = np.arange(size, dtype=np.float64)
    found, ratios = np.empty(sims), np.empty(sims)
    for i in range(sims):
        shocks = rng.standard_normal(size)
        if rho < 1.0:
            shocks[0] /= np.sqrt(1.0 - rho * rho)
        y = lfilter([1.0], [1.0, -rho], shocks) + nugget * rng.standard_normal(size)
        fit, _ = fit_growth(t, y)
        found[i], ratios[i] = fit.length / size, abs(fit.ratio)
    bins = np.digitize(found, EDGES[1:-1])
    length = 0.0 if rho == 0 else np.inf if rho == 1 else -1.0 / np.log(rho)
    return Drawn(tuple(np.sort(ratios[bins == b]) for b in range(BINS)), length / size)


def draw_size(size: int, sims: int, seed: int) -> list[Drawn]:
    rng = np.random.default_rng([seed, size])
    drawn = [draw(size, rho, n, rng, sims) for rho in CORRELATIONS for n in (NUGGETS if rho > 0 else NUGGETS[:1])]
    print(size, "readings drawn", file=sys.stderr, flush=True)
    return drawn


def solve(drawn: list[Drawn], tail: float, factor: float) -> Floats:
    """Critical values of the bins: raised, where that gains the most for what it costs, until every true correlation
    keeps to its share; then lowered where that breaks nothing."""
    floor = 0.5 * -float(ndtri(tail))
    # both signs were drawn, one is tested
    allowed = np.array([2 * d.count * tail * (factor if d.share > SHORT_SHARE else 1.0) for d in drawn])
    typical = [d for d in drawn if d.share <= _TYPICAL_SHARE] or drawn
    cost = np.array([1e-3 + np.mean([len(d.ratios[b]) / d.count for d in typical]) for b in range(BINS)])

    def above(b: int, value: float) -> Floats:
        return np.array([d.above(b, value) for d in drawn], dtype=np.float64)

    values = np.full(BINS, floor)
    counts = np.column_stack([above(b, floor) for b in range(BINS)])
    while ((excess := np.maximum(counts.sum(axis=1) - allowed, 0.0)) > 0).any():
        choices = [(b, values[b] * step) for b in range(BINS) for step in _STEPS]
        gains = [np.minimum(counts[:, b] - above(b, v), excess) / allowed for b, v in choices]
        worth = [float(g.sum()) / (cost[b] * (v - values[b])) for g, (b, v) in zip(gains, choices, strict=True)]
        b, v = choices[int(np.argmax(worth))]
        values[b], counts[:, b] = v, above(b, v)
    for _ in range(40):
        for b in np.argsort(-cost):
            lower = max(values[b] * 0.98, floor)
            changed = counts.copy()
            changed[:, b] = above(int(b), lower)
            if (changed.sum(axis=1) <= allowed).all():
                values[b], counts = lower, changed
    known = [b for b in range(BINS) if sum(len(d.ratios[b]) for d in drawn) >= _FEWEST]
    # where next to nothing fell, what falls there may be anything: as its neighbour, if that is more
    near = [min(known, key=lambda k: abs(k - b)) for b in range(BINS)]
    return np.asarray(np.maximum(values, values[near]), dtype=np.float64)


def table(sims: int, seed: int, jobs: int, factor: float) -> list[list[list[float]]]:
    """Critical values by size, bin of persistence and tail."""
    longest_first = SIZES[::-1]
    with ProcessPoolExecutor(jobs) as pool:
        found = dict(zip(longest_first, pool.map(partial(draw_size, sims=sims, seed=seed), longest_first), strict=True))
    result = []
    for size in SIZES:
        by_tail = np.maximum.accumulate([solve(found[size], tail, factor) for tail in TAILS], axis=0)
        # a tail of too few series is at least as far out as that of normal noise
        by_tail[2] = np.maximum(by_tail[2], by_tail[1] * float(ndtri(TAILS[2]) / ndtri(TAILS[1])))
        result.append([[float(v) for v in row] for row in by_tail.T])
        print(size, np.round(by_tail, 2).tolist(), file=sys.stderr, flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sims", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=20260)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--long-factor", type=float, default=LONG_FACTOR)
    options = parser.parse_args()
    rows = table(options.sims, options.seed, options.jobs, options.long_factor)
    print('"""Generated by bench/detection/critical_values.py; do not edit.\n')
    print(f"Seed {options.seed}, {options.sims} series per size and correlation. See that script for the meaning.")
    print('"""\n\nfrom __future__ import annotations\n')
    print(f"SIZES = {SIZES!r}")
    print(f"EDGES = {EDGES[1:-1]!r}")
    print(f"TAILS = {TAILS!r}")
    print("VALUES = (")
    for size, bins in zip(SIZES, rows, strict=True):
        print(f"    (  # {size} readings")
        for row in bins:
            print(f"        ({', '.join(f'{v:.2f}' for v in row)}),")
        print("    ),")
    print(")")


if __name__ == "__main__":
    main()
