"""The series of a report's charts, read from the journal in at most a few hundred steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from soakd.journal.reader import JournalReader
from soakd.journal.records import Buckets
from soakd.model import Kind
from soakd.report.charts import MAX_POINTS, Charts, ChartSeries
from soakd.soak.gather import Window

_MOST_SERIES = 48


@dataclass(frozen=True, slots=True)
class Span:
    """Seconds since the run began."""

    from_s: float
    to_s: float


@dataclass(frozen=True, slots=True)
class _Line:
    metric: str
    panel: str
    name: str
    where: tuple[tuple[str, str], ...] = ()


_LINES = (
    _Line("load_e2e_p95_seconds", "latency", "E2E P95"),
    _Line("load_ttft_from_due_p95_seconds", "latency", "TTFT P95 (from due)"),
    _Line("load_itl_p95_seconds", "latency", "ITL P95"),
    _Line("load_requests_per_second", "rate", "completed requests"),
    _Line("load_output_tokens_per_second", "rate", "output tokens"),
    _Line("load_requests_failed_total", "errors", "failed requests"),
    _Line("gpu_ecc_errors_total", "errors", "corrected ECC errors", (("counter", "volatile"), ("error", "corrected"))),
    _Line(
        "gpu_ecc_errors_total", "errors", "uncorrected ECC errors", (("counter", "volatile"), ("error", "uncorrected"))
    ),
    _Line("pcie_aer_severity_errors_total", "errors", "correctable PCIe errors", (("severity", "correctable"),)),
    _Line("gpu_memory_used_bytes", "memory", "VRAM used"),
    _Line("server_process_anon_swap_bytes", "memory", "server's host memory", (("role", "total"),)),
    _Line("allocator_reserved_bytes", "memory", "allocator reserved", (("pool", "all"),)),
    _Line("gpu_temperature_celsius", "temperature", "core", (("sensor", "core"),)),
    _Line("gpu_temperature_celsius", "temperature", "memory", (("sensor", "memory"),)),
    _Line("gpu_power_watts", "power", "power", (("reading", "usage"),)),
    _Line("server_requests_running", "other", "running at the server"),
    _Line("server_requests_waiting", "other", "waiting at the server"),
    _Line("server_kv_cache_usage_ratio", "other", "KV cache in use"),
)


def read_charts(reader: JournalReader, window: Window) -> Charts:
    """Counters are shown as a rate per second (errors: per minute); everything else as mean, lowest and highest."""
    series: list[ChartSeries] = []
    for line in _LINES:
        for key in reader.series(line.metric, window.run_id):
            if not set(line.where) <= set(key.labels):
                continue
            if len(series) >= _MOST_SERIES:
                return Charts(window.duration_s, tuple(series))
            buckets = reader.buckets(key.metric.name, key.labels, run_id=window.run_id, max_points=MAX_POINTS // 2)
            if len(buckets.start_ns):
                series.append(_series(line, buckets, window))
    return Charts(window.duration_s, tuple(series))


def _series(line: _Line, buckets: Buckets, window: Window) -> ChartSeries:
    t_s = tuple((start + buckets.width_ns / 2 - window.start_ns) / 1e9 for start in buckets.start_ns.tolist())
    tags = dict(buckets.labels)
    if buckets.metric.kind is Kind.COUNTER:
        per = 60.0 if line.panel == "errors" else 1.0
        unit = f"{buckets.metric.unit}/{'min' if per == 60.0 else 's'}"
        scale = per / (buckets.width_ns / 1e9)
        return ChartSeries(
            line.name, unit, line.panel, t_s, tuple(v * scale for v in buckets.increase.tolist()), labels=tags
        )
    return ChartSeries(
        line.name, buckets.metric.unit, line.panel, t_s, _known(buckets.mean.tolist()),
        _known(buckets.minimum.tolist()), _known(buckets.maximum.tolist()), tags,
    )  # fmt: skip


def _known(values: list[float]) -> tuple[float | None, ...]:
    return tuple(None if math.isnan(v) else v for v in values)


_MEASURED = (
    ("e2e_p50", "load_e2e_p50_seconds"), ("e2e_p95", "load_e2e_p95_seconds"), ("e2e_p99", "load_e2e_p99_seconds"),
    ("ttft_p50", "load_ttft_p50_seconds"), ("ttft_p95", "load_ttft_p95_seconds"),
    ("ttft_from_due_p95", "load_ttft_from_due_p95_seconds"), ("itl_p50", "load_itl_p50_seconds"),
    ("itl_p95", "load_itl_p95_seconds"), ("request_rate", "load_requests_per_second"),
    ("output_tokens_rate", "load_output_tokens_per_second"), ("error_ratio", "load_error_ratio"),
)  # fmt: skip


def window_values(reader: JournalReader, metric: str, window: Window, span: Span) -> tuple[float, ...]:
    """The readings of a load metric within the span, one for each window of the load, in order; empty for none."""
    keys = reader.series(metric, window.run_id)
    if len(keys) != 1:
        return ()
    first, last = (window.start_ns + int(s * 1e9) for s in (span.from_s, span.to_s))
    # a window's reading is stamped with its end
    series = reader.read(metric, keys[0].labels, first + 1, last + 1, window.run_id)
    return tuple(float(v) for v in series.values)


def measured_windows(reader: JournalReader, window: Window, span: Span) -> dict[str, tuple[float, ...]]:
    """By a measure's name, its values in the windows of the measured stages."""
    return {name: window_values(reader, metric, window, span) for name, metric in _MEASURED}
