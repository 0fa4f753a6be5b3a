"""The verdict of a run: every limit judged, and one outcome of them. Missing evidence is never PASS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from soakd.analysis.causes import explained
from soakd.analysis.evidence import RunEvidence
from soakd.analysis.given_back import kept_findings
from soakd.analysis.limits import LOAD_JUDGES, Limit
from soakd.analysis.limits_growth import Caps, Growth, growth_results, judge_growth, not_upheld, unlimited_growth
from soakd.analysis.limits_hardware import HARDWARE_JUDGES
from soakd.analysis.limits_thermal import (
    DRIFT_THAT_COUNTS,
    CardHeat,
    card_heat,
    drift_results,
    judge_drift,
    thermal_findings,
)
from soakd.model import Finding, LimitResult, Outcome, Severity, Verdict

_JUDGES = {**LOAD_JUDGES, **HARDWARE_JUDGES}
_SEVERITY = {Outcome.FAIL: Severity.CRITICAL, Outcome.INCONCLUSIVE: Severity.WARNING}

_BOTTLENECK = "load.bottleneck"
_TOO_BUSY = (
    "nothing failed, but the machine that soakd runs on was too busy to drive and time this load; run soakd on cores "
    "that the server does not use (taskset -c), or on another host"
)


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict with the judgements behind it, for the report. ``evidence`` is what was judged, with the causes of
    its outages."""

    verdict: Verdict
    evidence: RunEvidence
    growth: tuple[Growth, ...]
    heat: tuple[CardHeat, ...]
    why: str


def judge_run(
    limits: Sequence[Limit], evidence: RunEvidence, caps: Caps, extra: Sequence[LimitResult] = (),
    findings: Sequence[Finding] = (),
) -> Judged:  # fmt: skip
    """Judge every limit. ``extra`` are results judged elsewhere (agreement of client and server, safety stops);
    ``findings`` are what else was found, and change no outcome. Raises KeyError for a limit without a judge."""
    named = {limit.name: limit for limit in limits}
    grown = judge_growth(named, evidence, caps)
    memory = [g.judgement for g in grown if g.track.unit == "bytes"]
    outages = explained(evidence.load.outages, evidence.events, memory)
    evidence = replace(evidence, load=replace(evidence.load, outages=outages))
    drift = named.get("thermal_drift_max")
    thermal = judge_drift(drift.value if drift else DRIFT_THAT_COUNTS, evidence)
    heat = card_heat(evidence, thermal)
    results = [r for limit in limits if limit.name in _JUDGES for r in _JUDGES[limit.name](limit, evidence)]
    results.extend(growth_results(named, grown, evidence))
    if drift:
        results.extend(drift_results(drift, thermal, evidence))
    results.extend(_self_check(evidence))
    results.extend(extra)
    outcome = overall(results)
    mine = (
        *(_finding(r, evidence.end_ns) for r in results if r.outcome in _SEVERITY),
        *unlimited_growth(named, grown, evidence.end_ns),
        *not_upheld(grown, evidence.end_ns),
        *kept_findings(evidence),
        *thermal_findings(heat, evidence.end_ns),
    )
    judged = [r.coverage for r in results if r.outcome is not Outcome.NOT_JUDGED]
    coverage = min(judged, default=0.0)
    verdict = Verdict(outcome, tuple(results), (*mine, *findings), coverage)
    return Judged(verdict, evidence, grown, heat, explain(outcome, results))


def overall(results: Sequence[LimitResult]) -> Outcome:
    """FAIL before INCONCLUSIVE before PASS; nothing judged at all is INCONCLUSIVE."""
    found = {r.outcome for r in results}
    if Outcome.FAIL in found:
        return Outcome.FAIL
    if Outcome.INCONCLUSIVE in found or Outcome.PASS not in found:
        return Outcome.INCONCLUSIVE
    return Outcome.PASS


def explain(outcome: Outcome, results: Sequence[LimitResult]) -> str:
    """The outcome's reason in one sentence."""
    if outcome is Outcome.PASS:
        passed = sum(r.outcome is Outcome.PASS for r in results)
        skipped = sum(r.outcome is Outcome.NOT_JUDGED for r in results)
        rest = f"; {skipped} default limits could not be judged by this run" if skipped else ""
        return f"all {passed} limits that were judged hold{rest}"
    worst = [r for r in results if r.outcome is outcome]
    if not worst:
        return "nothing could be judged"
    if all(r.name == _BOTTLENECK for r in worst):
        return f"{_TOO_BUSY}: {worst[0].why}"
    # a run that was cut short lacks evidence for that reason first
    first = next((r for r in worst if r.name == "run.complete"), worst[0])
    more = f" (and {len(worst) - 1} more)" if len(worst) > 1 else ""
    return f"{first.name}: {first.why}{more}"


def _self_check(evidence: RunEvidence) -> tuple[LimitResult, ...]:
    load = evidence.load
    results = []
    if not load.complete:
        why = "the load process ended before its totals were in"
        results.append(LimitResult("load.complete", Outcome.INCONCLUSIVE, None, None, "", 1.0, why))
    if load.bottleneck:
        results.append(LimitResult(_BOTTLENECK, Outcome.INCONCLUSIVE, None, None, "", 1.0, load.bottleneck))
    if evidence.journal_dropped:
        why = f"{evidence.journal_dropped:,} readings were lost on their way to the journal"
        results.append(LimitResult("journal.dropped", Outcome.INCONCLUSIVE, evidence.journal_dropped, 0, "", 1.0, why))
    return tuple(results)


def _finding(result: LimitResult, at_ns: int) -> Finding:
    return Finding(
        f"limit.{result.name}", _SEVERITY[result.outcome], f"{result.name}: {result.outcome.value}", result.why, at_ns,
        result.labels, dict(result.labels).get("series", ""), result.value, result.unit,
    )  # fmt: skip
