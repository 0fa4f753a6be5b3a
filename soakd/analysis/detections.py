"""What the looks during a run had found, from the events they left. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from soakd.analysis.evidence import RunEvidence
from soakd.model import Labels

FOUND = "growth.leak"
"""Kind of the event that tells a leak during the run; its labels are those of the series, ``series`` its metric."""


def detections(evidence: RunEvidence) -> Mapping[tuple[str, Labels], float]:
    """By metric and labels, seconds from the start of the run to when a leak was first said."""
    start_ns = evidence.end_ns - int(evidence.duration_s * 1e9)
    found: dict[tuple[str, Labels], float] = {}
    for event in evidence.event(FOUND):
        found.setdefault((dict(event.attrs).get("series", ""), event.labels), (event.at_ns - start_ns) / 1e9)
    return found
