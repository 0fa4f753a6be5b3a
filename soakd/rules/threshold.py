"""A reading above, below or equal to a limit; the limit may be another metric's reading of the same card or device."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationInfo, field_validator, model_validator

from soakd.model import Kind, Labels, Sample, State
from soakd.ports import Item
from soakd.rules.book import Book
from soakd.rules.condition import Interest, Observation, Shape, Truth
from soakd.rules.options import Pick, Values, code_of, join_key, name_of, parse_limit

KIND = "threshold"
_FLOAT: TypeAdapter[float] = TypeAdapter(float)
_BOOL: TypeAdapter[bool] = TypeAdapter(bool)


class Against(Pick):
    """Another metric's reading, with ``plus`` added (in its unit); series are joined by the labels both have."""

    plus: float = 0.0

    @field_validator("plus", mode="before")
    @classmethod
    def _in_unit(cls, value: object, info: ValidationInfo) -> float:
        metric = info.data.get("metric")
        return parse_limit(value, metric.unit) if metric else 0.0


class Config(Pick):
    """One of ``above``, ``below`` and ``equals`` (names of a state's values). ``clear`` is the value at which an alert
    that fires may end; ``hysteresis`` is the same as a distance from a limit that moves. ``over`` divides the reading
    by another metric's (then the limit is a ratio).
    """

    over: Pick | None = None
    above: float | Against | None = None
    below: float | Against | None = None
    equals: Values = ()
    clear: float | None = None
    hysteresis: float = 0.0

    @field_validator("above", "below", "clear", "hysteresis", mode="before")
    @classmethod
    def _limit(cls, value: object, info: ValidationInfo) -> object:
        metric = info.data.get("metric")
        if isinstance(value, Mapping) or value is None:
            return value
        if metric is None:  # it was wrong itself: one error is enough
            return 0.0
        return parse_limit(value, "ratio" if info.data.get("over") else metric.unit)

    @field_validator("equals")
    @classmethod
    def _codes(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if metric := info.data.get("metric"):
            for name in value:
                code_of(metric, name)
        return value

    @model_validator(mode="after")
    def _one(self) -> Config:
        given = [self.above is not None, self.below is not None, bool(self.equals)]
        if sum(given) != 1:
            raise ValueError("give one of above, below and equals")
        if self.hysteresis < 0 or (self.hysteresis and self.clear is not None):
            raise ValueError("hysteresis is a distance, and does not go with clear")
        if self.clear is not None:
            limit = self.above if self.above is not None else self.below
            if not isinstance(limit, float) or (self.clear > limit) == (self.above is not None):
                raise ValueError("clear must be on the good side of a limit that is a number")
        return self


@dataclass(slots=True)
class Thresholds:
    """The last readings that limits are taken from, by what joins them, and which series are beyond the limit."""

    limits: Book[float] = field(default_factory=Book)
    divisors: Book[float] = field(default_factory=Book)
    beyond: Book[bool] = field(default_factory=Book)


class Threshold:
    """A series beyond its limit stays so until it is back at ``clear``."""

    def __init__(self, config: Config) -> None:
        self._config = config
        limit = config.above if config.above is not None else config.below
        self._against = limit if isinstance(limit, Against) else None
        self._limit = limit if isinstance(limit, float) else None
        self._codes = {code_of(config.metric, name) for name in config.equals}
        self._beyond = operator.gt if config.above is not None else operator.lt
        self._on = _shared(config, self._against)
        self._on_divisor = _shared(config, config.over)
        metrics = [config.metric.name, *(p.metric.name for p in (self._against, config.over) if p)]
        self.interest = Interest(frozenset(metrics))
        self.shape = Shape(
            config.metric.name, "ratio" if config.over else config.metric.unit, config.metric.label_names
        )

    def start(self) -> Thresholds:
        return Thresholds()

    def step(self, state: Thresholds, batch: Sequence[Item], now_ns: int) -> tuple[Thresholds, Sequence[Observation]]:
        found: dict[Labels, Observation] = {}
        for item in batch:
            if not isinstance(item, Sample):
                continue
            if self._against is not None and self._against.takes(item):
                _remember(state.limits, join_key(item.labels, self._on), item)
            if self._config.over is not None and self._config.over.takes(item):
                _remember(state.divisors, join_key(item.labels, self._on_divisor), item)
        for item in batch:
            if isinstance(item, Sample) and self._config.takes(item):
                found[item.labels] = self._observe(state, item)
        for book in (state.limits, state.divisors, state.beyond):
            book.sweep(now_ns)
        return state, tuple(found.values())

    def _observe(self, state: Thresholds, sample: Sample) -> Observation:
        value, limit = self._value(state, sample), self._limit_of(state, sample)
        if value is None or (limit is None and not self._codes):
            return Observation(sample.labels, Truth.UNKNOWN, sample.at_ns, value, limit, sample.why)
        if limit is None:
            truth = value in self._codes
            what = name_of(sample.metric, value) if sample.metric.kind is Kind.STATE else ""
            return Observation(sample.labels, Truth.TRUE if truth else Truth.FALSE, sample.at_ns, value, None, what)
        bound = limit
        if state.beyond.get(sample.labels):
            back = -self._config.hysteresis if self._config.above is not None else self._config.hysteresis
            bound = self._config.clear if self._config.clear is not None else limit + back
        truth = bool(self._beyond(value, bound))
        state.beyond.put(sample.labels, truth, sample.at_ns)
        return Observation(sample.labels, Truth.TRUE if truth else Truth.FALSE, sample.at_ns, value, limit)

    def _value(self, state: Thresholds, sample: Sample) -> float | None:
        if self._config.over is None or sample.value is None:
            return sample.value
        divisor = state.divisors.get(join_key(sample.labels, self._on_divisor))
        return sample.value / divisor if divisor else None

    def _limit_of(self, state: Thresholds, sample: Sample) -> float | None:
        if self._against is None:
            return self._limit
        found = state.limits.get(join_key(sample.labels, self._on))
        return None if found is None else found + self._against.plus

    def dump(self, state: Thresholds) -> object:
        return {
            "limits": state.limits.dump(_FLOAT), "divisors": state.divisors.dump(_FLOAT),
            "beyond": state.beyond.dump(_BOOL),
        }  # fmt: skip

    def load(self, data: object) -> Thresholds:
        if not isinstance(data, dict):
            raise ValueError("not the state of a threshold")
        return Thresholds(
            Book.load(data.get("limits"), _FLOAT), Book.load(data.get("divisors"), _FLOAT),
            Book.load(data.get("beyond"), _BOOL),
        )  # fmt: skip

    def promql(self) -> str | None:
        config = self._config
        value = config.promql()
        if config.over is not None:
            value = f"{value} / {_matching(self._on_divisor)} {config.over.promql()}"
        if self._codes:
            return " or ".join(f"{value} == {code:g}" for code in sorted(self._codes))
        sign = ">" if config.above is not None else "<"
        if self._against is None:
            return f"{value} {sign} {self._limit:g}" if self._limit is not None else None
        plus = f" {'+' if self._against.plus > 0 else '-'} {abs(self._against.plus):g}" if self._against.plus else ""
        return f"{value} {sign} {_matching(self._on)} ({self._against.promql()}{plus})"


def _shared(config: Pick, other: Pick | None) -> tuple[str, ...]:
    if other is None:
        return ()
    return tuple(n for n in config.metric.label_names if n in other.metric.label_names and n not in other.where)


def _matching(on: tuple[str, ...]) -> str:
    return f"on ({', '.join(('host', *on))}) group_left ()"


def _remember(book: Book[float], key: Labels, sample: Sample) -> None:
    if sample.state is State.OK and sample.value is not None:
        book.put(key, sample.value, sample.at_ns)
    else:
        book.drop(key)


def build(config: Config) -> Threshold:
    return Threshold(config)
