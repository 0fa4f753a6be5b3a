"""Live progress: a panel on a terminal, a plain line a minute elsewhere. Both draw one frozen `Progress`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from soakd.model import Severity
from soakd.report.wording import clean, say, say_duration

MAX_FINDINGS = 5
_STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.INFO: "dim"}


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


class ProgressView(Protocol):
    """Where progress goes. Used as a context manager; ``show`` may be called as often as wished."""

    def __enter__(self) -> ProgressView: ...
    def __exit__(self, *exc: object) -> None: ...
    def show(self, progress: Progress) -> None: ...


def open_progress(console: Console, *, every_s: float = 60.0) -> ProgressView:
    """A live panel where ``console`` (of stderr) is a terminal, else a plain line each ``every_s`` of the run's clock.

    In a rehearsal give ``60 * speed``, so that a line still comes each real minute.
    """
    return (
        LiveProgress(console)
        if console.is_terminal and not console.is_dumb_terminal
        else LineProgress(console, every_s)
    )


class LiveProgress:
    """A panel redrawn in place; gone at the end, since the final table follows."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)

    def __enter__(self) -> LiveProgress:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def show(self, progress: Progress) -> None:
        self._live.update(progress_panel(progress), refresh=True)


class LineProgress:
    """A line at the start, at each change of stage, at each new finding and every ``every_s``."""

    def __init__(self, console: Console, every_s: float = 60.0) -> None:
        self._console = console
        self._every_s = every_s
        self._last: Progress | None = None

    def __enter__(self) -> LineProgress:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def show(self, progress: Progress) -> None:
        if due(self._last, progress, self._every_s):
            self._last = progress
            self._console.out(progress_line(progress), highlight=False)


def due(last: Progress | None, now: Progress, every_s: float) -> bool:
    """Is a line due? Pure."""
    if last is None or now.elapsed_s - last.elapsed_s >= every_s or now.stage != last.stage:
        return True
    if (now.target_down_s is None) != (last.target_down_s is None):
        return True
    return not set(now.findings) <= set(last.findings)


def progress_line(progress: Progress) -> str:
    """One line of plain text, without colour: ``12m of 2h measure 29.8 requests/s P95 412 ms ...``."""
    parts = [f"{say_duration(progress.elapsed_s)} of {_total(progress)}", clean(progress.stage, 40)]
    if progress.simulated:
        parts.insert(0, "SIMULATED")
    if progress.target_down_s is not None:
        parts.append(f"TARGET DOWN for {say_duration(progress.target_down_s)}")
    parts += [f"{name} {value}" for name, value in _figures(progress)]
    parts += [f"{f.severity.value}: {clean(f.title, 120)}" for f in progress.findings[:MAX_FINDINGS]]
    if len(progress.findings) > MAX_FINDINGS:
        parts.append(f"{len(progress.findings) - MAX_FINDINGS} more findings")
    return " | ".join(parts)


def progress_panel(progress: Progress) -> RenderableType:
    """The live panel; fits any width from about 30 columns."""
    head = Text()
    if progress.simulated:
        head.append(" SIMULATED ", "bold white on magenta")
        head.append(" ")
    head.append(f"{say_duration(progress.elapsed_s)} of {_total(progress)}", "bold")
    head.append(f"  {clean(progress.stage, 40)}")
    if progress.target_down_s is not None:
        head.append(f"  target down for {say_duration(progress.target_down_s)}", "bold red")
    rows: list[RenderableType] = [head]
    if progress.total_s:
        # a bar alone ends without a line end, and what follows would be drawn over its right half
        bar = Table.grid(expand=True)
        bar.add_row(ProgressBar(total=progress.total_s, completed=min(progress.elapsed_s, progress.total_s)))
        rows.append(bar)
    rows.append(
        Columns([Text.assemble((f"{name} ", "dim"), value) for name, value in _figures(progress)], padding=(0, 3))
    )
    for finding in progress.findings[:MAX_FINDINGS]:
        rows.append(Text(f"{finding.severity.value}: {clean(finding.title, 160)}", _STYLES[finding.severity]))
    if len(progress.findings) > MAX_FINDINGS:
        rows.append(Text(f"… {len(progress.findings) - MAX_FINDINGS} more findings", "dim"))
    return Panel(Group(*rows), title=Text(f"soakd {clean(progress.run_id, 40)}".rstrip()), title_align="left")


def _total(progress: Progress) -> str:
    return "no set end" if progress.total_s is None else say_duration(progress.total_s)


def _figures(progress: Progress) -> list[tuple[str, str]]:
    errors = f"{progress.failed:,}"
    if progress.errors_per_minute is not None:
        errors += f" ({say(progress.errors_per_minute, '/min')} now)"
    figures = [
        ("rate", say(progress.rate_per_s, "/s")),
        ("P95", say(progress.e2e_p95_s, "s")),
        ("TTFT P95", say(progress.ttft_p95_s, "s")),
        ("tokens", say(progress.output_tokens_per_s, "/s")),
        ("done", f"{progress.completed:,}"),
        ("errors", errors),
    ]
    if progress.gpus:
        # the card that is nearest to trouble speaks for all; an unreadable card is never the cooler one
        heat = [g.temperature_celsius for g in progress.gpus]
        used = [g.memory_used_bytes for g in progress.gpus]
        totals = [g.memory_total_bytes for g in progress.gpus]
        figures.append(("temp", say(_worst(heat), "celsius")))
        figures.append(("VRAM", f"{say(_worst(used), 'bytes')} of {say(_worst(totals), 'bytes')}"))
    else:
        figures.append(("GPU", clean(progress.gpu_note or "none found", 60)))
    if progress.rss_bytes is not None:
        figures.append(("RSS", say(progress.rss_bytes, "bytes")))
    return figures


def _worst(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return max(known) if len(known) == len(values) else None
