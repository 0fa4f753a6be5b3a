"""A temperature that rises at unchanged power, by the thermal analysis: 'a rise not explained by power'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from pydantic import TypeAdapter, ValidationInfo, field_validator

from soakd.analysis.thermal import Drift, ThermalJudgement, ThermalQuestion, judge_thermal
from soakd.fields import ConfigModel, Seconds
from soakd.model import Event, Labels, Sample
from soakd.ports import Item
from soakd.quantities import format_value
from soakd.rules.book import Book
from soakd.rules.condition import NS, RUN_ENDED, RUN_STARTED, Interest, Observation, Shape, Truth
from soakd.rules.options import Pick, join_key, parse_limit

KIND = "thermal_drift"
_BIN_NS = 10 * NS
_MOST_BINS = 2160
"""Six hours of ten-second means; older ones are dropped."""


class Config(ConfigModel):
    """``temperature`` and ``power`` are joined by card. More than ``above`` per hour, found at two looks in a row;
    looks come ``every``. The first ``warmup`` of a soak is left out."""

    temperature: Pick
    power: Pick
    above: float
    warmup: Seconds = 900.0
    every: Seconds = 600.0

    @field_validator("temperature", "power")
    @classmethod
    def _units(cls, value: Pick, info: ValidationInfo) -> Pick:
        wanted = "celsius" if info.field_name == "temperature" else "watts"
        if value.metric.unit != wanted:
            raise ValueError(f"{value.metric.name} is in {value.metric.unit or 'no unit'}, not in {wanted}")
        return value

    @field_validator("above", mode="before")
    @classmethod
    def _rate(cls, value: object) -> float:
        return parse_limit(value, "celsius", "hour")


@dataclass(slots=True)
class Mean:
    """Sums within one bin."""

    bin: int
    celsius: float = 0.0
    celsius_count: int = 0
    watts: float = 0.0
    watts_count: int = 0


@dataclass(slots=True)
class Card:
    means: list[Mean] = field(default_factory=list)
    looked_ns: int = 0
    suspected: bool = False
    truth: Truth = Truth.UNKNOWN
    value: float | None = None
    what: str = ""
    fields: Labels = ()


@dataclass(slots=True)
class Cards:
    cards: Book[Card] = field(default_factory=Book)


_CARD: TypeAdapter[Card] = TypeAdapter(Card)


class ThermalDriftRule:
    """Between looks the last one stands. A soak begins anew, since its load is not the one before."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._on = tuple(n for n in config.temperature.metric.label_names if n in config.power.metric.label_names)
        metrics = frozenset((config.temperature.metric.name, config.power.metric.name))
        self.interest = Interest(metrics, (RUN_STARTED, RUN_ENDED))
        self.shape = Shape(config.temperature.metric.name, "celsius/h", self._on, ("low", "high", "detectable"))

    def start(self) -> Cards:
        return Cards()

    def step(self, state: Cards, batch: Sequence[Item], now_ns: int) -> tuple[Cards, Sequence[Observation]]:
        touched: dict[Labels, Card] = {}
        for item in batch:
            if isinstance(item, Event):
                if item.kind in (RUN_STARTED, RUN_ENDED):
                    state.cards.clear()
                    touched.clear()
            elif item.value is not None:
                self._add(state, item, item.value, touched)
        looked = False
        for card in touched.values():
            first_ns = card.means[0].bin * _BIN_NS
            card.looked_ns = card.looked_ns or first_ns + int(self._config.warmup * NS)
            if not looked and now_ns - card.looked_ns >= self._config.every * NS:
                card.looked_ns, looked = now_ns, True
                self._look(card)
        state.cards.sweep(now_ns)
        return state, [
            Observation(labels, c.truth, now_ns, c.value, self._config.above, c.what, c.fields)
            for labels, c in touched.items()
        ]

    def _add(self, state: Cards, sample: Sample, value: float, touched: dict[Labels, Card]) -> None:
        is_temperature = self._config.temperature.takes(sample)
        if not is_temperature and not self._config.power.takes(sample):
            return
        labels = join_key(sample.labels, self._on)
        card = state.cards.get(labels) or Card()
        if not state.cards.put(labels, card, sample.at_ns):
            return
        number = sample.at_ns // _BIN_NS
        if not card.means or card.means[-1].bin < number:
            card.means.append(Mean(number))
            del card.means[:-_MOST_BINS]
        mean = card.means[-1]
        if is_temperature:
            mean.celsius, mean.celsius_count = mean.celsius + value, mean.celsius_count + 1
        else:
            mean.watts, mean.watts_count = mean.watts + value, mean.watts_count + 1
        touched[labels] = card

    def _look(self, card: Card) -> None:
        known = [m for m in card.means if m.celsius_count and m.watts_count]
        found = judge_thermal(
            ThermalQuestion(
                np.array([float(m.bin * 10) for m in known]),
                np.array([m.celsius / m.celsius_count for m in known]),
                np.array([m.watts / m.watts_count for m in known]),
                warmup=self._config.warmup,
                limit=self._config.above,
            )
        )
        drifts = found.verdict is Drift.DRIFT
        confirmed = drifts and card.suspected
        card.suspected = drifts
        card.truth = Truth.TRUE if confirmed else Truth.FALSE if found.verdict is Drift.NO_DRIFT else Truth.UNKNOWN
        card.value, card.what, card.fields = found.slope, found.why, _fields(found)

    def dump(self, state: Cards) -> object:
        return {"cards": state.cards.dump(_CARD)}

    def load(self, data: object) -> Cards:
        if not isinstance(data, dict):
            raise ValueError("not the state of a thermal rule")
        return Cards(Book.load(data.get("cards"), _CARD))

    def promql(self) -> str | None:
        return None


def _fields(found: ThermalJudgement) -> Labels:
    unit = "celsius/h"
    return (
        ("low", format_value(found.slope_low, unit)),
        ("high", format_value(found.slope_high, unit)),
        ("detectable", format_value(found.smallest_detectable, unit)),
    )


def build(config: Config) -> ThermalDriftRule:
    return ThermalDriftRule(config)
