"""The state of a run in one frozen snapshot, for the terminal and for ``/status``."""

from __future__ import annotations

from collections.abc import Iterable, Reversible

from soakd.load.messages import Tick
from soakd.model import Event, GpuIdentity, Labels, Severity
from soakd.report.progress import Progress, ProgressFinding, ProgressGpu
from soakd.soak.feed import Feed

_MOST_FINDINGS = 5


class LiveView:
    """Keeps what two ticks tell together: errors a minute, how long the target has been down."""

    def __init__(self, run_id: str, *, simulated: bool, gpus: tuple[GpuIdentity, ...], gpu_note: str) -> None:
        self._run_id = run_id
        self._simulated = simulated
        self._gpus = gpus
        self._gpu_note = gpu_note
        self._before: Tick | None = None

    def begins(self, run_id: str) -> None:
        self._run_id = run_id

    def snapshot(self, tick: Tick, feed: Feed) -> Progress:
        progress = Progress(
            run_id=self._run_id,
            elapsed_s=tick.elapsed_s,
            total_s=tick.duration_s,
            stage=tick.stage,
            simulated=self._simulated,
            rate_per_s=tick.rate_per_s,
            concurrency=float(tick.in_flight),
            e2e_p95_s=tick.e2e_p95_s,
            ttft_p95_s=tick.ttft_p95_s,
            output_tokens_per_s=self._token_rate(tick),
            completed=tick.completed,
            failed=tick.failed,
            gpus=tuple(self._gpu(g, feed) for g in self._gpus),
            gpu_note=self._gpu_note,
            rss_bytes=_value(feed, "server_process_rss_bytes", (("role", "total"),)),
            findings=_findings(feed.events),
            target_down_s=_down_s(feed.events, tick.at_ns),
        )
        self._before = tick
        return progress

    def _token_rate(self, tick: Tick) -> float | None:
        before = self._before
        if before is None or tick.elapsed_s <= before.elapsed_s:
            return None
        # one tick is one real second
        return float(tick.tokens_out - before.tokens_out)

    def _gpu(self, gpu: GpuIdentity, feed: Feed) -> ProgressGpu:
        return ProgressGpu(
            name=f"{gpu.name} {gpu.bdf}",
            temperature_celsius=_value(feed, "gpu_temperature_celsius", (*gpu.labels, ("sensor", "core"))),
            memory_used_bytes=_value(feed, "gpu_memory_used_bytes", gpu.labels),
            memory_total_bytes=_value(feed, "gpu_memory_total_bytes", gpu.labels),
            power_watts=_value(feed, "gpu_power_watts", (*gpu.labels, ("reading", "usage"))),
        )


def _value(feed: Feed, metric: str, wanted: Labels) -> float | None:
    for sample in feed.latest(metric):
        if set(wanted) <= set(sample.labels):
            return sample.value
    return None


def _findings(events: Iterable[Event]) -> tuple[ProgressFinding, ...]:
    found = [e for e in events if e.severity is not Severity.INFO]
    return tuple(ProgressFinding(e.severity, e.what) for e in found[-_MOST_FINDINGS:])


def _down_s(events: Reversible[Event], now_ns: int) -> float | None:
    for event in reversed(events):
        if event.kind == "load.first_success":
            return None
        if event.kind == "load.outage":
            return max(0.0, (now_ns - event.at_ns) / 1e9)
    return None
