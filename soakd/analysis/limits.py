"""Limits on load, latency, answers and availability, each a pure function from evidence to results.

A limit that the user set and that lacks evidence is INCONCLUSIVE. A default limit is NOT_JUDGED where the run was too
short for it or where the thing it is about is not there, and INCONCLUSIVE where evidence that should be there is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from soakd.analysis.causes import Cause, explain_outage
from soakd.analysis.drills import drill_spans, is_planned
from soakd.analysis.evidence import OutageEvidence, Percentiles, RunEvidence
from soakd.model import Labels, LimitResult, Outcome
from soakd.quantities import format_duration

COVERAGE_NEEDED = 0.8
"""Share of the wanted readings below which a gauge or counter proves nothing good."""

_TAIL_REQUESTS = 10
"""Requests that must lie beyond a percentile before its point value is taken at its word (P95: 200, P99: 1,000)."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit as configured: ``value`` in ``unit``. ``extra`` holds a band's width and share."""

    name: str
    value: float
    unit: str
    user_set: bool = False
    extra: tuple[tuple[str, float], ...] = ()

    def missing(self, why: str, coverage: float = 0.0, labels: Labels = ()) -> LimitResult:
        """The result where evidence that should be there is not: INCONCLUSIVE, for a default limit as well."""
        return self._result(Outcome.INCONCLUSIVE, None, why, coverage, labels)

    def absent(
        self, why: str, coverage: float = 0.0, labels: Labels = (), value: float | None = None,
        needs_s: float | None = None,
    ) -> LimitResult:  # fmt: skip
        """The result where the run was too short or the thing is not there."""
        outcome = Outcome.INCONCLUSIVE if self.user_set else Outcome.NOT_JUDGED
        return self._result(outcome, value, why, coverage, labels, needs_s)

    def judged(self, ok: bool, value: float, why: str, coverage: float = 1.0, labels: Labels = ()) -> LimitResult:
        return self._result(Outcome.PASS if ok else Outcome.FAIL, value, why, coverage, labels)

    def _result(
        self, outcome: Outcome, value: float | None, why: str, coverage: float, labels: Labels,
        needs_s: float | None = None,
    ) -> LimitResult:  # fmt: skip
        return LimitResult(
            self.name, outcome, value, self.value, self.unit, coverage, why, labels, self.user_set, needs_s
        )


Judge = Callable[[Limit, RunEvidence], tuple[LimitResult, ...]]


def percentile(pick: Callable[[RunEvidence], Percentiles], which: str, what: str) -> Judge:
    """A latency percentile must not exceed the limit; from few requests only a clear excess is proven."""
    beyond = {"p95": 0.05, "p99": 0.01}[which]
    needed = round(_TAIL_REQUESTS / beyond)

    def judge(limit: Limit, evidence: RunEvidence) -> tuple[LimitResult, ...]:
        latency = pick(evidence)
        value = getattr(latency, which)
        if value is None:
            return (limit.absent(f"no {what} was measured"),)
        coverage = min(1.0, latency.count / needed)
        if latency.count >= needed:
            why = f"{what} {which.upper()} {value:.4g} s over {latency.count:,} against {limit.value:.4g} s"
            return (limit.judged(value <= limit.value, value, why),)
        low = getattr(latency, f"{which}_low")
        if low is not None and low > limit.value:
            why = f"{what} {which.upper()} is above {low:.4g} s even for {latency.count:,} requests"
            return (limit.judged(False, value, why, coverage),)
        why = f"{latency.count:,} readings of {what}; {which.upper()} needs {needed:,}"
        return (limit.absent(why, coverage, value=value),)

    return judge


def request_rate(limit: Limit, evidence: RunEvidence) -> tuple[LimitResult, ...]:
    load = evidence.load
    if load.measured_s <= 0 or not load.offered:
        return (limit.absent("no load was measured"),)
    rate = load.completed / load.measured_s
    why = f"{load.completed:,} requests in {load.measured_s:.0f} s: {rate:.3g}/s against {limit.value:g}/s"
    return (limit.judged(rate >= limit.value, rate, why),)


def token_rate(limit: Limit, evidence: RunEvidence) -> tuple[LimitResult, ...]:
    rate = evidence.load.output_tokens_per_s
    if rate is None:
        return (limit.absent("the server reported no usage, so output tokens are unknown"),)
    return (limit.judged(rate >= limit.value, rate, f"{rate:.4g} output tokens/s against {limit.value:g}"),)


def error_rate(limit: Limit, evidence: RunEvidence) -> tuple[LimitResult, ...]:
    load = evidence.load
    ended = load.completed + load.failed
    if not ended:
        return (limit.missing("not one request ended"),)
    rate = load.failed / ended
    why = f"{load.failed:,} of {ended:,} requests failed ({rate:.2%}) against {limit.value:.2%}"
    return (limit.judged(rate <= limit.value, rate, why),)


def empty_answers(limit: Limit, evidence: RunEvidence) -> tuple[LimitResult, ...]:
    load = evidence.load
    if not load.completed + load.failed:
        return (limit.missing("not one request ended"),)
    why = f"{load.empty:,} answers of status 200 had no tokens"
    return (limit.judged(load.empty <= limit.value, load.empty, why),)


