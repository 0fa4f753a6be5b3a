"""What a run's verdict rests on, as plain frozen values: gathered at the edge, judged by pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from soakd.analysis.latency import Retention
from soakd.analysis.series import Floats
from soakd.model import Event, Labels, State


@dataclass(frozen=True, slots=True)
class Percentiles:
    """A latency in seconds over ``count`` requests (or gaps); None where the count is 0."""

    count: int = 0
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None
    mean: float | None = None
    p95_low: float | None = None
    p99_low: float | None = None
    """Lower ends of the percentiles' 95 % intervals (order statistics): what few requests can still prove."""


@dataclass(frozen=True, slots=True)
class CanaryEvidence:
    """``mode`` is ``exact``, ``garbage_only`` (batching varies the answers) or ``off``."""

    mode: str = "off"
    checks: int = 0
    changed: int = 0
    garbled: int = 0
    failed: int = 0
    first_at_ns: int | None = None
    first: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class OutageEvidence:
    """The target did not serve from ``start_ns``; the ends are None when it never came back within the run."""

    start_ns: int
    first_success_ns: int | None
    recovered_ns: int | None
    requests_lost: int
    cause: str = ""
    planned: bool = False
    """The operator's own planned drill brought it."""

    def seconds(self, run_end_ns: int) -> float:
        return ((self.first_success_ns or run_end_ns) - self.start_ns) / 1e9


@dataclass(frozen=True, slots=True)
class LoadEvidence:
    """The measured stages only. ``measured_s`` is real time; ``complete`` is False when the load process died."""

    measured_s: float = 0.0
    offered: int = 0
    started: int = 0
    completed: int = 0
    failed: int = 0
    dropped: int = 0
    empty: int = 0
    output_tokens: int | None = None
    output_tokens_per_s: float | None = None
    concurrency_asked: float | None = None
    concurrency_achieved: float | None = None
    ttft: Percentiles = Percentiles()
    ttft_from_due: Percentiles = Percentiles()
    itl: Percentiles = Percentiles()
    e2e: Percentiles = Percentiles()
    bottleneck: str = ""
    complete: bool = True
    decode: Retention | None = None
    canary: CanaryEvidence = CanaryEvidence()
    outages: tuple[OutageEvidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Track:
    """One gauge over the run: ``x`` in seconds since the run began (ascending), ``y`` the known readings.

    ``expected`` is how many readings the schedule should have given, ``states`` counts the unknown ones.
    """

    metric: str
    unit: str
    labels: Labels
    x: Floats
    y: Floats
    expected: int | None = None
    states: tuple[tuple[State, int], ...] = ()

    @property
    def coverage(self) -> float:
        """Known readings over wanted ones, 0 to 1."""
        wanted = self.expected or len(self.y) + sum(n for _, n in self.states)
        return min(1.0, len(self.y) / wanted) if wanted else 0.0

    @property
    def key(self) -> Labels:
        """The labels that name the card or device; series of one device are judged together."""
        named = tuple((k, v) for k, v in self.labels if k in ("gpu", "bdf", "device"))
        return named or self.labels


@dataclass(frozen=True, slots=True)
class Gain:
    """What one counter gained over the run, summed over its epochs; None when it was never known twice."""

    metric: str
    labels: Labels
    increase: float | None
    coverage: float = 1.0
    states: tuple[tuple[State, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """Everything. ``duration_s`` is the run's clock time from its start to its end; ``measured_from_s`` to
    ``measured_to_s`` are the measured stages on the same axis."""

    duration_s: float
    measured_from_s: float
    measured_to_s: float
    end_ns: int
    load: LoadEvidence
    tracks: tuple[Track, ...] = ()
    gains: tuple[Gain, ...] = ()
    events: tuple[Event, ...] = ()
    local: bool = True
    gpu_note: str = ""
    """Why there is no GPU to judge (``no GPU found``, ``the target is on another host``); empty when there is one."""
    journal_dropped: int = 0
    idle_before_s: float = 0.0
    """Seconds from the start of the run in which no load was offered; 0 where load began at once."""
    work: tuple[tuple[str, Track], ...] = ()
    """What was done, as cumulative counts over the run: ``request`` and ``token`` where they are known."""
    notes: tuple[str, ...] = field(default_factory=tuple)

    def track(self, metric: str, **where: str) -> tuple[Track, ...]:
        """The tracks of a metric whose labels have the values given."""
        return tuple(t for t in self.tracks if t.metric == metric and where.items() <= dict(t.labels).items())

    def gain(self, metric: str, **where: str) -> tuple[Gain, ...]:
        return tuple(g for g in self.gains if g.metric == metric and where.items() <= dict(g.labels).items())

    def event(self, *kinds: str) -> tuple[Event, ...]:
        return tuple(e for e in self.events if e.kind in kinds)


def without_sums(tracks: Sequence[Track]) -> tuple[Track, ...]:
    """Without whole cards whose MIG instances have tracks of their own: a card's figure is the sum of theirs, and one
    leak must not count twice."""
    split = {_card(t)[1] for t in tracks if _card(t)[0].startswith("MIG-")}
    return tuple(t for t in tracks if _card(t)[0].startswith("MIG-") or _card(t)[1] not in split)


def _card(track: Track) -> tuple[str, str]:
    tags = dict(track.labels)
    return tags.get("gpu", ""), tags.get("bdf", "")


def worst_state(states: Iterable[tuple[State, int]]) -> State | None:
    """The commonest state that is not OK, None when there is none."""
    counted = [(n, s) for s, n in states if n and s is not State.OK]
    return max(counted, key=lambda c: c[0])[1] if counted else None
