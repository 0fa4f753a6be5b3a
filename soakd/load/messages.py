"""What the load engine says while it runs. Counts are exact; times are clock wall nanoseconds; latencies are real.

In latency names, ``ttft`` runs from sending, ``ttft_from_due`` from the intended start (the figure that is judged),
``content_ttft`` to the first token of the answer proper (after thinking); ``cold_ttft`` and ``warm_ttft`` are ``ttft``
of prompts that are new to the server and of those whose beginning it has seen (a later turn, a shared prefix);
``itl`` is per token, ``gap`` between two chunks as they came, ``tpot`` one mean per request; ``e2e`` runs from the
intended start to the last byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from soakd.load.canary import CanaryResult, CanarySummary
from soakd.load.histogram import Histogram
from soakd.model import Event

HISTOGRAMS = (
    "ttft", "ttft_from_due", "content_ttft", "cold_ttft", "warm_ttft", "itl", "gap", "tpot", "e2e", "send_lag",
    "loop_lag",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Histograms:
    """One histogram for each name of HISTOGRAMS. Latencies hold completed requests only, except ``gap``."""

    ttft: Histogram = field(default_factory=Histogram)
    ttft_from_due: Histogram = field(default_factory=Histogram)
    content_ttft: Histogram = field(default_factory=Histogram)
    cold_ttft: Histogram = field(default_factory=Histogram)
    warm_ttft: Histogram = field(default_factory=Histogram)
    itl: Histogram = field(default_factory=Histogram)
    gap: Histogram = field(default_factory=Histogram)
    tpot: Histogram = field(default_factory=Histogram)
    e2e: Histogram = field(default_factory=Histogram)
    send_lag: Histogram = field(default_factory=Histogram)
    loop_lag: Histogram = field(default_factory=Histogram)

    def merge(self, other: Histograms) -> None:
        for name in HISTOGRAMS:
            mine: Histogram = getattr(self, name)
            mine.merge(getattr(other, name))


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests and tokens of an interval. ``offered`` were due, ``started`` were sent, ``dropped`` were due beyond
    the cap on requests in flight, ``cancelled`` were cut off by the end of the run.

    ``usage_missing`` are completed requests whose server told no token count: their tokens are not in the sums.
    """

    offered: int = 0
    started: int = 0
    completed: int = 0
    failed: int = 0
    dropped: int = 0
    cancelled: int = 0
    retried: int = 0
    usage_missing: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    chunks: int = 0
    errors: tuple[tuple[str, int], ...] = ()
    finishes: tuple[tuple[str, int], ...] = ()
    tags: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicaCounts:
    """One replica's share of an interval; ``ttft`` and ``e2e`` as in Histograms."""

    url: str
    completed: int
    failed: int
    tokens_out: int
    ttft: Histogram
    e2e: Histogram = field(default_factory=Histogram)


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """How the load generator itself fared. Shares are of 1; None is not known.

    ``cpu_share`` is of one core and of the busiest worker, ``coalesced_share`` the share of reads that brought more
    than one token of the same stream.
    """

    cpu_share: float | None
    loop_lag_p99_s: float | None
    loop_lag_max_s: float | None
    send_lag_p99_s: float | None
    coalesced_share: float | None
    concurrency_asked: float | None
    concurrency_achieved: float | None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tick:
    """Once each real second. Totals are since the start of the load, over all stages.

    ``rate_per_s`` is of completions in the last real second; the percentiles are running ones of the current stage.
    """

    at_ns: int
    elapsed_s: float
    duration_s: float
    stage: str
    measured: bool
    offered: int
    started: int
    completed: int
    failed: int
    dropped: int
    tokens_out: int
    in_flight: int
    rate_per_s: float
    ttft_p95_s: float | None
    e2e_p95_s: float | None
    loop_lag_max_s: float | None


