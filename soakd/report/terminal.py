"""The final table on a terminal, and the comparison's. Text from outside is never read as markup or escapes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Column, Table
from rich.text import Text

from soakd.model import Outcome, Severity
from soakd.report.facts import Target
from soakd.report.figures import latency_rows
from soakd.report.model import LimitLine, Report
from soakd.report.wording import (
    SYMBOLS,
    UNKNOWN,
    clean,
    say,
    say_count,
    say_duration,
    say_interval,
    say_labels,
    say_offset,
    say_outcome,
    say_share,
)

if TYPE_CHECKING:  # comparing brings scipy, which a report does not need
    from soakd.report.compare import Comparison

OUTCOME_STYLES = {
    Outcome.PASS: "bold green",
    Outcome.FAIL: "bold red",
    Outcome.INCONCLUSIVE: "bold yellow",
    Outcome.NOT_JUDGED: "dim",
}
SEVERITY_STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.INFO: "dim"}
MAX_LIMITS = 60
MAX_FINDINGS = 12
_WAYS = {"better": "green", "worse": "red", "same": "dim", "unknown": "yellow"}


def render_terminal(report: Report, console: Console) -> None:
    """The whole final report. The console decides on colour (NO_COLOR) and width."""
    console.print(report_view(report))


def report_view(report: Report) -> RenderableType:
    """Verdict, limits, findings and figures as one renderable."""
    parts: list[RenderableType] = [_verdict(report), _figures(report), _latencies(report)]
    parts.extend(_limits(report))
    parts.extend(_findings(report))
    parts.extend(_outages(report))
    return Group(*parts)


def comparison_view(comparison: Comparison) -> RenderableType:
    """Runs side by side; the first column is what the others are held against."""
    names = [clean(run.name + (" (SIMULATED)" if run.simulated else ""), 40) for run in comparison.runs]
    head = Text(
        "comparable" if comparison.comparable else "NOT comparable",
        "bold green" if comparison.comparable else "bold red",
    )
    table = Table(
        "measure", *(Column(Text(n)) for n in names), "verdict", "why", box=None, pad_edge=False, header_style="dim"
    )
    for row in comparison.rows:
        cells = [
            Text(f"{say(v, row.unit)}\n{say_interval(row.low[i], row.high[i], row.unit)}")
            for i, v in enumerate(row.values)
        ]
        verdict = Text("\n").join(Text(way, _WAYS[way]) for way in row.verdicts)
        table.add_row(Text(clean(row.measure, 60)), *cells, verdict, Text(clean(row.why), "dim"))
    lines = [
        Text(
            f"  {'!' if d.decisive else ' '} {clean(d.what, 60)}: {' / '.join(clean(v, 80) for v in d.values)}: {d.why}"
        )
        for d in comparison.differences
    ]
    return Group(head, *lines, table)


def _verdict(report: Report) -> RenderableType:
    style = OUTCOME_STYLES[report.outcome]
    text = Text(f"{SYMBOLS[report.outcome]} {report.outcome.value}", style)
    text.append(f"  {clean(report.why, 600)}", "default")
    if report.interrupted:
        by = f" ({clean(report.interrupted_by, 80)})" if report.interrupted_by else ""
        text.append(
            f"\ninterrupted{by} after {say_duration(report.duration_s)} of {say_duration(report.wanted_duration_s)}"
        )
    if report.safety_stop:
        text.append(f"\nsafety stop at {say_offset(report.safety_stop.t_s)}: {clean(report.safety_stop.why)}")
    title = Text(f"soakd {clean(report.run_id, 60)}")
    if report.simulated:
        title.append(" SIMULATED", "bold white on magenta")
    return Panel(text, title=title, title_align="left", border_style=style)


def _figures(report: Report) -> RenderableType:
    load, target = report.load, report.target
    asked = load.rate_asked_per_s
    heat = [g.temperature_celsius.high for g in report.cards]
    vram = [g.memory_used_bytes.high for g in report.cards]
    rows = [
        (
            "target",
            f"{clean(target.model, 80) or UNKNOWN} on {clean(target.server or target.kind, 60) or UNKNOWN}"
            f" at {clean(target.url, 100)}",
        ),
        ("process", _process(target)),
        ("duration", f"{say_duration(report.duration_s)} of {say_duration(report.wanted_duration_s)}"),
        (
            "requests",
            f"{say_count(load.completed)} completed, {say_count(load.failed)} failed, "
            f"{say_count(load.dropped)} dropped by the generator",
        ),
        (
            "rate",
            say(load.rate_per_s, "requests/s") + (f" of {say(asked, 'requests/s')} asked" if asked is not None else ""),
        ),
        (
            "concurrency",
            say(load.concurrency_achieved)
            + (f" of {say(load.concurrency_asked)} asked" if load.concurrency_asked is not None else ""),
        ),
        ("output", say(load.output_tokens_per_s, "tokens/s")),
        (
            "errors",
            ", ".join(f"{clean(k, 40)} {n:,}" for k, n in list(load.errors.items())[:12])
            or ("none" if load.failed == 0 else UNKNOWN),
        ),
        (
            "GPU",
            f"{len(report.cards)}, VRAM peak {_peak(vram, 'bytes')}, hottest {_peak(heat, 'celsius')}"
            if report.gpus
            else clean(report.gpu_note or "no GPU found", 120),
        ),
    ]
    table = Table.grid(padding=(0, 2))
    for name, value in rows:
        table.add_row(Text(name, "dim"), Text(value))
    return table


def _process(target: Target) -> str:
    pid = f"pid {target.pid}" if target.pid is not None else UNKNOWN
    how = clean(target.picked_by, 240)
    return how if how.startswith(pid) else f"{pid}, {how}" if how else pid


def _latencies(report: Report) -> RenderableType:
    table = Table(
        "latency",
        *(Column(h, justify="right") for h in ("P50", "P95", "P99", "max", "count")),
        box=None,
        pad_edge=False,
        header_style="dim",
    )
    for name, _, figures in latency_rows(report.load):
        values = (figures.p50, figures.p95, figures.p99, figures.max)
        table.add_row(name, *(Text(say(v, "s")) for v in values), Text(f"{figures.count:,}"))
    return table


def _limits(report: Report) -> Iterable[RenderableType]:
    """The failed first, the reason below the figures: a column for each would be too narrow on 80 columns.

    What was not judged comes last, one line for each reason.
    """
    order = (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS)
    ranked = sorted((x for x in report.limits if x.outcome in order), key=lambda line: order.index(line.outcome))
    table = Table.grid(padding=(0, 1))
    for line in ranked[:MAX_LIMITS]:
        figures = f"{say(line.value, line.unit)}, allowed {say(line.limit, line.unit)}"
        text = Text.assemble((_named(line), "bold"), f": {figures}, coverage {say_share(line.coverage)}")
        if line.outcome is not Outcome.PASS:
            text.append(f"\n{clean(line.why, 400)}", "dim")
        _add(table, line.outcome, text)
    reasons: dict[str, list[LimitLine]] = {}
    for line in report.limits:
        if line.outcome not in order:
            reasons.setdefault(clean(line.why, 400), []).append(line)
    for why, lines in list(reasons.items())[:MAX_LIMITS]:
        if len(lines) == 1:
            text = Text.assemble((_named(lines[0]), "bold"), (f": {why}", "dim"))
        else:
            names = clean(", ".join(dict.fromkeys(line.name for line in lines)), 400)
            text = Text.assemble((f"{len(lines)} limits", "bold"), f": {why}\n", (names, "dim"))
        _add(table, lines[0].outcome, text)
    if table.row_count:
        yield table
    more = sum(max(0, n - MAX_LIMITS) for n in (len(ranked), len(reasons)))
    if more:
        yield Text(f"… {more} more limits", "dim")


def _named(line: LimitLine) -> str:
    """The limit and what it was judged on; the total of a process tree goes without saying."""
    labels = {k: v for k, v in line.labels.items() if (k, v) != ("role", "total")}
    return clean(line.name, 60) + (f" ({say_labels(labels)})" if labels else "")


def _add(table: Table, outcome: Outcome, text: Text) -> None:
    status = f"{SYMBOLS[outcome]} {say_outcome(outcome)}"
    table.add_row(Text(status, OUTCOME_STYLES[outcome], no_wrap=True), text)


def _findings(report: Report) -> Iterable[RenderableType]:
    order = list(SEVERITY_STYLES)
    shown = sorted(report.findings, key=lambda f: order.index(f.severity))
    for finding in shown[:MAX_FINDINGS]:
        line = Text(f"{finding.severity.value:<9}", SEVERITY_STYLES[finding.severity])
        line.append(f"{say_offset(finding.t_s)} {clean(finding.title, 160)}", "default")
        if finding.detail:
            line.append(f"\n         {clean(finding.detail, 300)}", "dim")
        yield line
    more = len(shown) - MAX_FINDINGS + report.findings_left_out
    if more > 0:
        yield Text(f"… {more} more findings", "dim")


def _outages(report: Report) -> Iterable[RenderableType]:
    for outage in report.outages[:10]:
        back = "not back" if outage.first_success is None else f"first success {say_offset(outage.first_success_s)}"
        whole = "not recovered" if outage.recovered is None else f"recovered {say_offset(outage.recovered_s)}"
        lost = f"{say_count(outage.requests_lost)} requests lost"
        yield Text(f"outage   {say_offset(outage.start_s)} {back}, {whole}, {lost} {clean(outage.cause, 120)}".rstrip())


def _peak(values: list[float | None], unit: str) -> str:
    known = [v for v in values if v is not None]
    return say(max(known), unit) if known and len(known) == len(values) else UNKNOWN
