"""After the load: reads the evidence back, compares both sides' counts, judges, and writes the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from soakd.analysis.drills import attributed, drill_spans
from soakd.analysis.evidence import RunEvidence
from soakd.analysis.latency import LatencyQuestion, Retention, coincidences, decode_retention, judge_latency
from soakd.analysis.verdict import judge_run
from soakd.journal.reader import JournalReader
from soakd.journal.records import RunRecord
from soakd.journal.writer import Journal
from soakd.load.messages import Done, Outage
from soakd.model import Event, Finding, LimitResult, Outcome, RunState, Severity
from soakd.report.charts import Charts
from soakd.report.facts import Journal as JournalFacts
from soakd.report.html import render_html
from soakd.report.markdown import render_markdown
from soakd.report.measures import measures_of
from soakd.report.model import Report, to_json_bytes
from soakd.soak import agreement, canaries, cards, ratios, reporting
from soakd.soak.charts import Span, measured_windows, read_charts, window_values
from soakd.soak.gather import Window, gather, load_evidence
from soakd.soak.reboots import host_reboot
from soakd.soak.run_facts import RunFacts
from soakd.soak.session import Ending, Seen
from soakd.soak.sharing import strangers
from soakd.soak.window_store import BLOB as WINDOW
from soakd.soak.window_store import TAIL, tail_of, totals, with_tail

_COUNTERS = (
    "gpu_ecc_errors_total",
    "gpu_throttle_seconds_total",
    "pcie_aer_severity_errors_total",
    "pcie_replays_total",
    "server_requests_completed_total",
    "server_generated_tokens_total",
    "server_preemptions_total",
)


def conclude(facts: RunFacts, seen: Seen, reader: JournalReader, journal_facts: JournalFacts) -> tuple[Report, Charts]:
    """Blocks while it reads the journal; everything in it must have been flushed."""
    window = Window(facts.run_id, facts.started_ns, facts.started_ns + int(seen.duration_s * 1e9))
    planned = facts.planned
    span = Span(planned.measured_from_s, min(planned.measured_from_s + planned.measured_s, window.duration_s))
    events = reader.events(run_id=facts.run_id, kind="canary")
    retention = decode_rates(reader, window, span)
    canary = canaries.evidence(seen.done.canary if seen.done else None, events)
    load = load_evidence(seen.done, canary, retention)
    busy = load.bottleneck if facts.simulated else ""
    if busy:
        load = replace(load, bottleneck="")  # a simulated server's real-time figures claim nothing
    evidence = gather(
        reader, window, facts.planned, load, counters=_COUNTERS, intervals=facts.intervals, local=facts.target.local,
        gpu_note=facts.gpu_note, journal_dropped=sum(journal_facts.dropped.values()),
    )  # fmt: skip
    outages = attributed(evidence.load.outages, drill_spans(evidence.events))
    reboot = host_reboot(reader, window, facts.boot_id, seen.boot_id_end)
    happened = (*evidence.events, *([reboot] if reboot else ()))
    evidence = replace(evidence, load=replace(evidence.load, outages=outages), events=happened)
    counted = count_both(evidence, seen.done, facts.canary_max_tokens)
    checks = agreement.check(counted)
    counters = ratios.server_ratios(reader, window, span)
    findings = (
        *agreement.findings(counted, checks, evidence.end_ns),
        *latency_findings(reader, window, evidence),
        *ratios.findings(counters, evidence.end_ns),
        *([_busy(busy, evidence.end_ns)] if busy else ()),
    )
    extra = (*agreement.results(checks), *ending_results(facts, seen, reboot))
    judged = judge_run(facts.limits, evidence, facts.caps, extra, findings)
    inputs = reporting.Inputs(
        facts, seen, judged.evidence, judged, checks, cards.cards(evidence, facts, judged.heat),
        cards.coverage(reader, window), ratios.lines(counters), journal_facts,
    )  # fmt: skip
    report = reporting.build_report(inputs)
    report = replace(report, measures=measures_of(report, measured_windows(reader, window, span)))
    return report, read_charts(reader, window)


def _busy(why: str, at_ns: int) -> Finding:
    return Finding("load.bottleneck", Severity.INFO, "this machine was busy during the rehearsal", why, at_ns)


def decode_rates(reader: JournalReader, window: Window, span: Span) -> Retention | None:
    """Late against early decode rate of a stream, over disjoint windows of the measured part.

    By each request's mean time per token: gaps between tokens collapse to nothing where one read brings several.
    """
    gaps = window_values(reader, "load_tpot_p50_seconds", window, span)
    rates = [1 / g for g in gaps if g]
    return decode_retention(np.arange(len(rates), dtype=np.float64), np.asarray(rates)) if len(rates) >= 8 else None


_MUCH = 1.25
"""A lasting change for the worse by more than this factor is a warning."""


def latency_findings(reader: JournalReader, window: Window, evidence: RunEvidence) -> tuple[Finding, ...]:
    """Where latency or throughput changed for good, and what else happened then."""
    found: list[Finding] = []
    for metric, name, worse in (
        ("load_e2e_p95_seconds", "E2E P95", True),
        ("load_ttft_from_due_p95_seconds", "TTFT P95", True),
        ("load_output_tokens_per_second", "output tokens/s", False),
    ):
        keys = reader.series(metric, window.run_id)
        if len(keys) != 1:
            continue
        series = reader.read(metric, keys[0].labels, run_id=window.run_id)
        x = (np.asarray(series.at_ns, dtype=np.float64) - window.start_ns) / 1e9
        y = np.asarray(series.values, dtype=np.float64)
        inside = (x > evidence.measured_from_s) & (x <= evidence.measured_to_s)
        if inside.sum() < 12:
            continue
        judged = judge_latency(LatencyQuestion(x[inside], y[inside], name=name, more_is_worse=worse))
        for match in coincidences(judged, evidence.events, window.start_ns):
            at_ns = window.start_ns + int(match.change.x * 1e9)
            much_worse = max(match.change.ratio, 1 / match.change.ratio) > _MUCH and (match.change.ratio > 1) is worse
            severity = Severity.WARNING if much_worse else Severity.INFO
            found.append(Finding(f"latency.{metric}", severity, f"{name} changed", match.what, at_ns,
                                 metric=metric, value=match.change.after, unit=series.metric.unit))  # fmt: skip
    return tuple(found)


_LONGEST_ANSWER = 2048
"""Tokens that a request which was cut off may have cost the server, at most."""


def count_both(evidence: RunEvidence, done: Done | None, canary_max_tokens: int) -> agreement.Counted:
    counts = [s.counts for s in done.stages] if done else []
    canary = done.canary.answers if done and done.canary else 0
    lost_canaries = done.canary.failed if done and done.canary else 0
    unsettled = sum(c.failed + c.cancelled + c.retried for c in counts) + lost_canaries
    usage_missing = sum(c.usage_missing for c in counts)
    running = [float(np.max(t.y)) for t in evidence.track("server_requests_running") if len(t.y)]
    waiting = [float(np.max(t.y)) for t in evidence.track("server_requests_waiting") if len(t.y)]
    return agreement.Counted(
        client_requests=sum(c.completed for c in counts) + canary,
        client_tokens=sum(c.tokens_out for c in counts) if counts and not usage_missing else None,
        unsettled=unsettled,
        loose_tokens=unsettled * _LONGEST_ANSWER + canary * canary_max_tokens,
        server_requests=_gained(evidence, "server_requests_completed_total"),
        server_tokens=_gained(evidence, "server_generated_tokens_total"),
        preemptions=_gained(evidence, "server_preemptions_total"),
        asked=done.total.concurrency_asked if done else None,
        achieved=done.total.concurrency if done else None,
        running_max=sum(running) if running else None,
        waiting_max=sum(waiting) if waiting else None,
        restarted=bool(evidence.event("server.restart") or evidence.load.outages or not evidence.load.complete),
        strangers=strangers(evidence.events),
    )


def _gained(evidence: RunEvidence, metric: str) -> float | None:
    known = [g.increase for g in evidence.gain(metric) if g.increase is not None]
    return sum(known) if known else None


def ending_results(facts: RunFacts, seen: Seen, reboot: Event | None = None) -> tuple[LimitResult, ...]:
    """What ended the run early bears on its outcome: a safety stop fails it, anything else leaves it open."""
    ending = seen.ending
    if ending.safety:
        stop = ending.safety
        return (LimitResult(f"safety.{stop.rule}", Outcome.FAIL, None, None, "", 1.0, stop.why),)
    if ending.interrupted_by:
        share = min(1.0, seen.duration_s / facts.planned.total_s)
        why = f"the run was ended by {ending.interrupted_by} after {share:.0%} of its length"
        why += f": {reboot.what}" if reboot else ""
        return (LimitResult("run.complete", Outcome.INCONCLUSIVE, share, 1.0, "ratio", share, why, user_set=True),)
    return ()


def exit_code(report: Report) -> int:
    """0 PASS, 1 FAIL, 3 INCONCLUSIVE; interrupted with nothing failed: 130 (Ctrl-C) or 143 (SIGTERM)."""
    if report.outcome is Outcome.FAIL:
        return 1
    if report.interrupted_by == "Ctrl-C":
        return 130
    if report.interrupted_by == "SIGTERM":
        return 143
    return 0 if report.outcome is Outcome.PASS else 3


def write_report(report: Report, charts: Charts, data_dir: Path) -> Path:
    """``report.json``, ``report.html`` and ``report.md`` under ``<data_dir>/runs/<run id>/``. Raises OSError."""
    folder = data_dir / "runs" / report.run_id
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_bytes(to_json_bytes(report))
    (folder / "report.html").write_text(render_html(report, charts), encoding="utf-8")
    (folder / "report.md").write_text(render_markdown(report), encoding="utf-8")
    return folder


def finish(journal: Journal, seen: Seen, report: Report) -> None:
    """Put the end of the run, its findings and its report into the journal."""
    journal.add(
        [
            Finding(f.source, f.severity, f.title, f.detail, seen.ended_ns, tuple(sorted(f.labels.items())), f.metric,
                    f.value, f.unit)
            for f in report.findings
        ],
        report.run_id,
    )  # fmt: skip
    state = RunState.INTERRUPTED if report.interrupted else RunState.FINISHED
    journal.finish_run(report.run_id, state, report.outcome, seen.ended_ns, to_json_bytes(report))


def outages_of(events: Sequence[Event]) -> tuple[Outage, ...]:
    """The outages of a run from their events, where the load process could not tell them at the end."""
    found: list[Outage] = []
    for event in events:
        url = dict(event.labels).get("url", "")
        if event.kind == "load.outage":
            found.append(Outage(url, event.at_ns, None, None, 0))
        elif found and event.kind == "load.first_success":
            found[-1] = replace(found[-1], first_success_ns=event.at_ns)
        elif found and event.kind == "load.recovered":
            found[-1] = replace(found[-1], recovered_ns=event.at_ns)
    return tuple(found)


def seen_of(reader: JournalReader, run: RunRecord) -> Seen:
    """What can still be told of a run that was killed, from what it left in the journal."""
    why = "soakd was killed; these are the totals of the windows that were kept"
    done, last_ns = totals(reader.blobs(WINDOW, run.id), why)
    tail = tail_of(reader.kept(TAIL), run.id)
    done, last_ns = with_tail(done, tail), max(last_ns, tail.at_ns if tail else 0)
    if done:
        done = replace(done, outages=outages_of(reader.events(run_id=run.id, kind="load")))
    ended = last_ns or run.ended_ns or run.started_ns
    return Seen(max(0.0, (ended - run.started_ns) / 1e9), ended, done, Ending(interrupted_by="killed"))
