"""Growth without end, by the leak analysis: its slope, its interval, and what could have been detected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import orjson
from pydantic import Field, ValidationInfo, field_validator

from soakd.analysis.online import MonitorConfig, SeriesMonitor
from soakd.analysis.series import Leak, SeriesJudgement
from soakd.fields import Ratio, Seconds
from soakd.model import Event, Kind, Labels, Metric, Sample
from soakd.ports import Item
from soakd.quantities import format_value
from soakd.rules.book import Book
from soakd.rules.condition import NS, RUN_ENDED, RUN_STARTED, Interest, Observation, Shape, Truth
from soakd.rules.options import Pick, join_key, parse_limit

KIND = "leak_slope"
_RESTARTS = ("server.restart", "server.exit")
_MOST_LOOKS = 1
"""A look fits several models; more series than this that are due wait for the next step."""


class Config(Pick):
    """A LEAK whose slope is above ``above`` (per hour; 0 for any). ``total`` is the size of what fills up, for the
    percentage; ``page`` the quantum of the readings. ``family`` is how many series are watched by rules like this."""

    above: float = 0.0
    above_share: Ratio | None = None
    total: Pick | None = None
    page: float = 0.0
    warmup: Seconds | None = None
    family: Annotated[int, Field(ge=1, le=4096)] = 1

    @field_validator("metric")
    @classmethod
    def _gauge(cls, value: Metric) -> Metric:
        if value.kind is not Kind.GAUGE:
            raise ValueError(f"{value.name} is a {value.kind.value}; a leak is judged on a gauge")
        return value

    @field_validator("above", mode="before")
    @classmethod
    def _rate(cls, value: object, info: ValidationInfo) -> float:
        metric = info.data.get("metric")
        return 0.0 if metric is None or value == 0 else parse_limit(value, metric.unit, "hour")

    @field_validator("page", mode="before")
    @classmethod
    def _page(cls, value: object, info: ValidationInfo) -> float:
        metric = info.data.get("metric")
        return 0.0 if metric is None or value == 0 else parse_limit(value, metric.unit)


@dataclass(slots=True)
class Watched:
    """One series under judgement: its monitor, when it began, and what the last look said."""

    monitor: SeriesMonitor
    start_ns: int
    last: Observation | None = None


@dataclass(slots=True)
class Leaks:
    watched: Book[Watched] = field(default_factory=Book)
    totals: Book[float] = field(default_factory=Book)
    planned_s: float | None = None


class LeakSlope:
    """Looks when one is due (see ``soakd.analysis.online``); between looks the last one stands. A soak begins anew."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._on = tuple(n for n in config.metric.label_names if config.total and n in config.total.metric.label_names)
        metrics = {config.metric.name} | ({config.total.metric.name} if config.total else set())
        self.interest = Interest(frozenset(metrics), (RUN_STARTED, RUN_ENDED, *_RESTARTS))
        fields = ("low", "high", "detectable", "percent", "shape", "exhausted_in")
        self.shape = Shape(config.metric.name, f"{config.metric.unit}/h", config.metric.label_names, fields)

    def start(self) -> Leaks:
        return Leaks()

    def step(self, state: Leaks, batch: Sequence[Item], now_ns: int) -> tuple[Leaks, Sequence[Observation]]:
        touched: dict[Labels, Observation] = {}
        for item in batch:
            if isinstance(item, Event):
                self._on_event(state, item)
            elif self._config.takes(item):
                self._add(state, item, touched)
            elif self._config.total and self._config.total.takes(item) and item.value is not None:
                state.totals.put(join_key(item.labels, self._on), item.value, item.at_ns)
        looks = 0
        for labels in touched:
            watched = state.watched.get(labels)
            if watched is None or looks >= _MOST_LOOKS:
                continue
            x = (now_ns - watched.start_ns) / NS
            judgement = watched.monitor.look(x) if watched.monitor.due(x) else None
            if judgement is not None:
                looks += 1
                watched.last = self._observe(state, labels, judgement, now_ns)
            if watched.last is not None:
                touched[labels] = watched.last
        state.watched.sweep(now_ns)
        return state, tuple(touched.values())

    def _on_event(self, state: Leaks, event: Event) -> None:
        if event.kind in (RUN_STARTED, RUN_ENDED):
            state.watched.clear()
            planned = dict(event.attrs).get("planned_seconds")
            state.planned_s = float(planned) if planned else None
        elif event.kind in _RESTARTS:
            for _, watched in state.watched:
                watched.monitor.restarted((event.at_ns - watched.start_ns) / NS)

    def _add(self, state: Leaks, sample: Sample, touched: dict[Labels, Observation]) -> None:
        if sample.value is None:
            touched.setdefault(sample.labels, Observation(sample.labels, Truth.UNKNOWN, sample.at_ns, what=sample.why))
            return
        watched = state.watched.get(sample.labels)
        if watched is None:
            watched = Watched(SeriesMonitor(self._monitor(state.planned_s)), sample.at_ns)
        if not state.watched.put(sample.labels, watched, sample.at_ns):
            return
        watched.monitor.add((sample.at_ns - watched.start_ns) / NS, sample.value)
        touched[sample.labels] = Observation(sample.labels, Truth.UNKNOWN, sample.at_ns, what="not judged yet")

    def _monitor(self, planned_s: float | None) -> MonitorConfig:
        c = self._config
        return MonitorConfig(
            page=c.page, warmup=c.warmup, wanted_span=planned_s, family=c.family, name=c.metric.name,
            unit=c.metric.unit,
        )  # fmt: skip

    def _observe(self, state: Leaks, labels: Labels, found: SeriesJudgement, now_ns: int) -> Observation:
        unit = self.shape.unit
        total = state.totals.get(join_key(labels, self._on))
        limit = self._config.above
        if self._config.above_share is not None and total:
            limit = max(limit, self._config.above_share * total)
        truth = Truth.UNKNOWN
        if found.verdict is Leak.LEAK:
            truth = Truth.TRUE if found.slope_low is not None and found.slope_low > limit else Truth.FALSE
        elif found.verdict is Leak.NO_LEAK:
            truth = Truth.FALSE
        hours = (total / found.slope) if total and found.slope and found.slope > 0 else None
        fields = (
            ("low", format_value(found.slope_low, unit)),
            ("high", format_value(found.slope_high, unit)),
            ("detectable", format_value(found.smallest_detectable, unit)),
            ("percent", f"{100 * found.slope / total:.3g} %/h" if total and found.slope is not None else "unknown"),
            ("shape", found.shape.value),
            ("exhausted_in", f"{hours:.3g} h" if hours else "unknown"),
        )
        return Observation(labels, truth, now_ns, found.slope, limit, found.why, fields)

    def dump(self, state: Leaks) -> object:
        return {
            "planned_s": state.planned_s,
            "watched": [
                [list(labels), w.start_ns, w.monitor.dump().decode(), None if w.last is None else w.last.truth.value]
                for labels, w in state.watched
            ],
        }

    def load(self, data: object) -> Leaks:
        if not isinstance(data, dict) or not isinstance(data.get("watched"), list):
            raise ValueError("not the state of a leak rule")
        planned = data.get("planned_s")
        state = Leaks(planned_s=float(planned) if planned is not None else None)
        for key, start_ns, monitor, _truth in data["watched"]:
            labels = tuple((str(n), str(v)) for n, v in key)
            at_ns = int(start_ns) + int(NS * float(orjson.loads(monitor).get("last_x") or 0))
            restored = SeriesMonitor.restore(self._monitor(state.planned_s), monitor.encode())
            state.watched.put(labels, Watched(restored, int(start_ns)), at_ns)
        return state

    def promql(self) -> str | None:
        return None


def build(config: Config) -> LeakSlope:
    return LeakSlope(config)
