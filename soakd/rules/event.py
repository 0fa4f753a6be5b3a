"""Something that happened: an XID, a lost card, a restart. Holds until what ends it, or until it has been quiet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from pydantic import Field, TypeAdapter, field_validator

from soakd.fields import ConfigModel, Seconds
from soakd.model import Event, Labels
from soakd.ports import Item
from soakd.rules.book import Book
from soakd.rules.condition import NS, Interest, Observation, Shape, Truth, event_labels, matches, only
from soakd.rules.options import Values
from soakd.rules.window import Sliding

KIND = "event"


class Config(ConfigModel):
    """``event`` is a kind or a pattern (``pcie.*``); ``where`` selects by labels and attributes (``class: reset``).

    ``by`` are the labels and attributes that make one alert of it. It fires at ``count`` events within ``within`` and
    holds for ``hold`` after the last one; with ``until`` it holds until one of those events comes with the same labels
    (``hold`` is then unlimited unless given).
    """

    event: Values
    where: Mapping[str, Values] = {}
    by: tuple[str, ...] = ("gpu", "bdf")
    until: tuple[str, ...] = ()
    hold: Seconds | None = None
    count: int = Field(1, ge=1, le=1000)
    within: Seconds = 600.0

    @field_validator("event")
    @classmethod
    def _kinds(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for kind in value:
            if not kind.strip("*?") or any(c.isspace() for c in kind):
                raise ValueError(f"{kind!r} is no kind of event; write one such as xid, gpu.lost or pcie.*")
        return value


@dataclass(slots=True)
class Seen:
    """Events of one alert: when the last one came, what it said, how many in the window."""

    at_ns: int
    what: str
    recent: Sliding
    holds: bool = False


@dataclass(slots=True)
class Happened:
    seen: Book[Seen] = field(default_factory=Book)


_SEEN: TypeAdapter[Seen] = TypeAdapter(Seen)
_HOLD_S = 900.0


class Happening:
    """One observation for each thing that holds, at every step, and one when it ends."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._within_ns = int(config.within * NS)
        hold = config.hold if config.hold is not None else None if config.until else _HOLD_S
        self._hold_ns = None if hold is None else int(hold * NS)
        self.interest = Interest(events=(*config.event, *config.until))
        self.shape = Shape("", "", config.by, ("count",))

    def start(self) -> Happened:
        return Happened()

    def step(self, state: Happened, batch: Sequence[Item], now_ns: int) -> tuple[Happened, Sequence[Observation]]:
        ended: dict[Labels, Observation] = {}
        for item in batch:
            if not isinstance(item, Event):
                continue
            if self._wanted(item):
                self._take(state, item, now_ns)
            elif any(fnmatchcase(item.kind, kind) for kind in self._config.until):
                for group in self._ended_by(state, item):
                    state.seen.drop(group)
                    ended[group] = Observation(group, Truth.FALSE, now_ns, 0.0, None, item.what)
        held = []
        for group, seen in state.seen:
            ended.pop(group, None)
            if self._hold_ns is not None and now_ns - seen.at_ns >= self._hold_ns:
                state.seen.drop(group)
                held.append(Observation(group, Truth.FALSE, now_ns, 0.0, None, "it has not come again"))
            elif seen.holds:
                held.append(self._holding(group, seen, now_ns))
        return state, [*ended.values(), *held]

    def _wanted(self, event: Event) -> bool:
        return any(fnmatchcase(event.kind, kind) for kind in self._config.event) and matches(
            event_labels(event), self._config.where
        )

    def _take(self, state: Happened, event: Event, now_ns: int) -> None:
        group = only(event_labels(event), self._config.by)
        seen = state.seen.get(group) or Seen(now_ns, event.what, Sliding(self._within_ns))
        # an event that is told late counts from when it was told: a hold that is over already would hide it
        seen.at_ns, seen.what = now_ns, event.what
        seen.recent.add(now_ns, 1)
        seen.holds = seen.holds or seen.recent.total(now_ns) >= self._config.count
        state.seen.put(group, seen, now_ns)

    def _ended_by(self, state: Happened, event: Event) -> list[Labels]:
        """Those that carry no label that contradicts the event's."""
        found = dict(event_labels(event))
        return [g for g, _ in state.seen if all(found.get(n, v) == v for n, v in g)]

    def _holding(self, group: Labels, seen: Seen, now_ns: int) -> Observation:
        count = seen.recent.total(now_ns)
        return Observation(
            group, Truth.TRUE, now_ns, max(count, 1.0), None, seen.what, (("count", f"{max(count, 1):.0f}"),)
        )

    def dump(self, state: Happened) -> object:
        return {"seen": state.seen.dump(_SEEN)}

    def load(self, data: object) -> Happened:
        if not isinstance(data, dict):
            raise ValueError("not the state of an event rule")
        return Happened(Book.load(data.get("seen"), _SEEN))

    def promql(self) -> str | None:
        return None


def build(config: Config) -> Happening:
    return Happening(config)
