"""When requests are meant to start: the arrival processes, drawn lazily and in order from a seed.

Open-loop times are offsets in real seconds from the start of the stage, fixed by the seed alone: they never depend on
when earlier requests were sent or answered. A changing rate is drawn by stretching a process of unit rate over the
integral of the rate, so that Poisson stays Poisson while its rate moves.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import orjson
from pydantic import Field

from soakd.errors import ConfigError, Problem

Process = Literal["constant", "poisson", "gamma"]


@dataclass(frozen=True, slots=True)
class Closed:
    """``concurrency`` streams that each send the next request when the last one ended, ``think_s`` (real seconds,
    exponential around it when ``think_random``) later. Their starts are spread over ``stagger_s`` real seconds."""

    concurrency: int
    think_s: float = 0.0
    think_random: bool = False
    stagger_s: float = 1.0
    kind: Literal["closed"] = "closed"


@dataclass(frozen=True, slots=True)
class Open:
    """Requests at a rate that follows ``curve``: (fraction of the stage 0 to 1, requests per real second) points,
    linear between them; two points at the same place make a jump. ``burstiness`` is the squared coefficient of
    variation of the gaps of a gamma process (1 is Poisson, above 1 comes in bursts)."""

    curve: tuple[tuple[float, float], ...]
    process: Process = "poisson"
    burstiness: float = 1.0
    kind: Literal["open"] = "open"


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests at recorded times: a file of numbers (seconds) or JSON lines with ``field``, in order, one a line.

    The first time becomes 0; times are divided by ``speedup``; ``repeat`` starts the trace again at its end, one mean
    gap later.
    """

    path: str
    field: str = "timestamp"
    speedup: float = 1.0
    repeat: bool = False
    kind: Literal["trace"] = "trace"


@dataclass(frozen=True, slots=True)
class Idle:
    """No requests: what the server does not give back is seen here."""

    kind: Literal["idle"] = "idle"


Arrivals = Annotated[Closed | Open | Trace | Idle, Field(discriminator="kind")]


def flat(rate_per_s: float) -> tuple[tuple[float, float], ...]:
    """The curve of a rate that stays."""
    return ((0.0, rate_per_s), (1.0, rate_per_s))


def due_times(arrivals: Open | Trace, duration_s: float, seed: str) -> Iterator[float]:
    """Intended starts in order, in real seconds from the start of a stage of ``duration_s`` real seconds.

    Raises ConfigError for a trace that can't be read.
    """
    if isinstance(arrivals, Trace):
        return _replay(arrivals, duration_s)
    return _stretch(_segments(arrivals.curve, duration_s), _unit_gaps(arrivals, random.Random(seed)))


def expected_requests(curve: tuple[tuple[float, float], ...], duration_s: float) -> float:
    """The integral of the rate over the stage."""
    return sum((a + b) / 2 * (t1 - t0) for t0, t1, a, b in _segments(curve, duration_s))


def _unit_gaps(arrivals: Open, rng: random.Random) -> Iterator[float]:
    if arrivals.process == "constant":
        # half a gap first, so that N sources of one rate give the same count over any whole period
        return itertools.chain((0.5,), itertools.repeat(1.0))
    if arrivals.process == "poisson":
        return _forever(rng, 1.0)
    return _forever(rng, arrivals.burstiness)


def _forever(rng: random.Random, burstiness: float) -> Iterator[float]:
    if burstiness == 1.0:
        while True:
            yield rng.expovariate(1.0)
    shape = 1.0 / burstiness
    while True:
        yield rng.gammavariate(shape, burstiness)


def _segments(curve: tuple[tuple[float, float], ...], duration_s: float) -> list[tuple[float, float, float, float]]:
    points = [(at * duration_s, rate) for at, rate in curve]
    return [(t0, t1, a, b) for (t0, a), (t1, b) in itertools.pairwise(points) if t1 > t0]


def _stretch(segments: list[tuple[float, float, float, float]], gaps: Iterator[float]) -> Iterator[float]:
    wanted = next(gaps)
    passed = 0.0
    for start, end, low, high in segments:
        slope = (high - low) / (end - start)
        area = (low + high) / 2 * (end - start)
        while wanted <= passed + area:
            yield min(end, start + _invert(low, slope, wanted - passed))
            wanted += next(gaps)
        passed += area


def _invert(rate: float, slope: float, area: float) -> float:
    """The time after which a rate that starts at ``rate`` and grows by ``slope`` has brought ``area`` requests."""
    if abs(slope) < 1e-12:
        return area / rate if rate else 0.0
    # the root in the form that loses no digits when the slope is small
    return 2 * area / (rate + math.sqrt(max(0.0, rate * rate + 2 * slope * area)))


def _replay(trace: Trace, duration_s: float) -> Iterator[float]:
    base, count, last = 0.0, 0, 0.0
    while True:
        first: float | None = None
        for stamp in _stamps(trace):
            first = stamp if first is None else first
            last = base + max(0.0, stamp - first) / trace.speedup
            if last >= duration_s:
                return
            count += 1
            yield last
        if not trace.repeat or count < 2 or last <= 0:
            return
        base = last * count / (count - 1)


def _stamps(trace: Trace) -> Iterator[float]:
    try:
        with Path(trace.path).open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if text := line.strip():
                    yield _stamp(trace, number, text)
    except OSError as error:
        raise ConfigError([Problem(trace.path, None, "", error.strerror or str(error), "a readable trace")]) from None


def _stamp(trace: Trace, number: int, text: bytes) -> float:
    try:
        row = orjson.loads(text)
        return float(row[trace.field] if isinstance(row, dict) else row)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        found = f"found {text[:40].decode(errors='replace')!r}"
        wanted = f"a number of seconds or a JSON object with {trace.field!r}"
        raise ConfigError([Problem(trace.path, number, trace.field, found, wanted)]) from None
