"""Several conditions that must hold together for the same card or device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import PlainValidator, TypeAdapter, ValidationError, ValidationInfo, field_validator

from soakd.fields import ConfigModel, Seconds
from soakd.model import Labels
from soakd.ports import Item
from soakd.rules.book import Book
from soakd.rules.condition import NS, Condition, Interest, Observation, Shape, Truth
from soakd.rules.options import RuleContext, join_key

KIND = "composite"


def _child(value: object, info: ValidationInfo) -> Condition[Any]:
    context = info.context
    if not isinstance(context, RuleContext) or not isinstance(value, Mapping):
        raise ValueError("give a condition: its kind and the keys of that kind")
    own = dict(value)
    kind = own.pop("kind", None)
    if not isinstance(kind, str) or kind not in context.kinds:
        raise ValueError(f"no kind {kind!r}; one of {', '.join(context.kinds)}")
    try:
        return context.kinds[kind].build(context.kinds[kind].config.model_validate(own, context=context))
    except ValidationError as error:
        said = (f"{'.'.join(map(str, e['loc']))}: {e['msg'].removeprefix('Value error, ')}" for e in error.errors())
        raise ValueError("; ".join(said)) from None


class Config(ConfigModel):
    """All of ``all`` hold. They are joined by the labels ``on`` (those that all of them have); a condition without
    labels (a host's) holds for every card. A condition not known for ``fresh`` is unknown. The first one gives value
    and limit."""

    all: tuple[Annotated[Any, PlainValidator(_child)], ...]
    on: tuple[str, ...] | None = None
    fresh: Seconds = 300.0

    @field_validator("all")
    @classmethod
    def _several(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        if not 2 <= len(value) <= 8:
            raise ValueError("give two to eight conditions")
        return value


@dataclass(slots=True)
class Held:
    """What one condition last said for one card."""

    truth: Truth
    at_ns: int
    value: float | None
    limit: float | None
    what: str


@dataclass(slots=True)
class Together:
    children: list[Any] = field(default_factory=list)
    held: list[Book[Held]] = field(default_factory=list)


_HELD: TypeAdapter[Held] = TypeAdapter(Held)
_RANK = {Truth.TRUE: 2, Truth.UNKNOWN: 1, Truth.FALSE: 0}


class Composite:
    """Series of one condition that join to the same labels count as one: it holds where any of them does."""

    def __init__(self, config: Config) -> None:
        self._conditions: tuple[Condition[Any], ...] = config.all
        self._fresh_ns = int(config.fresh * NS)
        labelled = [c.shape.label_names for c in self._conditions if c.shape.label_names]
        self._on = config.on if config.on is not None else _common(labelled)
        first = self._conditions[0].shape
        self.shape = Shape(first.metric, first.unit, self._on)
        self.interest = Interest()
        for condition in self._conditions:
            self.interest = self.interest | condition.interest

    def start(self) -> Together:
        return Together([c.start() for c in self._conditions], [Book() for _ in self._conditions])

    def step(self, state: Together, batch: Sequence[Item], now_ns: int) -> tuple[Together, Sequence[Observation]]:
        touched: set[Labels] = set()
        for i, condition in enumerate(self._conditions):
            state.children[i], said = condition.step(state.children[i], batch, now_ns)
            best: dict[Labels, Observation] = {}
            for o in said:
                key = join_key(o.labels, self._on)
                if key not in best or _RANK[o.truth] > _RANK[best[key].truth]:
                    best[key] = o
            for key, o in best.items():
                state.held[i].put(key, Held(o.truth, now_ns, o.value, o.limit, o.what), now_ns)
            touched.update(best)
            state.held[i].sweep(now_ns)
        if () in touched and self._on:
            touched.discard(())
            touched.update(key for book in state.held for key, _ in book if key)
        return state, [self._observe(state, key, now_ns) for key in sorted(touched)]

    def _observe(self, state: Together, key: Labels, now_ns: int) -> Observation:
        said = [book.get(key) or book.get(()) for book in state.held]
        first = said[0]
        truth = Truth.TRUE
        for one in said:
            if one is None or one.truth is Truth.UNKNOWN or now_ns - one.at_ns > self._fresh_ns:
                truth = Truth.UNKNOWN
            elif one.truth is Truth.FALSE:
                truth = Truth.FALSE
                break
        what = "; ".join(one.what for one in said if one and one.what)
        return Observation(key, truth, now_ns, first.value if first else None, first.limit if first else None, what)

    def dump(self, state: Together) -> object:
        return {
            "children": [c.dump(s) for c, s in zip(self._conditions, state.children, strict=True)],
            "held": [book.dump(_HELD) for book in state.held],
        }

    def load(self, data: object) -> Together:
        if not isinstance(data, dict) or len(data.get("children", ())) != len(self._conditions):
            raise ValueError("not the state of a composite")
        children = [c.load(s) for c, s in zip(self._conditions, data["children"], strict=True)]
        return Together(children, [Book.load(book, _HELD) for book in data["held"]])

    def promql(self) -> str | None:
        parts = [condition.promql() for condition in self._conditions]
        known = [p for p in parts if p is not None]
        if len(known) != len(parts):
            return None
        on = ", ".join(("host", *self._on))
        return f" and on ({on}) ".join(f"({p})" for p in known)


def _common(found: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(name for name in found[0] if all(name in names for names in found)) if found else ()


def build(config: Config) -> Composite:
    return Composite(config)
