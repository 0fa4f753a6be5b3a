"""Whether a soak runs now, as a sample of the catalogue."""

from __future__ import annotations

from soakd.model import Kind, Metric

RUN_STATE = Metric(
    "soak_state", "", Kind.STATE, "What the daemon's soak desk is at.", "soakd daemon", (),
    (("idle", 0), ("preparing", 1), ("running", 2), ("judging", 3)),
)  # fmt: skip
METRICS = (RUN_STATE,)
CODES = dict(RUN_STATE.codes)
