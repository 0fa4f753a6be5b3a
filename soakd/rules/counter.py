"""The increase of a counter within a window, over its epochs: a restart or a wrap is no burst."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationInfo, field_validator, model_validator

from soakd.counters import increase
from soakd.fields import Seconds
from soakd.model import Kind, Labels, Metric, Sample
from soakd.ports import Item
from soakd.quantities import format_duration
from soakd.rules.book import Book
from soakd.rules.condition import NS, Interest, Observation, Shape, Truth
from soakd.rules.options import Pick, check_labels, join_key, parse_limit
from soakd.rules.window import Counter, Sliding, inside

KIND = "increase"
_COUNTER: TypeAdapter[Counter] = TypeAdapter(Counter)
_SLIDING: TypeAdapter[Sliding] = TypeAdapter(Sliding)
_FLOAT: TypeAdapter[float] = TypeAdapter(float)
_BOOL: TypeAdapter[bool] = TypeAdapter(bool)


class Config(Pick):
    """More than ``above`` within ``within``. ``above`` may be another metric's reading (a limit that soakd computes).

    ``by`` sums the series that share these labels; without it each series stands for itself. ``clear`` is the increase
    at which an alert that fires may end.
    """

    above: float | Pick
    within: Seconds = 600.0
    by: tuple[str, ...] | None = None
    clear: float | None = None

    @field_validator("metric")
    @classmethod
    def _counts(cls, value: Metric) -> Metric:
        if value.kind is not Kind.COUNTER:
            raise ValueError(f"{value.name} is no counter; use kind threshold")
        return value

    @field_validator("above", "clear", mode="before")
    @classmethod
    def _limit(cls, value: object, info: ValidationInfo) -> object:
        metric = info.data.get("metric")
        if isinstance(value, dict) or value is None:
            return value
        return parse_limit(value, metric.unit) if metric else 0.0

    @field_validator("by")
    @classmethod
    def _known(cls, value: tuple[str, ...] | None, info: ValidationInfo) -> tuple[str, ...] | None:
        check_labels(info.data.get("metric"), value)
        return value

    @model_validator(mode="after")
    def _sane(self) -> Config:
        if self.within < 1:
            raise ValueError("within is 1s or more")
        if self.clear is not None and (not isinstance(self.above, float) or self.clear > self.above):
            raise ValueError("clear must be below a limit that is a number")
        return self


@dataclass(slots=True)
class Counting:
    counters: Book[Counter] = field(default_factory=Book)
    sums: Book[Sliding] = field(default_factory=Book)
    limits: Book[float] = field(default_factory=Book)
    beyond: Book[bool] = field(default_factory=Book)


class CounterIncrease:
    """The first reading of a counter is no increase: what it shows then was counted before soakd looked."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._within_ns = int(config.within * NS)
        self._by = config.by if config.by is not None else config.metric.label_names
        self._limit = config.above if isinstance(config.above, float) else None
        self._other = config.above if isinstance(config.above, Pick) else None
        self._on = tuple(n for n in self._by if self._other and n in self._other.metric.label_names)
        metrics = {config.metric.name} | ({self._other.metric.name} if self._other else set())
        self.interest = Interest(frozenset(metrics))
        self.shape = Shape(config.metric.name, config.metric.unit, self._by, ("within",))

    def start(self) -> Counting:
        return Counting()

    def step(self, state: Counting, batch: Sequence[Item], now_ns: int) -> tuple[Counting, Sequence[Observation]]:
        touched: dict[Labels, int] = {}
        unknown: dict[Labels, Sample] = {}
        for item in batch:
            if not isinstance(item, Sample):
                continue
            if self._other is not None and self._other.takes(item) and item.value is not None:
                state.limits.put(join_key(item.labels, self._on), item.value, item.at_ns)
            if not self._config.takes(item):
                continue
            group = join_key(item.labels, self._by)
            if item.value is None:
                unknown[group] = item
            elif self._count(state, group, item):
                touched[group] = item.at_ns
        # a sum that slides out of its window falls without a new reading of a series that reads on
        found = [self._observe(state, group, at_ns) for group, at_ns in touched.items()]
        for group, sample in unknown.items():
            if group not in touched:
                found.append(Observation(group, Truth.UNKNOWN, sample.at_ns, None, self._limit, sample.why))
        for book in (state.counters, state.sums, state.limits, state.beyond):
            book.sweep(now_ns)
        return state, found

    def _count(self, state: Counting, group: Labels, sample: Sample) -> bool:
        assert sample.value is not None
        last = state.counters.get(sample.labels)
        total = state.sums.get(group)
        if total is None:
            total = Sliding(self._within_ns)
        if not state.sums.put(group, total, sample.at_ns):
            return False
        if last is not None and sample.at_ns < last.at_ns:
            return False
        if not state.counters.put(sample.labels, Counter(sample.value, sample.at_ns), sample.at_ns):
            return False
        if last is not None:
            step = increase((last.value, sample.value), self._config.metric.wraps_at)
            total.add(sample.at_ns, inside(step, sample.at_ns - last.at_ns, self._within_ns))
        return True

    def _observe(self, state: Counting, group: Labels, at_ns: int) -> Observation:
        total = state.sums.get(group)
        value = total.total(at_ns) if total else 0.0
        limit = self._limit if self._other is None else state.limits.get(join_key(group, self._on))
        if limit is None:
            return Observation(group, Truth.UNKNOWN, at_ns, value, None, "its limit is not known")
        bound = self._config.clear if self._config.clear is not None and state.beyond.get(group) else limit
        truth = value > bound
        state.beyond.put(group, truth, at_ns)
        fields = (("within", format_duration(self._config.within)),)
        return Observation(group, Truth.TRUE if truth else Truth.FALSE, at_ns, value, limit, "", fields)

    def dump(self, state: Counting) -> object:
        return {
            "counters": state.counters.dump(_COUNTER), "sums": state.sums.dump(_SLIDING),
            "limits": state.limits.dump(_FLOAT), "beyond": state.beyond.dump(_BOOL),
        }  # fmt: skip

    def load(self, data: object) -> Counting:
        if not isinstance(data, dict):
            raise ValueError("not the state of a counter")
        return Counting(
            Book.load(data.get("counters"), _COUNTER), Book.load(data.get("sums"), _SLIDING),
            Book.load(data.get("limits"), _FLOAT), Book.load(data.get("beyond"), _BOOL),
        )  # fmt: skip

    def promql(self) -> str | None:
        config = self._config
        value = f"increase({config.promql()}[{int(config.within)}s])"
        if config.by is not None:
            value = f"sum by ({', '.join(('host', *config.by))}) ({value})"
        if self._other is None:
            return f"{value} > {self._limit:g}"
        on = ", ".join(("host", *self._on))
        return f"{value} > on ({on}) group_left () {self._other.promql()}"


def build(config: Config) -> CounterIncrease:
    return CounterIncrease(config)
