"""Soak run: what happened to load, latency, memory, temperature and errors, on one time axis?"""

from __future__ import annotations

from soakd.dashboards.board import Board, Metrics, Row, gpus, happened, hosts, marks, runs
from soakd.dashboards.influxql import GPU, HOST, RUN, Query, gained, like, now, rate, timeline, trend
from soakd.dashboards.panels import Column, Look, Panel, Text, figure, graph, log, rows, states
from soakd.metrics import Catalogue

_HERE = [HOST, RUN]
_CARD = [HOST, RUN, GPU]
_BAD = {"yes": "red", "no": "green"}


def board(catalogue: Catalogue) -> Board:
    metric = Metrics(catalogue)
    return Board(
        "soakd-run",
        "soakd: Soak run",
        "What happened in one soak, and what else happened at that moment? Events stand on the axis of every graph.",
        (hosts(several=False), runs(several=False), gpus()),
        (
            Row("Verdict", _verdict(metric)),
            Row("Load", _load(metric)),
            Row("Latency", _latency(metric)),
            Row("Errors", _errors(metric)),
            Row("Memory", _memory(metric)),
            Row("Heat and power", _heat(metric)),
            Row("Evidence", _evidence(metric)),
        ),
        span="now-3h",
        refresh="10s",
        annotations=marks(_HERE),
    )


def _verdict(metric: Metrics) -> tuple[Panel, ...]:
    return (
        figure(
            Text("Verdict", "How did the run end? A run that has not ended has no reading."),
            now(metric("soak_outcome"), ("run",), _HERE, "verdict"), Look(4, 4),
        ),
        figure(
            Text("Length", "How long did it run?"),
            now(metric("soak_duration_seconds"), ("run",), _HERE, "length"), Look(4, 4),
        ),
        figure(
            Text("Evidence", "How much of the evidence wanted was there?"),
            now(metric("soak_coverage_ratio"), ("run",), _HERE, "evidence"), Look(4, 4),
        ),
        rows(
            Text("Limits, the worst first", "Which limits failed, and which could not be judged?"),
            (
                Column(now(metric("soak_limit_outcome"), ("limit", "series", "bdf"), _HERE, "outcome")),
            ),
            Look(12, 8), sort="outcome",
        ),
    )  # fmt: skip


def _load(metric: Metrics) -> tuple[Panel, ...]:
    def line(name: str, alias: str) -> Query:
        return trend(metric(name), ("run",), _HERE, alias)

    return (
        graph(
            Text("Requests", "Did the server keep up with what was offered?"),
            (line("load_offered_per_second", "offered"), line("load_requests_per_second", "completed")),
        ),
        graph(
            Text("Requests in flight", "Was the concurrency that was asked for reached, and where did requests wait?"),
            (
                line("load_concurrency_asked", "asked"),
                line("load_concurrency", "achieved"),
                trend(metric("server_requests_running"), ("replica",), _HERE, "running on $tag_replica"),
                trend(metric("server_requests_waiting"), ("replica",), _HERE, "waiting on $tag_replica"),
            ),
        ),
        graph(
            Text("Output tokens", "Does the throughput of tokens hold?"),
            (line("load_output_tokens_per_second", "output tokens"),),
        ),
        graph(
            Text("KV cache", "How full is the KV cache? Preemptions begin when it is full."),
            (trend(metric("server_kv_cache_usage_ratio"), ("replica",), _HERE, "$tag_replica"),),
            Look(maximum=1.0, minimum=0.0, steps=((0.95, "orange"),)),
        ),
    )


def _latency(metric: Metrics) -> tuple[Panel, ...]:
    def percentiles(title: str, question: str, prefix: str) -> Panel:
        lines = tuple(
            trend(metric(f"{prefix}_{p}_seconds"), ("run",), _HERE, p.upper(), "max") for p in ("p50", "p95", "p99")
        )
        return graph(Text(title, question), lines, Look(minimum=0.0))

    return (
        percentiles("TTFT, from due", "How long from when a request was due until its first token?",
                    "load_ttft_from_due"),
        percentiles("ITL", "How long are the gaps between tokens? Stalls show in P99.", "load_itl"),
        percentiles("E2E", "How long does a whole answer take?", "load_e2e"),
        percentiles("Send lag of the load generator", "Was soakd itself late? Then latencies are not the server's.",
                    "load_send_lag"),
    )  # fmt: skip


