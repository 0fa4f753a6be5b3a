"""The measured figures of a run: load, latencies, tokens, and the measures that two runs are compared by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles in seconds of ``count`` requests (or gaps). A percentile that the count can't carry is None."""

    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None
    mean: float | None = None
    count: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """What one replica behind the same load took."""

    name: str
    completed: int
    failed: int
    share: float | None = None
    output_tokens_per_s: float | None = None
    ttft_p95_s: float | None = None
    e2e_p95_s: float | None = None


@dataclass(frozen=True, slots=True)
class DecodeRetention:
    """Tokens per second and stream in an early and a late window that do not overlap, of the same kind of turn."""

    ratio: float | None
    early_tokens_per_s: float | None
    late_tokens_per_s: float | None
    early_window_s: tuple[float, float] | None = None
    late_window_s: tuple[float, float] | None = None
    why: str = ""
    """Why ``ratio`` is unknown (windows would overlap, too few turns)."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load as offered, as sent and as answered, in the measured stages only.

    ``offered`` were due, ``started`` sent, ``dropped`` due but not sent because of the cap on requests in flight;
    ``errors`` counts failures by class. ``rate_per_s`` is completed requests per second.
    """

    offered: int | None
    started: int | None
    completed: int | None
    failed: int | None
    dropped: int | None
    rate_per_s: float | None
    concurrency_asked: float | None
    concurrency_achieved: float | None
    output_tokens_per_s: float | None
    errors: Mapping[str, int]
    ttft_s: Latency
    ttft_from_due_s: Latency
    itl_s: Latency
    e2e_s: Latency
    ttft_content_s: Latency = field(default_factory=Latency)
    """To the first token of content, after reasoning."""
    ttft_cold_s: Latency = field(default_factory=Latency)
    """Of prompts that were new to the server; like ``ttft_warm_s`` empty where the workload repeats nothing."""
    ttft_warm_s: Latency = field(default_factory=Latency)
    """Of prompts whose beginning the server had seen: a later turn of a conversation, a shared prefix."""
    gap_per_request_s: Latency = field(default_factory=Latency)
    """Mean gap of each request; hides stalls, which ``itl_s`` does not."""
    mode: str = ""
    """``closed`` (N concurrent), ``constant`` or ``poisson`` (open loop)."""
    rate_asked_per_s: float | None = None
    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    """Of the input tokens those that the server took from its prefix cache, where its usage tells it."""
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    input_tokens_per_s: float | None = None
    requests_without_usage: int | None = None
    finish_reasons: Mapping[str, int] = field(default_factory=dict)
    empty_answers: int | None = None
    goodput_per_s: float | None = None
    decode_retention: DecodeRetention | None = None
    replicas: tuple[ReplicaLoad, ...] = ()
    seed: int | None = None


def latency_rows(load: Load) -> tuple[tuple[str, str, Latency], ...]:
    """Name, explanation and figures of every latency that was measured, the four of the contract always."""
    always = (
        ("TTFT", "time to first token, from sending", load.ttft_s),
        ("TTFT from due", "from the time the request was due; what the limits judge", load.ttft_from_due_s),
        ("ITL", "gap between two chunks", load.itl_s),
        ("E2E", "whole answer", load.e2e_s),
    )
    extra = (
        ("TTFT of content", "first token after reasoning", load.ttft_content_s),
        ("TTFT cold", "prompts that are new to the server", load.ttft_cold_s),
        ("TTFT warm", "prompts whose beginning it has seen", load.ttft_warm_s),
        ("Mean gap per request", "hides stalls that ITL shows", load.gap_per_request_s),
    )
    return (*always, *(row for row in extra if row[2].count))


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure with its interval, by which runs are compared.

    ``better`` says which way is good; ``method`` where the interval comes from; ``low`` and ``high`` are None when
    nothing is known of its spread. ``points`` is how many windows (or readings) the interval rests on.
    """

    name: str
    unit: str
    value: float | None
    low: float | None = None
    high: float | None = None
    better: Literal["lower", "higher", "neither"] = "lower"
    method: str = ""
    points: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
