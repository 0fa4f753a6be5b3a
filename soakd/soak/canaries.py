"""Turns canary answers into events and into the evidence of the verdict."""

from __future__ import annotations

from soakd.analysis.evidence import CanaryEvidence
from soakd.load.canary import EXACT, GARBAGE_ONLY, CanaryResult, CanarySummary
from soakd.model import Event, Severity, labels


def event_of(result: CanaryResult) -> Event | None:
    """A changed or garbled answer as an event; None for one that is as expected."""
    if not result.bad:
        return None
    kind = "canary.garbled" if result.garbage else "canary.mismatch"
    return Event(kind, result.at_ns, result.what, Severity.CRITICAL, labels(prompt=result.prompt_id))


def evidence(summary: CanarySummary | None) -> CanaryEvidence:
    if summary is None:
        return CanaryEvidence(why="no canaries were asked")
    first = summary.first_bad
    mode = {EXACT: "exact", GARBAGE_ONLY: "garbage_only"}.get(summary.mode, "off")
    return CanaryEvidence(
        mode=mode,
        checks=summary.judged,
        changed=summary.mismatched,
        garbled=summary.garbled,
        first_at_ns=first.at_ns if first else None,
        first=first.what if first else "",
        why=summary.note,
    )
