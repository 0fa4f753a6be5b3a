"""Data that is missing: a series that fell silent, or that can't be read any more. Never a zero, never a resolve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationInfo, field_validator

from soakd.fields import Seconds
from soakd.model import Labels, Sample, State
from soakd.ports import Item
from soakd.quantities import format_duration
from soakd.rules.book import Book
from soakd.rules.condition import NS, Interest, Observation, Shape, Truth
from soakd.rules.options import Pick, check_labels, join_key

KIND = "absence"
_UNWATCHED_NS = 60 * NS
"""An engine steps every second; where it did not for so long, it was not running."""


def _state(value: object) -> State:
    try:
        return State(value)
    except ValueError:
        raise ValueError(
            f"no state {value!r}; one of {', '.join(s.value for s in State if s is not State.OK)}"
        ) from None


class Config(Pick):
    """No reading for ``after``. ``states`` are the states of a reading that count as none; what a card or a host never
    had (unsupported, absent) is not missing. ``by`` takes the series that share these labels as one. ``expected``
    also misses a metric that nothing was ever read of.
    """

    after: Seconds = 120.0
    states: Annotated[
        tuple[Annotated[State, BeforeValidator(_state)], ...], Field(min_length=1)
    ] = (State.TIMEOUT, State.LOST, State.NO_PERMISSION)  # fmt: skip
    by: tuple[str, ...] | None = None
    silence: bool = True
    expected: bool = False

    @field_validator("by")
    @classmethod
    def _known(cls, value: tuple[str, ...] | None, info: ValidationInfo) -> tuple[str, ...] | None:
        check_labels(info.data.get("metric"), value)
        return value


@dataclass(slots=True)
class Last:
    """When a series was last read, and why it is not now."""

    read_ns: int
    why: str = ""


@dataclass(slots=True)
class Silence:
    series: Book[Last] = field(default_factory=Book)
    since_ns: int = 0
    stepped_ns: int = 0


_LAST: TypeAdapter[Last] = TypeAdapter(Last)


class Absence:
    """A series is known from its first reading on, or from its first state that counts as missing."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._after_ns = int(config.after * NS)
        self._by = config.by if config.by is not None else config.metric.label_names
        self.interest = Interest(frozenset((config.metric.name,)))
        self.shape = Shape(config.metric.name, "seconds", self._by)

    def start(self) -> Silence:
        return Silence()

    def step(self, state: Silence, batch: Sequence[Item], now_ns: int) -> tuple[Silence, Sequence[Observation]]:
        state.since_ns = state.since_ns or now_ns
        self._forgive(state, now_ns)
        for item in batch:
            if isinstance(item, Sample) and self._config.takes(item):
                self._take(state, item)
        found = [self._observe(labels, last, now_ns) for labels, last in state.series]
        if self._config.expected and not len(state.series):
            silent = now_ns - state.since_ns
            truth = Truth.TRUE if silent >= self._after_ns else Truth.FALSE
            found.append(Observation((), truth, now_ns, silent / NS, self._config.after, "nothing was ever read"))
        elif self._config.expected:
            found.append(Observation((), Truth.FALSE, now_ns, 0.0, self._config.after))
        state.series.sweep(now_ns)
        return state, [o for o in found if o.labels or self._config.expected or not self._by]

    def _forgive(self, state: Silence, now_ns: int) -> None:
        """Time in which nobody watched (soakd was not running) is no silence."""
        unwatched = now_ns - state.stepped_ns
        if state.stepped_ns and unwatched > _UNWATCHED_NS:
            state.since_ns += unwatched
            for _, last in state.series:
                last.read_ns += unwatched
        state.stepped_ns = now_ns

    def _take(self, state: Silence, sample: Sample) -> None:
        group = join_key(sample.labels, self._by)
        last = state.series.get(group)
        if sample.state is State.OK:
            state.series.put(group, Last(sample.at_ns), sample.at_ns)
        elif sample.state in self._config.states:
            read_ns = last.read_ns if last else sample.at_ns
            state.series.put(group, Last(read_ns, sample.why or sample.state.value), sample.at_ns)
        elif last is not None:
            # it is answered, with something that is not a fault: no longer missing, no longer expected
            state.series.drop(group)

    def _observe(self, labels: Labels, last: Last, now_ns: int) -> Observation:
        silent = now_ns - last.read_ns
        missing = silent >= self._after_ns and (self._config.silence or bool(last.why))
        what = last.why or f"no reading for {format_duration(silent / NS)}"
        truth = Truth.TRUE if missing else Truth.FALSE
        return Observation(labels, truth, now_ns, max(silent / NS, 0.0), self._config.after, what if missing else "")

    def dump(self, state: Silence) -> object:
        return {
            "series": state.series.dump(_LAST),
            "since_ns": state.since_ns,
            "stepped_ns": state.stepped_ns,
        }

    def load(self, data: object) -> Silence:
        if not isinstance(data, dict):
            raise ValueError("not the state of an absence")
        series = Book.load(data.get("series"), _LAST)
        return Silence(series, int(data.get("since_ns", 0)), int(data.get("stepped_ns", 0)))

    def promql(self) -> str | None:
        config, states = self._config, "|".join(s.value for s in self._config.states)
        if "gpu" in self._by and config.by is not None:
            return f'soakd_reading_state{{metric="{config.metric.name}",state=~"{states}"}} > 0'
        return f"absent_over_time({config.promql()}[{int(config.after)}s])" if config.expected else None


def build(config: Config) -> Absence:
    return Absence(config)