def decode_retention(limit: Limit, evidence: RunEvidence) -> tuple[LimitResult, ...]:
    """Fails only where the whole interval of the ratio lies below the limit."""
    found = evidence.load.decode
    if found is None or found.ratio is None:
        return (limit.absent(found.why if found else "too few windows to compare an early and a late quarter"),)
    ratio = float(found.ratio)
    why = f"decode rate late in the run is {ratio:.1%} of that early in it, against {limit.value:.0%}"
    if ratio >= limit.value or (found.high is not None and found.high < limit.value):
        return (limit.judged(ratio >= limit.value, ratio, why),)
    return (limit.absent(f"{why}, but it varied too much to tell", 1.0, value=ratio),)


_NONE_DUE = "no request was due in the measured time; a closed loop that waits for answers sends none"


def outages(limit: Limit, evidence: RunEvidence) -> tuple[LimitResult, ...]:
    if not evidence.load.offered and not evidence.load.outages:
        return (limit.missing(_NONE_DUE),)
    found = evidence.load.outages
    # a drill after which the target stays away did not go as planned
    unplanned = [o for o in found if not o.planned or o.first_success_ns is None]
    why = "the target served throughout"
    if unplanned:
        why = f"{len(unplanned)} outage(s): {_described(unplanned[0], evidence)}"
    elif found:
        why = f"none but {len(found)} that planned drills brought: {_described(found[0], evidence)}"
    return (limit.judged(len(unplanned) <= limit.value, len(unplanned), why),)


def outage_seconds(limit: Limit, evidence: RunEvidence) -> tuple[LimitResult, ...]:
    if not evidence.load.offered and not evidence.load.outages:
        return (limit.missing(_NONE_DUE),)
    longest = max((o.seconds(evidence.end_ns) for o in evidence.load.outages), default=0.0)
    why = f"longest outage {longest:.3g} s against {format_duration(limit.value)}, planned ones included"
    return (limit.judged(longest <= limit.value, longest, why),)


def _described(outage: OutageEvidence, evidence: RunEvidence) -> str:
    back = f"back after {outage.seconds(evidence.end_ns):.1f} s" if outage.first_success_ns else "never came back"
    cause = f", {outage.cause}" if outage.cause else ""
    return f"{back}, {outage.requests_lost:,} requests lost{cause}"


def restarts(limit: Limit, evidence: RunEvidence) -> tuple[LimitResult, ...]:
    """Restarts are events of the server process; without a process to watch nothing is known of them."""
    found = evidence.event("server.restart", "server.exit")
    if not evidence.track("server_process_rss_bytes") and not found:
        return (limit.absent("the server's process could not be watched"),)
    spans = drill_spans(evidence.events)
    events = [e for e in found if not is_planned(e.at_ns, spans, evidence.load.outages)]
    count = sum(e.kind == "server.restart" for e in events) or len(events)
    why = "none but those that planned drills brought" if found else "the server's process lived throughout"
    if events:
        cause = explain_outage(events[0].at_ns, evidence.events)
        why = events[0].what if cause.cause is Cause.UNKNOWN else f"{cause.cause.value}: {cause.why}"
    return (limit.judged(count <= limit.value, count, why),)


def canary(limit: Limit, evidence: RunEvidence) -> tuple[LimitResult, ...]:
    found = evidence.load.canary
    if found.mode == "off" or not found.checks:
        return (limit.absent(found.why or "no canary was answered"),)
    bad = found.garbled if found.mode == "garbage_only" else max(found.changed, found.garbled)
    share = 1 - bad / found.checks
    if bad:
        why = found.first or f"{bad} of {found.checks} canary answers changed"
    elif found.mode == "garbage_only":
        why = f"{found.checks} canary answers, none garbled; {found.why}"
    else:
        why = f"{found.checks} canary answers, all identical to the first"
    return (limit.judged(share >= limit.value, share, why),)


LOAD_JUDGES: Mapping[str, Judge] = {
    "e2e_p95": percentile(lambda e: e.load.e2e, "p95", "E2E latency"),
    "e2e_p99": percentile(lambda e: e.load.e2e, "p99", "E2E latency"),
    "ttft_p95": percentile(lambda e: e.load.ttft_from_due, "p95", "TTFT (from when it was due)"),
    "ttft_p99": percentile(lambda e: e.load.ttft_from_due, "p99", "TTFT (from when it was due)"),
    "itl_p95": percentile(lambda e: e.load.itl, "p95", "ITL"),
    "itl_p99": percentile(lambda e: e.load.itl, "p99", "ITL"),
    "request_rate_min": request_rate,
    "output_token_rate_min": token_rate,
    "error_rate_max": error_rate,
    "empty_answers_max": empty_answers,
    "decode_retention_min": decode_retention,
    "outages_max": outages,
    "outage_seconds_max": outage_seconds,
    "restarts_max": restarts,
    "canary_identical_min": canary,
}
