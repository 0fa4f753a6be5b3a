"""Turns canary answers into events and into the evidence of the verdict."""

from __future__ import annotations

from collections.abc import Sequence

from soakd.analysis.evidence import CanaryEvidence
from soakd.load.canary import EXACT, GARBAGE_ONLY, CanaryResult, CanarySummary
from soakd.model import Event, Severity, labels


def event_of(result: CanaryResult) -> Event | None:
    """A changed or garbled answer as an event; None for one that is as expected."""
    if not result.bad:
        return None
    kind = "canary.garbled" if result.garbage else "canary.mismatch"
    return Event(kind, result.at_ns, result.what, Severity.CRITICAL, labels(prompt=result.prompt_id))


def evidence(summary: CanarySummary | None, events: Sequence[Event] = ()) -> CanaryEvidence:
    """``events`` tell what the summary of a run that was killed can't: the answers that were wrong."""
    if summary is None:
        wrong = [e for e in events if e.kind in ("canary.mismatch", "canary.garbled")]
        if not wrong:
            return CanaryEvidence(why="no canaries were asked, or their count was lost with the run's end")
        garbled = sum(e.kind == "canary.garbled" for e in wrong)
        return CanaryEvidence("exact", len(wrong), len(wrong), garbled, 0, wrong[0].at_ns, wrong[0].what)
    first = summary.first_bad
    mode = {EXACT: "exact", GARBAGE_ONLY: "garbage_only"}.get(summary.mode, "off")
    return CanaryEvidence(
        mode=mode,
        checks=summary.judged,
        changed=summary.mismatched,
        garbled=summary.garbled,
        failed=summary.failed,
        first_at_ns=first.at_ns if first else None,
        first=first.what if first else "",
        why=summary.note,
    )
