"""Builds the report of a run from what was judged, what was gathered and what the session saw."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import orjson
from pydantic import JsonValue

from soakd import __version__
from soakd.analysis.evidence import RunEvidence
from soakd.analysis.verdict import Judged
from soakd.model import Outcome
from soakd.report import facts
from soakd.report.model import SCHEMA, EventLine, FindingLine, LimitLine, Outage, Report, iso
from soakd.soak import agreement, report_facts
from soakd.soak.run_facts import RunFacts
from soakd.soak.session import Seen

_MOST_EVENTS = 500
_MOST_FINDINGS = 200


@dataclass(frozen=True, slots=True)
class Inputs:
    """All that a report is made of."""

    run: RunFacts
    seen: Seen
    evidence: RunEvidence
    judged: Judged
    checks: Sequence[agreement.Check]
    gpus: tuple[facts.Gpu, ...]
    collectors: tuple[facts.CollectorCoverage, ...]
    ratios: tuple[facts.ServerRatio, ...]
    journal: facts.Journal


def build_report(inputs: Inputs) -> Report:
    run, seen, evidence, judged = inputs.run, inputs.seen, inputs.evidence, inputs.judged
    start = run.started_ns
    events = report_facts.important_first(evidence.events, _MOST_EVENTS)
    findings = judged.verdict.findings
    return Report(
        schema=SCHEMA,
        run_id=run.run_id,
        outcome=_outcome(judged.verdict.outcome),
        simulated=run.simulated,
        started_at=iso(start),
        duration_s=round(evidence.duration_s, 3),
        target=_target(run),
        load=report_facts.load_of(seen.done, evidence.load, run),
        limits=tuple(LimitLine.of(r, user_set=r.user_set, needs_s=r.needs_s) for r in judged.verdict.limits),
        findings=tuple(FindingLine.of(f, start) for f in findings[:_MOST_FINDINGS]),
        events=tuple(EventLine.of(e, start) for e in events),
        outages=tuple(_outages(evidence, start)),
        why=judged.why,
        profile=run.profile,
        scenario=run.scenario,
        speed=run.speed,
        wanted_duration_s=run.planned.total_s,
        interrupted=bool(seen.ending.interrupted_by),
        interrupted_by=seen.ending.interrupted_by,
        safety_stop=_safety(seen, start),
        coverage=judged.verdict.coverage,
        boot_id=run.boot_id,
        host=replace(run.host, boot_id_end=seen.boot_id_end),
        gpus=inputs.gpus,
        gpu_note=evidence.gpu_note,
        stages=tuple(facts.Stage(s.name, s.start_s, s.duration_s, s.measured) for s in run.stages),
        prompt_mix=report_facts.prompt_mix(run, seen.done),
        agreement=tuple(
            facts.AgreementCheck(c.what, c.client, c.server, c.unit, c.outcome, c.why) for c in inputs.checks
        ),
        canary=report_facts.canary_of(evidence.load.canary, run.canary_prompts),
        self_check=report_facts.self_check(seen),
        series=tuple(report_facts.series_of(g) for g in judged.growth),
        server_ratios=inputs.ratios,
        collectors=inputs.collectors,
        clock_steps=report_facts.clock_steps(evidence.events, start),
        log_tails=report_facts.log_tails(evidence.events),
        journal=inputs.journal,
        events_left_out=max(0, len(evidence.events) - len(events)),
        findings_left_out=max(0, len(findings) - _MOST_FINDINGS),
        versions=_versions(run),
        config=_config(run.config),
    )


def _outcome(outcome: Outcome) -> Literal[Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE]:
    return outcome if outcome is not Outcome.NOT_JUDGED else Outcome.INCONCLUSIVE


def _target(run: RunFacts) -> facts.Target:
    target = facts.Target.of(run.target, process=" ".join(run.target.flags))
    return replace(target, kind=run.server_kind, replicas=run.replicas)


def _outages(evidence: RunEvidence, start_ns: int) -> list[Outage]:
    return [
        Outage(
            iso(o.start_ns), iso(o.first_success_ns) if o.first_success_ns else None,
            iso(o.recovered_ns) if o.recovered_ns else None, o.requests_lost,
            (o.start_ns - start_ns) / 1e9,
            (o.first_success_ns - start_ns) / 1e9 if o.first_success_ns else None,
            (o.recovered_ns - start_ns) / 1e9 if o.recovered_ns else None, o.planned, o.cause,
        )
        for o in evidence.load.outages
    ]  # fmt: skip


def _safety(seen: Seen, start_ns: int) -> facts.SafetyStop | None:
    stop = seen.ending.safety
    if stop is None:
        return None
    return facts.SafetyStop(iso(stop.at_ns), (stop.at_ns - start_ns) / 1e9, stop.rule, stop.why)


def _versions(run: RunFacts) -> Mapping[str, str]:
    return {"soakd": __version__, "python": platform.python_version(), "server": run.target.server}


def _config(raw: str) -> Mapping[str, JsonValue]:
    loaded = orjson.loads(raw) if raw else {}
    return loaded if isinstance(loaded, dict) else {}
