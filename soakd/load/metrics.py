"""The load engine's metrics, and a window as samples of them."""

from __future__ import annotations

from collections.abc import Iterator

from soakd.load.messages import HISTOGRAMS, Histograms, Window
from soakd.model import Kind, Metric, Sample, State, labels

_SOURCE = "soakd's load engine, over one window"
_QUANTILES = (("p50", 0.50), ("p95", 0.95), ("p99", 0.99))
_LATENCIES = (
    ("ttft", "Time to first token from sending"),
    ("ttft_from_due", "Time to first token from the intended start"),
    ("content_ttft", "Time to the first token of the answer proper, after thinking"),
    ("cold_ttft", "Time to first token of prompts that are new to the server"),
    ("warm_ttft", "Time to first token of prompts whose beginning the server has seen"),
    ("itl", "Inter-token latency per token"),
    ("gap", "Wait between two chunks as they came"),
    ("tpot", "Mean time per output token of a request"),
    ("e2e", "Time from the intended start to the last byte"),
    ("send_lag", "Lateness of the load generator's sends"),
    ("loop_lag", "Lateness of the load generator's event loop"),
)


def _counter(name: str, unit: str, help_text: str, *label_names: str) -> Metric:
    return Metric(f"load_{name}_total", unit, Kind.COUNTER, help_text, _SOURCE, label_names)


def _gauge(name: str, unit: str, help_text: str, *label_names: str) -> Metric:
    return Metric(f"load_{name}", unit, Kind.GAUGE, help_text, _SOURCE, label_names)


OFFERED = _counter("requests_offered", "requests", "Requests that were due.")
STARTED = _counter("requests_started", "requests", "Requests that were sent.")
COMPLETED = _counter("requests_completed", "requests", "Requests answered in full.")
FAILED = _counter("requests_failed", "requests", "Requests that failed, of any class.")
DROPPED = _counter("requests_dropped", "requests", "Requests due beyond the cap on requests in flight: never sent.")
RETRIED = _counter("requests_retried", "requests", "Requests sent again after a reused connection was lost unanswered.")
ERRORS = _counter("errors", "requests", "Requests that failed, by class.", "class")
FINISHES = _counter("finishes", "requests", "Completed requests by finish reason.", "reason")
USAGE_MISSING = _counter("usage_missing", "requests", "Completed requests whose server gave no token counts.")
TOKENS_IN = _counter("input_tokens", "tokens", "Prompt tokens, as the server counts them.")
TOKENS_OUT = _counter("output_tokens", "tokens", "Output tokens, as the server counts them.")
CACHED_TOKENS = _counter("cached_tokens", "tokens", "Prompt tokens that the server had in its prefix cache.")
REASONING_TOKENS = _counter("reasoning_tokens", "tokens", "Output tokens of thinking, where the server counts them.")
OFFERED_RATE = _gauge("offered_per_second", "requests/s", "Requests due per real second.")
RATE = _gauge("requests_per_second", "requests/s", "Requests completed per real second.")
TOKEN_RATE = _gauge("output_tokens_per_second", "tokens/s", "Output tokens of completed requests per real second.")
ERROR_RATIO = _gauge("error_ratio", "ratio", "Failed share of the requests that ended.")
CONCURRENCY = _gauge("concurrency", "requests", "Requests in flight, weighted by time.")
CONCURRENCY_ASKED = _gauge("concurrency_asked", "requests", "Streams of the closed loop.")
CPU_SHARE = _gauge("cpu_ratio", "ratio", "Share of one core that the busiest load worker used.")
COALESCED = _gauge("coalesced_reads_ratio", "ratio", "Reads that brought several tokens of one stream.")
OUT_OF_BOUNDS = _gauge("generator_out_of_bounds", "windows", "1 where the load generator was the bottleneck, else 0.")
REPLICA_COMPLETED = _gauge("replica_requests_per_second", "requests/s", "Requests completed, by replica.", "url")
REPLICA_TTFT = _gauge("replica_ttft_p95_seconds", "seconds", "P95 of time to first token, by replica.", "url")
PERCENTILES = tuple(
    (name, q, _gauge(f"{name}_{label}_seconds", "seconds", f"{what}, {label.upper()}."))
    for name, what in _LATENCIES
    for label, q in _QUANTILES
)

