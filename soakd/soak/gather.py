"""Reads a run's evidence out of the journal: what is judged is what was stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from soakd.analysis.evidence import (
    CanaryEvidence,
    Gain,
    LoadEvidence,
    OutageEvidence,
    Percentiles,
    RunEvidence,
    Track,
)
from soakd.analysis.given_back import KV_CACHE
from soakd.analysis.latency import Retention
from soakd.analysis.limits_growth import WATCHED
from soakd.analysis.series import Floats
from soakd.counters import gained, increase
from soakd.journal.reader import JournalReader
from soakd.journal.records import SeriesKey
from soakd.load.histogram import Histogram
from soakd.load.messages import Done
from soakd.model import Series, State
from soakd.soak.plan import Phases

_GAUGES = frozenset(
    {w.metric for w in WATCHED}
    | {w.total for w in WATCHED if w.total}
    | {
        "gpu_temperature_celsius",
        "gpu_power_watts",
        "gpu_utilization_ratio",
        KV_CACHE,
        "server_requests_running",
        "server_requests_waiting",
        "server_process_rss_bytes",
    }
)
_PER_PROCESS = ("server_process", "gpu_process", "allocator", "gpu_memory_outside", "server_")


@dataclass(frozen=True, slots=True)
class Window:
    """The run's place in time: ``start_ns`` to ``end_ns`` of the wall clock."""

    run_id: str
    start_ns: int
    end_ns: int

    @property
    def duration_s(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


def gather(
    reader: JournalReader, window: Window, planned: Phases, load: LoadEvidence, *, counters: Sequence[str],
    intervals: Mapping[str, float], local: bool, gpu_note: str, journal_dropped: int,
) -> RunEvidence:  # fmt: skip
    """``intervals`` gives the seconds between readings of a metric, by its name; ``counters`` are read as gains."""
    keys = reader.series(run_id=window.run_id)
    tracks = tuple(_track(reader, k, window, intervals) for k in keys if k.metric.name in _GAUGES)
    gains = tuple(_gain(reader, k, window, intervals) for k in keys if k.metric.name in counters)
    return RunEvidence(
        duration_s=window.duration_s,
        measured_from_s=planned.measured_from_s,
        measured_to_s=min(planned.measured_from_s + planned.measured_s, window.duration_s),
        end_ns=window.end_ns,
        load=load,
        tracks=tracks,
        gains=gains,
        events=reader.events(run_id=window.run_id),
        local=local,
        gpu_note=gpu_note,
        journal_dropped=journal_dropped,
        idle_before_s=planned.idle_before_s,
        work=_work(reader, keys, window, intervals),
    )


_WORK = (
    ("request", ("load_requests_completed_total",)),
    ("token", ("server_generated_tokens_total", "load_output_tokens_total")),
)


def _work(
    reader: JournalReader, keys: Sequence[SeriesKey], window: Window, intervals: Mapping[str, float]
) -> tuple[tuple[str, Track], ...]:
    """Requests and tokens done so far. What the server counts comes first: it has the work of all its clients."""
    found = []
    for per, metrics in _WORK:
        for metric in metrics:
            mine = [_track(reader, k, window, intervals) for k in keys if k.metric.name == metric]
            done = _summed([t for t in mine if len(t.y) > 1])
            if done is not None and done.y[-1] > 0:
                found.append((per, done))
                break
    return tuple(found)


def _summed(counters: Sequence[Track]) -> Track | None:
    """What several counters (one a replica) gained together since their first readings, over their restarts."""
    if not counters:
        return None
    x = np.unique(np.concatenate([t.x for t in counters]))
    gained_so_far = [np.cumsum(gained(t.y[:-1], t.y[1:], None)) for t in counters]
    total = sum(
        np.interp(x, t.x, np.concatenate([[0.0], so_far])) for t, so_far in zip(counters, gained_so_far, strict=True)
    )
    first = counters[0]
    return Track(first.metric, first.unit, (), x, np.asarray(total))


def _track(reader: JournalReader, key: SeriesKey, window: Window, intervals: Mapping[str, float]) -> Track:
    series = reader.read(key.metric.name, key.labels, run_id=window.run_id)
    x = (np.asarray(series.at_ns, dtype=np.float64) - window.start_ns) / 1e9
    y = np.asarray(series.values, dtype=np.float64)
    expected = _expected(series, x, window, intervals)
    return Track(key.metric.name, key.metric.unit, key.labels, x, y, expected, tuple(series.states.items()))


def _expected(series: Series, x: Floats, window: Window, intervals: Mapping[str, float]) -> int | None:
    """A process may come and go; a card and the host are there from start to end.

    The schedule alone does not say it: a collector reads part of its metrics less often (the slow tier of NVML), so the
    usual step between readings counts where it is longer.
    """
    interval = intervals.get(series.metric.name)
    if not interval:
        return None
    span = window.duration_s
    if series.metric.name.startswith(_PER_PROCESS) and len(x):
        span = float(x[-1] - x[0])
    step = float(np.median(np.diff(x))) if len(x) > 1 else span
    return max(1, int(span / max(interval, step)))


def _gain(reader: JournalReader, key: SeriesKey, window: Window, intervals: Mapping[str, float]) -> Gain:
    series = reader.read(key.metric.name, key.labels, run_id=window.run_id)
    known = len(series.values)
    gained = increase(series.values, key.metric.wraps_at) if known > 1 else None
    unknown = sum(n for s, n in series.states.items() if s is not State.OK)
    x = np.asarray(series.at_ns, dtype=np.float64) / 1e9
    expected = _expected(series, x, window, intervals) or known + unknown
    return Gain(
        key.metric.name,
        key.labels,
        None if gained is None else float(gained),
        min(1.0, known / max(expected, 1)),
        tuple(series.states.items()),
    )


def percentiles(histogram: Histogram) -> Percentiles:
    found = histogram.percentiles()
    return Percentiles(
        found.count, found.p50, found.p90, found.p95, found.p99, found.max, found.mean,
        _lower_end(histogram, 0.95), _lower_end(histogram, 0.99),
    )  # fmt: skip


def _lower_end(histogram: Histogram, q: float) -> float | None:
    """Lower end of the quantile's 95 % interval by order statistics (normal approximation of the binomial)."""
    count = histogram.count
    if not count:
        return None
    return histogram.quantile_s(max(0.0, q - 1.96 * (q * (1 - q) / count) ** 0.5))


def load_evidence(done: Done | None, canary: CanaryEvidence, retention: Retention | None) -> LoadEvidence:
    if done is None:
        return LoadEvidence(complete=False, canary=canary)
    total, counts = done.total, done.total.counts
    return LoadEvidence(
        measured_s=total.real_s,
        offered=counts.offered,
        started=counts.started,
        completed=counts.completed,
        failed=counts.failed,
        dropped=counts.dropped,
        empty=dict(counts.errors).get("empty_answer", 0),
        output_tokens=counts.tokens_out if counts.completed > counts.usage_missing else None,
        output_tokens_per_s=total.output_tokens_per_s if counts.completed > counts.usage_missing else None,
        concurrency_asked=total.concurrency_asked,
        concurrency_achieved=total.concurrency,
        ttft=percentiles(total.histograms.ttft),
        ttft_from_due=percentiles(total.histograms.ttft_from_due),
        itl=percentiles(total.histograms.itl),
        e2e=percentiles(total.histograms.e2e),
        bottleneck=done.bottleneck,
        complete=not done.incomplete,
        decode=retention,
        canary=canary,
        outages=tuple(
            OutageEvidence(o.start_ns, o.first_success_ns, o.recovered_ns, o.requests_lost) for o in done.outages
        ),
    )
