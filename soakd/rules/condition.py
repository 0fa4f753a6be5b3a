"""What a rule kind is: a condition that is stepped over batches and says, series by series, whether it holds."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol, TypeVar

from soakd.model import Event, Labels, Sample
from soakd.ports import Item

S = TypeVar("S")
NS = 1_000_000_000

RUN_STARTED, RUN_ENDED = "run.started", "run.ended"
"""Events that only rules see: a soak begins (label ``run``, attribute ``warmup_seconds``) and ends."""


class Truth(enum.Enum):
    """UNKNOWN is neither: it lets no alert fire and resolves none."""

    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Observation:
    """What a condition says of one series. ``fields`` are more values for the templates, as text with units."""

    labels: Labels
    truth: Truth
    at_ns: int
    value: float | None = None
    limit: float | None = None
    what: str = ""
    fields: Labels = ()


@dataclass(frozen=True, slots=True)
class Interest:
    """What a condition wants to see: metrics by name, events by pattern (``gpu.*``)."""

    metrics: frozenset[str] = frozenset()
    events: tuple[str, ...] = ()

    def __or__(self, other: Interest) -> Interest:
        return Interest(self.metrics | other.metrics, tuple(dict.fromkeys((*self.events, *other.events))))

    def takes(self, item: Item) -> bool:
        if isinstance(item, Sample):
            return item.metric.name in self.metrics
        return any(fnmatchcase(item.kind, pattern) for pattern in self.events)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a condition's observations look like: their unit, the labels they may carry, more fields for templates."""

    metric: str
    unit: str
    label_names: tuple[str, ...]
    fields: tuple[str, ...] = ()


class Condition(Protocol[S]):
    """One rule kind, configured. ``step`` uses the state up and returns it; its time is proportional to the batch and
    to what holds at the moment. ``dump`` is plain JSON data; ``load`` raises ValueError for what it can't read."""

    @property
    def interest(self) -> Interest: ...
    @property
    def shape(self) -> Shape: ...
    def start(self) -> S: ...
    def step(self, state: S, batch: Sequence[Item], now_ns: int) -> tuple[S, Sequence[Observation]]: ...
    def dump(self, state: S) -> object: ...
    def load(self, data: object) -> S: ...

    def promql(self) -> str | None:
        """The same in PromQL over ``/metrics``; None where PromQL can't say it."""
        ...


def matches(found: Labels, wanted: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether the labels have one of the wanted values under each name."""
    if not wanted:
        return True
    have = dict(found)
    return all(have.get(name) in values for name, values in wanted.items())


def only(found: Labels, names: Sequence[str] | None) -> Labels:
    """Those of the labels that are named; all of them for None."""
    return found if names is None else tuple(pair for pair in found if pair[0] in names)


def event_labels(event: Event) -> Labels:
    """Labels and attributes of an event as one; a label wins over an attribute of its name."""
    return tuple(sorted({**dict(event.attrs), **dict(event.labels)}.items()))
