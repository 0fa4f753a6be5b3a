"""What the operator's drills account for: outages and restarts that began in, or soon after, one of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from soakd.analysis.evidence import OutageEvidence
from soakd.model import Event

STARTED, ENDED = "drill.started", "drill.ended"
AFTER_S = 60.0
"""So long after the end of a drill's command an outage may begin and still be its doing."""


@dataclass(frozen=True, slots=True)
class DrillSpan:
    """One drill as it was run: from the start of its command to its end, in wall nanoseconds of the run's clock."""

    number: str
    start_ns: int
    end_ns: int
    planned: bool
    what: str

    def accounts_for(self, at_ns: int) -> bool:
        return self.start_ns <= at_ns <= self.end_ns + int(AFTER_S * 1e9)


def drill_spans(events: Sequence[Event]) -> tuple[DrillSpan, ...]:
    """The drills among the events of a run, in order. One whose end is not known ended at its time limit."""
    ends = {dict(e.attrs).get("drill", ""): e.at_ns for e in events if e.kind == ENDED}
    spans = []
    for event in events:
        if event.kind != STARTED:
            continue
        attrs = dict(event.attrs)
        number = attrs.get("drill", "")
        latest = event.at_ns + int(float(attrs.get("timeout_seconds", "0")) * 1e9)
        spans.append(
            DrillSpan(
                number, event.at_ns, ends.get(number, latest), attrs.get("planned") == "true", attrs.get("command", "")
            )
        )
    return tuple(spans)


def attributed(outages: Sequence[OutageEvidence], spans: Sequence[DrillSpan]) -> tuple[OutageEvidence, ...]:
    """Outages with the drill that brought them as their cause; the latest one where several could have."""
    return tuple(_attributed(outage, spans) for outage in outages)


def _attributed(outage: OutageEvidence, spans: Sequence[DrillSpan]) -> OutageEvidence:
    found = [span for span in spans if span.accounts_for(outage.start_ns)]
    if not found:
        return outage
    span = found[-1]
    return replace(outage, cause=f"drill {span.number}: {span.what}", planned=span.planned)


def is_planned(at_ns: int, spans: Sequence[DrillSpan], outages: Sequence[OutageEvidence]) -> bool:
    """Whether a planned drill accounts for what happened then: in its own time, or in that of an outage it brought."""
    if any(span.planned and span.accounts_for(at_ns) for span in spans):
        return True
    return any(o.planned and o.first_success_ns and o.start_ns <= at_ns <= o.first_success_ns for o in outages)
