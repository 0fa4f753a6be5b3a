"""The words of soakd as types: metric, sample, event, finding, verdict. Frozen, slotted, free of I/O.

Times are wall-clock UTC in nanoseconds since the epoch (``*_ns``); durations come from the monotonic clock.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Labels = tuple[tuple[str, str], ...]
"""Label pairs sorted by name: hashable, so that (metric name, labels) is the key of a series."""


def labels(**pairs: str | int | None) -> Labels:
    """Build sorted labels; pairs whose value is None are left out."""
    return tuple(sorted((k, str(v)) for k, v in pairs.items() if v is not None))


class State(enum.Enum):
    """What is known of a reading. Only OK carries a value; no other state is ever shown as 0 or as healthy."""

    OK = "ok"
    UNSUPPORTED = "unsupported"
    ABSENT = "absent"
    NO_PERMISSION = "no_permission"
    TIMEOUT = "timeout"
    LOST = "lost"

    @property
    def code(self) -> int:
        """The small integer stored in the journal."""
        return _STATE_CODES[self]

    @classmethod
    def from_code(cls, code: int) -> State:
        return _STATES_BY_CODE[code]


_STATE_CODES: Mapping[State, int] = {s: i for i, s in enumerate(State)}
_STATES_BY_CODE: Mapping[int, State] = {i: s for s, i in _STATE_CODES.items()}


class Kind(enum.Enum):
    """How a metric is read. A counter only grows within an epoch; a state is an enum with a code."""

    GAUGE = "gauge"
    COUNTER = "counter"
    STATE = "state"


@dataclass(frozen=True, slots=True)
class Metric:
    """One line of the catalogue.

    ``name`` carries its unit as a suffix (``_bytes``, ``_celsius``, ``_seconds``, ``_total``); ``source`` says where
    the number is read (call, field or file); ``label_names`` is every label a sample of it may carry;
    ``codes`` names the values of a STATE; ``wraps_at`` is the modulus of a hardware counter that wraps (2**32).
    """

    name: str
    unit: str
    kind: Kind
    help: str
    source: str
    label_names: tuple[str, ...] = ()
    codes: tuple[tuple[str, int], ...] = ()
    wraps_at: int | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One number of one metric at one time. ``value`` is None exactly when ``state`` is not OK.

    ``why`` explains a state that is not OK to a person (it is shown, never stored as data).
    """

    metric: Metric
    value: float | None
    state: State
    at_ns: int
    labels: Labels = ()
    why: str = ""

    def __post_init__(self) -> None:
        if (self.value is None) == (self.state is State.OK):
            raise ValueError(f"{self.metric.name}: value {self.value!r} does not fit state {self.state.value}")

    @classmethod
    def ok(cls, metric: Metric, value: float, at_ns: int, labels: Labels = ()) -> Sample:
        return cls(metric, float(value), State.OK, at_ns, labels)

    @classmethod
    def unknown(cls, metric: Metric, state: State, at_ns: int, labels: Labels = (), why: str = "") -> Sample:
        return cls(metric, None, state, at_ns, labels, why)


class Severity(enum.Enum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. ``kind`` is dotted (``xid``, ``gpu.lost``, ``server.restart``, ``canary.mismatch``)."""

    kind: str
    at_ns: int
    what: str
    severity: Severity = Severity.INFO
    labels: Labels = ()
    attrs: Labels = ()


class Outcome(enum.Enum):
    """NOT_JUDGED is only for a default limit that the run was too short to judge; it changes no outcome."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    NOT_JUDGED = "NOT_JUDGED"


@dataclass(frozen=True, slots=True)
class Finding:
    """What an analysis or a rule says, with the figure it rests on.

    ``source`` is dotted and names who says it (``limit.vram_leak``, ``rule.GpuXid``, ``agreement.tokens``).
    """

    source: str
    severity: Severity
    title: str
    detail: str
    at_ns: int
    labels: Labels = ()
    metric: str = ""
    value: float | None = None
    unit: str = ""


class AlertState(enum.Enum):
    """An alert that is none of these is inactive."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert of one rule about one thing; ``(name, labels)`` is its identity as long as it lives.

    ``labels`` are the rule's own and those of what it is about (gpu, bdf); ``run`` is the soak in which it began.
    ``since_ns`` is when the condition began to hold, ``fired_ns`` when the alert fired, ``ended_ns`` when it was
    resolved; ``seen_ns`` when the condition was last known. ``recent`` are the last values, oldest first.
    ``over`` says why it was resolved.
    """

    name: str
    state: AlertState
    severity: Severity
    labels: Labels
    summary: str
    since_ns: int
    seen_ns: int
    fired_ns: int | None = None
    ended_ns: int | None = None
    description: str = ""
    metric: str = ""
    value: float | None = None
    limit: float | None = None
    unit: str = ""
    runbook: str = ""
    run: str = ""
    recent: tuple[float, ...] = ()
    over: str = ""
    known: bool = True

    @property
    def key(self) -> tuple[str, Labels]:
        return self.name, self.labels

    @property
    def all_labels(self) -> Labels:
        """Everything that grouping and inhibition may use: with ``alertname``, ``severity`` and ``run``."""
        more = {"alertname": self.name, "severity": self.severity.value} | ({"run": self.run} if self.run else {})
        return tuple(sorted((dict(self.labels) | more).items()))


@dataclass(frozen=True, slots=True)
class LimitResult:
    """One limit, judged. ``coverage`` is the share (0 to 1) of the evidence wanted that was there.

    ``needs_s`` is the length of run that could judge it, where this one was too short and that is known.
    """

    name: str
    outcome: Outcome
    value: float | None
    limit: float | None
    unit: str
    coverage: float
    why: str
    labels: Labels = ()
    user_set: bool = False
    needs_s: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """PASS, FAIL or INCONCLUSIVE; missing evidence is never PASS."""

    outcome: Outcome
    limits: tuple[LimitResult, ...]
    findings: tuple[Finding, ...]
    coverage: float


class RunState(enum.Enum):
    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """A GPU is its UUID, PCI address and serial; the index is a label at best (order changes between boots).

    ``bdf`` is in sysfs form (``0000:00:06.0``), lower case. ``mig`` is the MIG instance's UUID, if it is one.
    """

    uuid: str
    bdf: str
    serial: str
    name: str
    index: int
    mig: str = ""

    @property
    def labels(self) -> Labels:
        return labels(gpu=self.mig or self.uuid, bdf=self.bdf)


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """What was found out about the server under test, and how (``picked_by`` is shown to the user)."""

    url: str
    kind: str
    model: str
    server: str = ""
    local: bool = True
    pid: int | None = None
    picked_by: str = ""
    context_tokens: int | None = None
    slots: int | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Series:
    """Readings of one (metric, labels) in order of time; arrays of equal length, unknown readings left out.

    ``unknown`` counts the readings whose state was not OK; ``expected`` how many the schedule should have given
    (None when no schedule is known).
    """

    metric: Metric
    labels: Labels
    at_ns: Sequence[int]
    values: Sequence[float]
    unknown: int = 0
    expected: int | None = None
    states: Mapping[State, int] = field(default_factory=dict)
