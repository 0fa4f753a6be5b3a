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
class _Line:
    metric: str
    panel: str
    name: str
    where: tuple[tuple[str, str], ...] = ()


_LINES = (
    _Line("load_e2e_p95_seconds", "latency", "E2E P95"),
    _Line("load_ttft_from_due_p95_seconds", "latency", "TTFT P95 (from due)"),
    _Line("load_itl_p95_seconds", "latency", "ITL P95"),
    _Line("load_requests_completed_total", "rate", "completed requests"),
    _Line("load_output_tokens_total", "rate", "output tokens"),
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


def window_values(reader: JournalReader, metric: str, window: Window) -> tuple[float | None, ...]:
    """The readings of a load metric, one for each window of the run, in order; empty when there are none."""
    keys = reader.series(metric, window.run_id)
    if len(keys) != 1:
        return ()
    return tuple(reader.read(metric, keys[0].labels, run_id=window.run_id).values)
