"""Run comparison: is this run better or worse than those before?"""

from __future__ import annotations

from collections.abc import Sequence

from soakd.dashboards.board import Board, Metrics, Row, hosts, marks, runs
from soakd.dashboards.influxql import HOST, RUN, is_, like, now, trend
from soakd.dashboards.panels import Column, Look, Panel, Text, graph, rows
from soakd.metrics import Catalogue

_HERE = [HOST, RUN]
_BY = ("host", "run")
_ABOUT = ("profile", "model", "target", "simulated")
_SLOW = Look(interval="1m")


def board(catalogue: Catalogue) -> Board:
    metric = Metrics(catalogue)
    return Board(
        "soakd-compare",
        "soakd: Run comparison",
        "Is a run better or worse than others? Intervals (99 %) that overlap are no difference; what was seen once has "
        "none. `soakd compare` judges by the same figures.",
        (hosts(), runs(several=True)),
        (
            Row("Verdicts", _verdicts(metric)),
            Row("Figures with their intervals", _figures(metric)),
            Row("Growth", _growth(metric)),
            Row("Over time", _over_time(metric)),
        ),
        span="now-7d",
        refresh="5m",
        annotations=marks(_HERE)[:1],
    )


def _verdicts(metric: Metrics) -> tuple[Panel, ...]:
    def limits(outcome: str, column: str, steps: Sequence[tuple[float, str]] = ()) -> Column:
        return Column(now(metric("soak_limits"), _BY, [*_HERE, is_("outcome", outcome)], column), steps)

    return (
        rows(
            Text("Runs", "What was run, and how did it end? Compare runs of one profile and model."),
            (
                Column(now(metric("soak_outcome"), (*_BY, *_ABOUT), _HERE, "verdict")),
                Column(now(metric("soak_duration_seconds"), _BY, _HERE, "length")),
                Column(now(metric("soak_coverage_ratio"), _BY, _HERE, "evidence")),
                limits("PASS", "passed"),
                limits("FAIL", "failed", ((1, "red"),)),
                limits("INCONCLUSIVE", "open", ((1, "orange"),)),
                limits("NOT_JUDGED", "not judged"),
            ),
            Look(24, 8), keep_time="ended", sort="ended",
        ),
        rows(
            Text("Limits, run by run", "Which limits are judged differently?"),
            (Column(now(metric("soak_limit_outcome"), ("limit", "series", "bdf", *_BY), _HERE, "outcome")),),
            Look(24, 9), sort="outcome",
        ),
    )  # fmt: skip


def _figures(metric: Metrics) -> tuple[Panel, ...]:
    def table(title: str, question: str, name: str) -> Panel:
        by = ("measure", *_BY)
        bounds = (("figure", "value"), ("low", "low"), ("high", "high"))
        columns = [Column(now(metric(name), by, [*_HERE, is_("bound", b)], column)) for column, b in bounds]
        return rows(Text(title, question), columns, Look(12, 9), sort="measure")

    return (
        table("Latencies and times", "Is it slower, beyond the intervals?", "soak_result_seconds"),
        table("Requests a second", "Does it complete more requests?", "soak_result_requests_per_second"),
        table("Output tokens a second", "Does it write more tokens?", "soak_result_tokens_per_second"),
        table("Shares", "Fewer errors, better used, less slowed by age?", "soak_result_ratio"),
        table("Incidents", "Did rare things happen more often? None seen once says little of the next run.",
              "soak_result_incidents"),
        table("Temperature", "Does the hottest card run hotter?", "soak_result_celsius"),
        table("Peak of VRAM", "Does it need more memory?", "soak_result_bytes"),
    )  # fmt: skip


def _growth(metric: Metrics) -> tuple[Panel, ...]:
    slope = metric("soak_growth_bytes_per_hour")
    by = ("series", "bdf", *_BY)
    bounds = (("slope", "fit"), ("low", "low"), ("high", "high"))
    return (
        rows(
            Text("Growth of memory, run by run", "Does a leak come and go with a version?"),
            (
                Column(now(metric("soak_growth_verdict"), by, [*_HERE, like("series", "_bytes")], "verdict")),
                *(Column(now(slope, by, [*_HERE, is_("bound", b)], name)) for name, b in bounds),
            ),
            Look(24, 9), sort="series",
        ),
    )  # fmt: skip


def _over_time(metric: Metrics) -> tuple[Panel, ...]:
    def lines(title: str, question: str, name: str, pick: str = "mean") -> Panel:
        return graph(Text(title, question), (trend(metric(name), _BY, _HERE, "$tag_host $tag_run", pick),), _SLOW)

    return (
        lines("E2E P95", "When in a run did it become slow?", "load_e2e_p95_seconds", "max"),
        lines("TTFT P95, from due", "The same for the first token.", "load_ttft_from_due_p95_seconds", "max"),
        lines("Completed requests", "Does the rate hold to the end in every run?", "load_requests_per_second"),
        lines("Output tokens", "Does the throughput hold to the end in every run?", "load_output_tokens_per_second"),
        graph(
            Text("VRAM used", "Do the runs start from the same level, and end there?"),
            (trend(metric("gpu_memory_used_bytes"), (*_BY, "bdf"), _HERE, "$tag_host $tag_run $tag_bdf", "max"),),
            _SLOW,
        ),
        graph(
            Text("Core temperature", "Is it warmer in one run, at what power?"),
            (trend(metric("gpu_temperature_celsius"), (*_BY, "bdf"), [*_HERE, like("sensor", "^core$")],
                   "$tag_host $tag_run $tag_bdf", "max"),),
            _SLOW,
        ),
    )  # fmt: skip