METRICS: tuple[Metric, ...] = (
    OFFERED, STARTED, COMPLETED, FAILED, DROPPED, RETRIED, ERRORS, FINISHES, USAGE_MISSING, TOKENS_IN, TOKENS_OUT,
    CACHED_TOKENS, REASONING_TOKENS, OFFERED_RATE, RATE, TOKEN_RATE, ERROR_RATIO, CONCURRENCY, CONCURRENCY_ASKED,
    CPU_SHARE, COALESCED, OUT_OF_BOUNDS, REPLICA_COMPLETED, REPLICA_TTFT, *(metric for _, _, metric in PERCENTILES),
)  # fmt: skip


def samples(window: Window) -> tuple[Sample, ...]:
    """A window's samples, stamped with its end. A latency that nothing was measured of is ABSENT, never 0.

    Counters are of the whole load so far.
    """
    return (*_counters(window), *_rates(window), *_generator(window), *_latencies(window), *_replicas(window))


def _counters(window: Window) -> Iterator[Sample]:
    at, so_far = window.end_ns, window.so_far
    for metric, value in (
        (OFFERED, so_far.offered), (STARTED, so_far.started), (COMPLETED, so_far.completed), (FAILED, so_far.failed),
        (DROPPED, so_far.dropped), (RETRIED, so_far.retried), (USAGE_MISSING, so_far.usage_missing),
        (TOKENS_IN, so_far.tokens_in), (TOKENS_OUT, so_far.tokens_out), (CACHED_TOKENS, so_far.cached_tokens),
        (REASONING_TOKENS, so_far.reasoning_tokens),
    ):  # fmt: skip
        yield Sample.ok(metric, value, at)
    for name, number in so_far.errors:
        yield Sample.ok(ERRORS, number, at, labels(**{"class": name}))
    for name, number in so_far.finishes:
        yield Sample.ok(FINISHES, number, at, labels(reason=name))


def _rates(window: Window) -> Iterator[Sample]:
    at, counts = window.end_ns, window.counts
    if window.real_s > 0:
        yield Sample.ok(OFFERED_RATE, counts.offered / window.real_s, at)
        yield Sample.ok(RATE, counts.completed / window.real_s, at)
        yield Sample.ok(TOKEN_RATE, counts.tokens_out / window.real_s, at)
    ended = counts.completed + counts.failed
    yield _known(ERROR_RATIO, counts.failed / ended if ended else None, at, "no request ended in the window")
    yield Sample.ok(CONCURRENCY, window.concurrency, at)
    if window.concurrency_asked is not None:
        yield Sample.ok(CONCURRENCY_ASKED, window.concurrency_asked, at)


def _generator(window: Window) -> Iterator[Sample]:
    at, check = window.end_ns, window.self_check
    yield _known(CPU_SHARE, check.cpu_share, at, "no load worker reported")
    yield _known(COALESCED, check.coalesced_share, at, "nothing was read in the window")
    yield Sample.ok(OUT_OF_BOUNDS, float(bool(check.reasons)), at)


def _latencies(window: Window) -> Iterator[Sample]:
    for name, q, metric in PERCENTILES:
        value = _histogram(window.histograms, name, q)
        yield _known(metric, value, window.end_ns, "nothing was measured in the window")


def _replicas(window: Window) -> Iterator[Sample]:
    if len(window.replicas) < 2:
        return
    for replica in window.replicas:
        which = labels(url=replica.url)
        if window.real_s > 0:
            yield Sample.ok(REPLICA_COMPLETED, replica.completed / window.real_s, window.end_ns, which)
        value = replica.ttft.quantile_s(0.95)
        if value is not None:
            yield Sample.ok(REPLICA_TTFT, value, window.end_ns, which)


def _histogram(histograms: Histograms, name: str, q: float) -> float | None:
    if name not in HISTOGRAMS:
        raise KeyError(name)
    found = getattr(histograms, name)
    value: float | None = found.quantile_s(q)
    return value


def _known(metric: Metric, value: float | None, at_ns: int, why: str) -> Sample:
    if value is None:
        return Sample.unknown(metric, State.ABSENT, at_ns, why=why)
    return Sample.ok(metric, value, at_ns)
