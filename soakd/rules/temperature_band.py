"""A temperature that leaves its band for too much of the time: 78 +/- 2 C, judged over a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationInfo, field_validator

from soakd.fields import Ratio, Seconds
from soakd.model import Labels, Metric, Sample
from soakd.ports import Item
from soakd.quantities import format_duration, format_value
from soakd.rules.book import Book
from soakd.rules.condition import NS, Interest, Observation, Shape, Truth
from soakd.rules.options import Pick, parse_limit
from soakd.rules.window import Sliding

KIND = "temperature_band"
_LONGEST_GAP_NS = 30 * NS


class Config(Pick):
    """``center`` +/- ``width``; outside for more than ``outside_above`` of the known time within ``within``. ``clear``
    is the share at which an alert that fires may end. Without ``both_sides`` only what is too warm counts."""

    center: float
    width: float
    outside_above: Ratio = 0.05
    clear: Ratio | None = None
    within: Seconds = 1800.0
    both_sides: bool = True

    @field_validator("metric")
    @classmethod
    def _temperature(cls, value: Metric) -> Metric:
        if value.unit != "celsius":
            raise ValueError(f"{value.name} is in {value.unit or 'no unit'}, not in celsius")
        return value

    @field_validator("center", "width", mode="before")
    @classmethod
    def _celsius(cls, value: object, info: ValidationInfo) -> float:
        return parse_limit(value, "celsius")


@dataclass(slots=True)
class Kept:
    """How long a temperature was known and how long outside, in the window; the last reading."""

    known: Sliding
    outside: Sliding
    at_ns: int
    was_outside: bool
    beyond: bool = False


@dataclass(slots=True)
class Bands:
    kept: Book[Kept] = field(default_factory=Book)


_KEPT: TypeAdapter[Kept] = TypeAdapter(Kept)


class TemperatureBand:
    """A reading stands until the next, at most half a minute: a gap is unknown time. Judged once the window is half
    known."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._within_ns = int(config.within * NS)
        self.interest = Interest(frozenset((config.metric.name,)))
        self.shape = Shape(config.metric.name, "ratio", config.metric.label_names, ("band", "temperature", "within"))

    def start(self) -> Bands:
        return Bands()

    def step(self, state: Bands, batch: Sequence[Item], now_ns: int) -> tuple[Bands, Sequence[Observation]]:
        found: dict[Labels, Observation] = {}
        for item in batch:
            if isinstance(item, Sample) and self._config.takes(item):
                if item.value is None:
                    found[item.labels] = Observation(item.labels, Truth.UNKNOWN, item.at_ns, what=item.why)
                else:
                    found[item.labels] = self._observe(state, item, item.value)
        state.kept.sweep(now_ns)
        return state, tuple(found.values())

    def _observe(self, state: Bands, sample: Sample, value: float) -> Observation:
        config, at_ns = self._config, sample.at_ns
        outside = value > config.center + config.width
        outside = outside or (config.both_sides and value < config.center - config.width)
        kept = state.kept.get(sample.labels)
        if kept is None:
            kept = Kept(Sliding(self._within_ns), Sliding(self._within_ns), at_ns, outside)
        stood = min(max(at_ns - kept.at_ns, 0), _LONGEST_GAP_NS) / NS
        kept.known.add(at_ns, stood)
        kept.outside.add(at_ns, stood if kept.was_outside else 0.0)
        kept.at_ns, kept.was_outside = at_ns, outside
        known = kept.known.total(at_ns)
        if not state.kept.put(sample.labels, kept, at_ns) or known < config.within / 2:
            return Observation(sample.labels, Truth.UNKNOWN, at_ns, None, config.outside_above, "not read long enough")
        share = kept.outside.total(at_ns) / known
        bound = config.clear if config.clear is not None and kept.beyond else config.outside_above
        kept.beyond = share > bound
        fields = (
            ("band", f"{config.center:g} ± {config.width:g} °C"), ("temperature", format_value(value, "celsius")),
            ("within", format_duration(config.within)),
        )  # fmt: skip
        truth = Truth.TRUE if kept.beyond else Truth.FALSE
        return Observation(sample.labels, truth, at_ns, share, config.outside_above, "", fields)

    def dump(self, state: Bands) -> object:
        return {"kept": state.kept.dump(_KEPT)}

    def load(self, data: object) -> Bands:
        if not isinstance(data, dict):
            raise ValueError("not the state of a band")
        return Bands(Book.load(data.get("kept"), _KEPT))

    def promql(self) -> str | None:
        config, name = self._config, self._config.promql()
        low, high, window = config.center - config.width, config.center + config.width, int(config.within)
        outside = f"({name} > bool {high:g})"
        if config.both_sides:
            outside += f" + ({name} < bool {low:g})"
        return f"avg_over_time(({outside})[{window}s:15s]) > {config.outside_above:g}"


def build(config: Config) -> TemperatureBand:
    return TemperatureBand(config)
