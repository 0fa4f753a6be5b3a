"""An error budget that burns too fast, over a long and a short window together (Google SRE workbook, chapter 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field, TypeAdapter, field_validator, model_validator

from soakd.counters import increase
from soakd.fields import ConfigModel, Ratio, Seconds
from soakd.model import Kind, Labels, Sample
from soakd.ports import Item
from soakd.quantities import format_duration, format_value
from soakd.rules.book import Book
from soakd.rules.condition import NS, Interest, Observation, Shape, Truth
from soakd.rules.options import Pick
from soakd.rules.window import Counter, Sliding, inside

KIND = "burn_rate"


class Config(ConfigModel):
    """``budget`` is the share of ``total`` that may be ``bad``; the alert is for burning it ``factor`` times as fast.

    ``total`` are counters that are added up (``bad`` is not added to them by itself). Fewer than ``at_least`` of the
    total within the long window prove nothing.
    """

    bad: tuple[Pick, ...]
    total: tuple[Pick, ...]
    budget: Ratio
    factor: Annotated[float, Field(gt=0)]
    long: Seconds = 3600.0
    short: Seconds = 300.0
    at_least: Annotated[int, Field(ge=1)] = 20

    @field_validator("bad", "total")
    @classmethod
    def _counters(cls, value: tuple[Pick, ...]) -> tuple[Pick, ...]:
        for pick in value:
            if pick.metric.kind is not Kind.COUNTER:
                raise ValueError(f"{pick.metric.name} is no counter")
        return value

    @model_validator(mode="after")
    def _sane(self) -> Config:
        if not 0 < self.short < self.long:
            raise ValueError("short must be shorter than long")
        if not 0 < self.budget * self.factor < 1:
            raise ValueError("budget times factor is a share that errors can reach: between 0 and 1")
        return self


@dataclass(slots=True)
class Budget:
    counters: Book[Counter] = field(default_factory=Book)
    bad_long: Sliding = field(default_factory=lambda: Sliding(NS))
    bad_short: Sliding = field(default_factory=lambda: Sliding(NS))
    total_long: Sliding = field(default_factory=lambda: Sliding(NS))
    total_short: Sliding = field(default_factory=lambda: Sliding(NS))


_COUNTER: TypeAdapter[Counter] = TypeAdapter(Counter)
_SLIDING: TypeAdapter[Sliding] = TypeAdapter(Sliding)
_WINDOWS = ("bad_long", "bad_short", "total_long", "total_short")


class BurnRate:
    """One budget for everything that the selections take."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.interest = Interest(frozenset(p.metric.name for p in (*config.bad, *config.total)))
        self.shape = Shape(config.bad[0].metric.name, "ratio", (), ("budget", "burn", "window"))

    def start(self) -> Budget:
        long_ns, short_ns = int(self._config.long * NS), int(self._config.short * NS)
        return Budget(Book(), Sliding(long_ns), Sliding(short_ns), Sliding(long_ns), Sliding(short_ns))

    def step(self, state: Budget, batch: Sequence[Item], now_ns: int) -> tuple[Budget, Sequence[Observation]]:
        at_ns = 0
        for item in batch:
            if not isinstance(item, Sample) or item.value is None:
                continue
            bad = any(p.takes(item) for p in self._config.bad)
            total = any(p.takes(item) for p in self._config.total)
            if not bad and not total:
                continue
            at_ns = max(at_ns, item.at_ns)
            step, gap_ns = self._step(state, item)
            for wanted, long, short in (
                (bad, state.bad_long, state.bad_short), (total, state.total_long, state.total_short),
            ):  # fmt: skip
                if wanted:
                    long.add(item.at_ns, inside(step, gap_ns, long.within_ns))
                    short.add(item.at_ns, inside(step, gap_ns, short.within_ns))
        state.counters.sweep(now_ns)
        return state, [self._observe(state, at_ns)] if at_ns else []

    def _step(self, state: Budget, sample: Sample) -> tuple[float, int]:
        assert sample.value is not None
        key: Labels = (("__metric__", sample.metric.name), *sample.labels)
        last = state.counters.get(key)
        state.counters.put(key, Counter(sample.value, sample.at_ns), sample.at_ns)
        if last is None:
            return 0.0, 0
        return increase((last.value, sample.value), sample.metric.wraps_at), sample.at_ns - last.at_ns

    def _observe(self, state: Budget, at_ns: int) -> Observation:
        config, limit = self._config, self._config.budget * self._config.factor
        long_total, short_total = state.total_long.total(at_ns), state.total_short.total(at_ns)
        if long_total < config.at_least:
            return Observation((), Truth.UNKNOWN, at_ns, None, limit, f"only {long_total:.0f} within the window")
        long = state.bad_long.total(at_ns) / long_total
        short = state.bad_short.total(at_ns) / short_total if short_total > 0 else 0.0
        truth = long > limit and short > limit
        fields = (
            ("budget", format_value(config.budget, "ratio")), ("burn", f"{long / config.budget:.3g}"),
            ("window", format_duration(config.long)),
        )  # fmt: skip
        return Observation((), Truth.TRUE if truth else Truth.FALSE, at_ns, long, limit, "", fields)

    def dump(self, state: Budget) -> object:
        windows = {name: _SLIDING.dump_python(getattr(state, name), mode="json") for name in _WINDOWS}
        return {"counters": state.counters.dump(_COUNTER), **windows}

    def load(self, data: object) -> Budget:
        if not isinstance(data, dict):
            raise ValueError("not the state of a budget")
        return Budget(
            Book.load(data.get("counters"), _COUNTER),
            *(_SLIDING.validate_python(data.get(name)) for name in _WINDOWS),
        )

    def promql(self) -> str | None:
        limit = self._config.budget * self._config.factor
        return " and ".join(
            f"{self._share(int(window))} > {limit:g}" for window in (self._config.long, self._config.short)
        )

    def _share(self, window_s: int) -> str:
        def added(picks: tuple[Pick, ...]) -> str:
            return " + ".join(f"sum by (host) (increase({p.promql()}[{window_s}s]))" for p in picks)

        return f"({added(self._config.bad)}) / ({added(self._config.total)})"


def build(config: Config) -> BurnRate:
    return BurnRate(config)
