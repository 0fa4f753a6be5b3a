"""Evidence of made-up runs for the tests of limits and verdict."""

from __future__ import annotations

import numpy as np

from soakd.analysis.evidence import Gain, LoadEvidence, Percentiles, RunEvidence, Track
from soakd.analysis.limits import Limit
from soakd.model import Labels, State

CARD: Labels = (("bdf", "0000:00:06.0"), ("gpu", "GPU-1"))
END_NS = 1_800_000_000_000_000_000
HOURS_2 = 7200.0


def limit(name: str, value: float, unit: str = "", *, user_set: bool = True, **extra: float) -> Limit:
    return Limit(name, value, unit, user_set, tuple(extra.items()))


def latency(count: int, p95: float, p99: float | None = None, *, low: float | None = None) -> Percentiles:
    return Percentiles(count, p95 / 2, p95 * 0.9, p95, p99 or p95 * 1.2, p95 * 2, p95 / 2, low, low)


def a_load(**change: object) -> LoadEvidence:
    base = {
        "measured_s": 6900.0, "offered": 200_000, "started": 200_000, "completed": 200_000, "failed": 0,
        "output_tokens": 10**7, "output_tokens_per_s": 1450.0, "e2e": latency(200_000, 0.7),
        "ttft_from_due": latency(200_000, 0.2), "itl": latency(10**6, 0.03),
    }  # fmt: skip
    return LoadEvidence(**{**base, **change})  # type: ignore[arg-type]


def a_run(
    *, load: LoadEvidence | None = None, tracks: tuple[Track, ...] = (), gains: tuple[Gain, ...] = (),
    duration_s: float = HOURS_2, **change: object,
) -> RunEvidence:  # fmt: skip
    return RunEvidence(
        duration_s, 300.0, duration_s - 60.0, END_NS, load or a_load(), tracks, gains, **change  # type: ignore[arg-type]
    )  # fmt: skip


def track(
    metric: str, values: object, *, labels: Labels = CARD, every_s: float = 5.0, unknown: int = 0,
    state: State = State.TIMEOUT, unit: str = "bytes",
) -> Track:  # fmt: skip
    y = np.asarray(values, dtype=np.float64)
    x = np.arange(len(y), dtype=np.float64) * every_s
    return Track(metric, unit, labels, x, y, len(y) + unknown, ((state, unknown),) if unknown else ())


def gain(metric: str, increase: float | None, coverage: float = 1.0, state: State | None = None, **tags: str) -> Gain:
    states = ((state, 10),) if state else ()
    return Gain(metric, tuple(sorted((*CARD, *tags.items()))), increase, coverage, states)
