"""Growth against time, requests and tokens, and which explains it best: leaks follow work rather than time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from soakd.analysis.blocks import clean, summarise
from soakd.analysis.critical import critical_value
from soakd.analysis.growth import FEWEST_BLOCKS, INTERVAL_TAIL
from soakd.analysis.series import Floats
from soakd.analysis.shape import find_jumps
from soakd.analysis.slope import fit_trend
from soakd.quantities import format_value

SPOKEN = {"hour": 1.0, "request": 1000.0, "token": 1e6}
"""Rates are reported per hour, per 1,000 requests and per million tokens."""


@dataclass(frozen=True, slots=True)
class WorkSlope:
    """Growth per ``amount`` of ``per`` (1 hour, 1,000 requests, 1,000,000 tokens) with a 98 % interval. ``share`` is
    how much of the evidence (0 to 1) is for this unit among those compared; near-equal shares mean that the load was
    too steady to tell them apart."""

    per: str
    amount: float
    slope: float
    low: float
    high: float
    share: float


UNITS = {"hour": "hour", "request": "1,000 requests", "token": "million tokens"}
"""What ``amount`` of ``per`` is called in a sentence."""

DECIDED = 0.9
"""Share of the evidence from which one unit is said to explain a growth better than the others."""


def work_words(slopes: Sequence[WorkSlope], unit: str) -> str:
    """``126 MiB per 1,000 requests, 6.2 MiB per million tokens; it follows requests rather than time or tokens``.
    Empty without a count of work. What may as well be nothing is not said."""
    rates = [
        f"{format_value(s.slope, unit)} per {UNITS.get(s.per, s.per)}"
        for s in sorted(slopes, key=lambda s: list(UNITS).index(s.per) if s.per in UNITS else len(UNITS))
        if s.per != "hour" and s.low > 0
    ]
    if not rates:
        return ""
    names = {"hour": "time", "request": "requests", "token": "tokens"}
    best, rest = slopes[0], [names.get(s.per, s.per) for s in slopes[1:]]
    if best.share >= DECIDED:
        fit = f"it follows {names.get(best.per, best.per)} rather than {' or '.join(rest)}"
    else:
        fit = "the load was too steady to tell which of time, requests and tokens it follows"
    return f"{', '.join(rates)}; {fit}"


def growth_by_work(
    x: Floats, y: Floats, counts: Mapping[str, Floats], page: float = 0.0, skip: float = 0.0
) -> tuple[WorkSlope, ...]:
    """Compare time (``x``, seconds) with ``counts`` (``request``, ``token``: cumulative, of ``x``'s length), best
    first. ``skip`` seconds are left out at the start. Jumps are taken out, as in the judgement. Empty where too little
    is left; a count that did not grow is left out."""
    at, level, _ = clean(x, y)
    blocks = summarise(at[at >= at[0] + skip], level[at >= at[0] + skip]) if len(at) else None
    if blocks is None or len(blocks) < FEWEST_BLOCKS:
        return ()
    steps = [(np.arange(len(blocks)) >= j.index).astype(np.float64) for j in find_jumps(blocks, page)]
    fixed = np.column_stack(steps) if steps else None
    fits = []
    for per, count in {"hour": np.asarray(x, dtype=np.float64), **counts}.items():
        known_at, known, _ = clean(x, count)
        if len(known_at) < 2:
            continue
        t = np.interp(blocks.x, known_at, known) / (3600.0 if per == "hour" else SPOKEN.get(per, 1.0))
        if t[-1] > t[0] and (np.diff(t) >= 0).all():
            fits.append((per, fit_trend(t, blocks.low, fixed)))
    if not fits:
        return ()
    odds = np.array([f.evidence for _, f in fits])
    share = np.exp(odds - odds.max())
    share /= share.sum()
    found = []
    for (per, fit), part in zip(fits, share, strict=True):
        reach = critical_value(INTERVAL_TAIL, fit.length, len(blocks), plain=fixed is None) * fit.sd
        found.append(WorkSlope(per, SPOKEN.get(per, 1.0), fit.slope, fit.slope - reach, fit.slope + reach, float(part)))
    return tuple(sorted(found, key=lambda w: -w.share))
