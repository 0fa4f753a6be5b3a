"""Live progress: a panel on a terminal, a plain line a minute elsewhere. Both draw one frozen `Progress`."""

from __future__ import annotations

from dataclasses import dataclass

from soakd.model import Severity


@dataclass(frozen=True, slots=True)
class ProgressFinding:
    """A finding that holds now, in one line."""

    severity: Severity
    title: str


@dataclass(frozen=True, slots=True)
class ProgressGpu:
    """A card now. None is unknown."""

    name: str
    temperature_celsius: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    power_watts: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """The run now. Rates and percentiles are of the last window; ``failed`` counts since the start; None is unknown.

    ``gpu_note`` says why ``gpus`` is empty. ``total_s`` None: the run has no planned end.
    """

    run_id: str
    elapsed_s: float
    total_s: float | None
    stage: str
    simulated: bool = False
    rate_per_s: float | None = None
    concurrency: float | None = None
    e2e_p95_s: float | None = None
    ttft_p95_s: float | None = None
    output_tokens_per_s: float | None = None
    completed: int = 0
    failed: int = 0
    errors_per_minute: float | None = None
    gpus: tuple[ProgressGpu, ...] = ()
    gpu_note: str = ""
    rss_bytes: float | None = None
    findings: tuple[ProgressFinding, ...] = ()
    target_down_s: float | None = None
    """Seconds since the target stopped answering; None while it answers."""