@dataclass(frozen=True, slots=True)
class Window:
    """An interval of clock time, merged over the workers. Counts and latencies are of what *ended* in it.

    ``real_s`` is its length in real seconds: rates are ``counts / real_s``. ``stage`` is the stage it lies in (a
    window never crosses a stage's end). ``records`` are packed request records (`soakd.load.records.decode`);
    ``records_dropped`` counts those left out because the owner did not read fast enough. ``so_far`` are the counts of
    the whole load up to the end of this window.
    """

    index: int
    start_ns: int
    end_ns: int
    real_s: float
    stage: str
    measured: bool
    counts: Counts
    histograms: Histograms
    concurrency: float
    concurrency_asked: float | None
    self_check: SelfCheck
    replicas: tuple[ReplicaCounts, ...]
    workers: int
    records: bytes = b""
    records_dropped: int = 0
    so_far: Counts = Counts()


@dataclass(frozen=True, slots=True)
class StageTotals:
    """A stage, or the whole measured part. Requests belong to the stage in which they were due.

    ``real_s`` is how long it lasted in real seconds so far as it was run.
    """

    name: str
    measured: bool
    real_s: float
    counts: Counts
    histograms: Histograms
    concurrency: float | None
    concurrency_asked: float | None

    @property
    def rate_per_s(self) -> float | None:
        return self.counts.completed / self.real_s if self.real_s > 0 else None

    @property
    def output_tokens_per_s(self) -> float | None:
        return self.counts.tokens_out / self.real_s if self.real_s > 0 else None


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which the target did not answer. ``recovered_ns`` is when rate and P95 were back within 10 % of
    before. ``requests_lost`` failed from its start to the first success."""

    url: str
    start_ns: int
    first_success_ns: int | None
    recovered_ns: int | None
    requests_lost: int
    requests_retried: int = 0


@dataclass(frozen=True, slots=True)
class Done:
    """The end of the load. ``total`` and ``replicas`` are of the measured part; ``incomplete`` says why it is not what
    was asked (empty when it is); ``bottleneck`` why the load generator itself was the limit (empty when it was not)."""

    total: StageTotals
    stages: tuple[StageTotals, ...]
    outages: tuple[Outage, ...]
    self_check: SelfCheck
    canary: CanarySummary | None
    bottleneck: str
    incomplete: str
    workers: int
    worker_rss_bytes: int | None
    replicas: tuple[ReplicaCounts, ...] = ()


LoadEvent = Event
"""``load.outage``, ``load.first_success``, ``load.recovered``, ``load.worker_died``, ``load.backoff``,
``load.usage_missing``, ``load.stage``: things that happened, on the run's clock."""

Message = Tick | Window | CanaryResult | LoadEvent | Done


def merge_counts(parts: Sequence[Counts]) -> Counts:
    """The sum of counts."""
    number = [sum(getattr(part, name) for part in parts) for name in _NUMBERS]
    return Counts(*number, *(_merge_pairs([getattr(part, name) for part in parts]) for name in _PAIRS))


def merge_replicas(parts: Sequence[ReplicaCounts]) -> ReplicaCounts:
    """The sum of one replica's shares; there is at least one."""
    return ReplicaCounts(
        parts[0].url,
        sum(part.completed for part in parts),
        sum(part.failed for part in parts),
        sum(part.tokens_out for part in parts),
        Histogram.merged(part.ttft for part in parts),
        Histogram.merged(part.e2e for part in parts),
    )


_NUMBERS = (
    "offered", "started", "completed", "failed", "dropped", "cancelled", "retried", "usage_missing", "tokens_in",
    "tokens_out", "cached_tokens", "reasoning_tokens", "chunks",
)  # fmt: skip
_PAIRS = ("errors", "finishes", "tags")


def _merge_pairs(parts: Sequence[tuple[tuple[str, int], ...]]) -> tuple[tuple[str, int], ...]:
    sums: dict[str, int] = {}
    for part in parts:
        for name, number in part:
            sums[name] = sums.get(name, 0) + number
    return tuple(sorted(sums.items()))
