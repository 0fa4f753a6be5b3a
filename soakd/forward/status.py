"""What the forwarder says of itself: one status a sink, and the metrics made from it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from soakd.model import Kind, Metric, Sample, labels

_SOURCE = "the forwarder's cursor and the journal's commits"
LAG_SECONDS = Metric(
    "soakd_forward_lag_seconds", "seconds", Kind.GAUGE,
    "Age of the oldest reading that a sink has not got yet; 0 when it has everything.", _SOURCE, ("sink",),
)  # fmt: skip
LAG_ROWS = Metric(
    "soakd_forward_lag_rows", "rows", Kind.GAUGE,
    "Readings, events and findings that a sink has not got yet.", _SOURCE, ("sink",),
)  # fmt: skip
ROWS = Metric(
    "soakd_forward_rows_total", "rows", Kind.COUNTER,
    "Readings, events and findings a sink has taken since the start.", "answers of the sink", ("sink",),
)  # fmt: skip
BATCHES = Metric(
    "soakd_forward_batches_total", "batches", Kind.COUNTER,
    "Batches a sink has taken since the start.", "answers of the sink", ("sink",),
)  # fmt: skip
RETRIES = Metric(
    "soakd_forward_retries_total", "writes", Kind.COUNTER,
    "Writes that failed and were tried again since the start.", "answers of the sink", ("sink",),
)  # fmt: skip
REJECTED = Metric(
    "soakd_forward_rejected_total", "rows", Kind.COUNTER,
    "Lines a sink refused for good since the start; they are kept aside in the journal.", "answers of the sink",
    ("sink",),
)  # fmt: skip
STATE = Metric(
    "soakd_forward_state", "state", Kind.STATE,
    "Whether a sink takes what it is given.", "answers of the sink", ("sink",),
    codes=(("ok", 0), ("unavailable", 1), ("refused", 2), ("stopped", 3)),
)  # fmt: skip
METRICS = (LAG_SECONDS, LAG_ROWS, ROWS, BATCHES, RETRIES, REJECTED, STATE)


class Condition(enum.Enum):
    """REFUSED needs a person; UNAVAILABLE passes; STOPPED is an error of soakd itself."""

    OK = 0
    UNAVAILABLE = 1
    REFUSED = 2
    STOPPED = 3


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """``since_ns`` is when the condition began; ``why`` is the sink's own last reason."""

    name: str
    condition: Condition = Condition.OK
    since_ns: int = 0
    why: str = ""
    lag_rows: int = 0
    lag_seconds: float = 0.0
    rows: int = 0
    batches: int = 0
    retries: int = 0
    rejected: int = 0
    batch_rows: int = 0


def samples(status: SinkStatus, at_ns: int) -> list[Sample]:
    """The status as readings of METRICS."""
    here = labels(sink=status.name)
    return [
        Sample.ok(LAG_SECONDS, status.lag_seconds, at_ns, here),
        Sample.ok(LAG_ROWS, status.lag_rows, at_ns, here),
        Sample.ok(ROWS, status.rows, at_ns, here),
        Sample.ok(BATCHES, status.batches, at_ns, here),
        Sample.ok(RETRIES, status.retries, at_ns, here),
        Sample.ok(REJECTED, status.rejected, at_ns, here),
        Sample.ok(STATE, status.condition.value, at_ns, here),
    ]