def _errors(metric: Metrics) -> tuple[Panel, ...]:
    def gain(name: str, alias: str) -> Query:
        return gained(metric(name), _HERE, alias)

    return (
        graph(
            Text("Failed requests by class, running total", "What kind of failure, and when? A class is there from its "
                 "first failure on."),
            (trend(metric("load_errors_total"), ("class",), _HERE, "$tag_class", "last"),), Look(8),
        ),
        graph(
            Text("Requests lost on the way", "How many failed, were never sent, sent again or pre-empted?"),
            (
                gain("load_requests_failed_total", "failed"), gain("load_requests_dropped_total", "never sent"),
                gain("load_requests_retried_total", "sent again"), gain("server_preemptions_total", "pre-empted"),
            ),
            Look(8, bars=True),
        ),
        states(
            Text("Server process", "Was the process there all the time?"),
            (timeline(metric("server_process_up"), ("host",), _HERE, "process"),), Look(8, interval="1m"),
        ),
        log(Text("Events of the run", "What happened, in order?"), happened(_HERE), Look(24, 8)),
    )  # fmt: skip


def _memory(metric: Metrics) -> tuple[Panel, ...]:
    return (
        graph(
            Text("VRAM used", "Does the memory of a card grow? See the leak hunt for slopes."),
            (trend(metric("gpu_memory_used_bytes"), ("bdf",), _CARD, "$tag_bdf", "max"),), Look(interval="1m"),
        ),
        graph(
            Text("Memory of the server's processes", "Does host memory grow? Anonymous and swapped memory is what "
                 "leaks; RSS alone is blind on a host that swaps."),
            (
                trend(metric("server_process_anon_swap_bytes"), ("role",), _HERE, "anonymous + swap, $tag_role"),
                trend(metric("server_process_rss_bytes"), ("role",), _HERE, "RSS, $tag_role"),
            ),
            Look(interval="1m"),
        ),
    )  # fmt: skip


def _heat(metric: Metrics) -> tuple[Panel, ...]:
    return (
        graph(
            Text("Temperature", "How hot did each sensor of each card get?"),
            (trend(metric("gpu_temperature_celsius"), ("bdf", "sensor"), _CARD, "$tag_bdf $tag_sensor", "max"),),
            Look(interval="1m"),
        ),
        graph(
            Text("Power", "Is the card at its limit? The power cap at full load is normal."),
            (
                trend(metric("gpu_power_watts"), ("bdf", "reading"), _CARD, "$tag_bdf $tag_reading"),
                trend(metric("gpu_power_limit_watts"), ("bdf", "limit"), [*_CARD, like("limit", "^enforced$")],
                      "$tag_bdf limit", "last"),
            ),
            Look(interval="1m"),
        ),
        graph(
            Text("Throttled, share of time", "How much of the time did the card slow itself down, and why?"),
            (rate(metric("gpu_throttle_seconds_total"), _CARD, "$tag_bdf $tag_reason"),),
            Look(interval="1m", minimum=0.0),
        ),
        graph(
            Text("Clock of the SMs", "Did the clock drop?"),
            (trend(metric("gpu_clock_hertz"), ("bdf", "clock"), [*_CARD, like("clock", "^sm$")], "$tag_bdf"),),
            Look(interval="1m"),
        ),
    )  # fmt: skip


def _evidence(metric: Metrics) -> tuple[Panel, ...]:
    return (
        states(
            Text("Collectors", "Was everything read all the time? What was not read can't be judged."),
            (timeline(metric("collector_up"), ("collector",), _HERE, "$tag_collector"),),
            Look(12, 10, interval="2m"),
        ),
        states(
            Text("Throttle reasons, as polled", "Which reasons were active at the moments of reading? Time counters "
                 "above say for how long."),
            (timeline(metric("gpu_throttle_active"), ("bdf", "reason"), _CARD, "$tag_bdf $tag_reason", "max"),),
            Look(12, 10, interval="1m"), colours=_BAD,
        ),
    )  # fmt: skip
