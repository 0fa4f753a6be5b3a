"""What the keys of rule kinds are made of: metrics of the catalogue, label selections, limits with their unit.

Validated in a context that knows the catalogue, so that an unknown metric, a label it never carries or a wrong unit is
an error of its own key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, PlainValidator, ValidationInfo, field_validator

from soakd.fields import ConfigModel
from soakd.model import Kind, Labels, Metric, Sample
from soakd.quantities import parse_duration, parse_size
from soakd.rules.condition import Condition, matches

_NUMBER = re.compile(r"\s*([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)\s*(.*?)\s*", re.IGNORECASE)
_ALIASES: Mapping[str, Mapping[str, float]] = {
    "celsius": {"celsius": 1, "c": 1, "°c": 1},
    "watts": {"watts": 1, "w": 1, "kw": 1e3},
    "hertz": {"hertz": 1, "hz": 1, "mhz": 1e6, "ghz": 1e9},
    "ratio": {"ratio": 1, "%": 0.01},
}
_PER = {"second": "s", "minute": "m", "hour": "h"}
_PER_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class RuleKind:
    """One plug-in of soakd/rules: its model of keys, and what makes a condition of it."""

    config: type[BaseModel]
    build: Callable[[Any], Condition[Any]]


@dataclass(frozen=True, slots=True)
class RuleContext:
    """What validation knows beside the file: every metric and every kind of rule by name."""

    metrics: Mapping[str, Metric]
    kinds: Mapping[str, RuleKind]


def _metric(value: object, info: ValidationInfo) -> Metric:
    if not isinstance(info.context, RuleContext):
        raise ValueError("rules are validated against the catalogue of metrics")
    known = info.context.metrics
    if not isinstance(value, str) or value not in known:
        near = get_close_matches(str(value), known, 1, 0.5)
        raise ValueError("no metric of this name" + (f"; is it {near[0]}?" if near else ""))
    return known[value]


def _values(value: object) -> tuple[str, ...]:
    if isinstance(value, list) and value and all(isinstance(v, str | int) for v in value):
        return tuple(str(v) for v in value)
    if isinstance(value, str | int) and not isinstance(value, bool):
        return (str(value),)
    raise ValueError("give one value, or a list of them")


MetricRef = Annotated[Metric, PlainValidator(_metric)]
Values = Annotated[tuple[str, ...], BeforeValidator(_values)]


def check_labels(metric: Metric | None, names: object) -> None:
    """Raises ValueError for a label that the metric never carries (``metric`` None: it was wrong itself)."""
    if metric is None or not isinstance(names, Mapping | tuple | list):
        return
    for name in names:
        if name not in metric.label_names:
            have = ", ".join(metric.label_names) or "none"
            raise ValueError(f"{metric.name} has no label {name!r}; it has {have}")


class Pick(ConfigModel):
    """Series of a metric: all, or those whose labels have one of the values given."""

    metric: MetricRef
    where: Mapping[str, Values] = {}

    @field_validator("where")
    @classmethod
    def _known_labels(cls, value: Mapping[str, Values], info: ValidationInfo) -> Mapping[str, Values]:
        check_labels(info.data.get("metric"), value)
        return value

    def takes(self, sample: Sample) -> bool:
        return sample.metric.name == self.metric.name and matches(sample.labels, self.where)

    def promql(self, drop: tuple[str, ...] = ()) -> str:
        """The selector, without the labels to drop."""
        parts = [
            f'{name}="{values[0]}"' if len(values) == 1 else f'{name}=~"{"|".join(values)}"'
            for name, values in self.where.items()
            if name not in drop
        ]
        return f"{self.metric.name}{{{','.join(parts)}}}" if parts else self.metric.name


def parse_limit(value: object, unit: str, per: str = "") -> float:
    """A limit written with its unit (``85 celsius``, ``28 GiB``, ``90 %``, ``16 replays``), in the metric's unit.

    ``per`` is what a rate is taken over (``hour``): ``1 MiB/h``. Raises ValueError that says what would be right.
    """
    wanted = f"{unit or 'a plain number'}{'/' + _PER[per] if per else ''}"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"give a limit in {wanted}")
    if not isinstance(value, str):
        if unit:
            raise ValueError(f"a bare number; its unit would be a guess: write {value:g} {wanted}")
        return float(value)
    text = value.strip()
    if per:
        text, slash, over = text.rpartition("/")
        if not slash or over.strip() not in _PER_SECONDS:
            raise ValueError(f"not a rate; write it in {wanted}")
        return parse_limit(text, unit) * _PER_SECONDS[_PER[per]] / _PER_SECONDS[over.strip()]
    try:
        if unit == "bytes" and not text.lower().endswith("bytes"):
            sign = -1 if text.startswith("-") else 1
            return float(sign * parse_size(text.lstrip("+-")))
        if unit == "seconds" and not text.lower().endswith("seconds"):
            return parse_duration(text)
    except ValueError:
        raise ValueError(f"not in {wanted}") from None
    match = _NUMBER.fullmatch(text)
    if match:
        number, given = float(match[1]), match[2]
        scale = _ALIASES.get(unit, {unit.lower(): 1}).get(given.lower())
        if scale is not None and (given or not unit):
            return number * scale
    raise ValueError(f"the metric is in {wanted}, which this is not")


def code_of(metric: Metric, name: object) -> float:
    """The code of a named value of a state. Raises ValueError with the names there are."""
    codes = dict(metric.codes)
    if metric.kind is not Kind.STATE or str(name) not in codes:
        raise ValueError(f"{metric.name} has no value {name!r}; it has {', '.join(codes) or 'no named values'}")
    return float(codes[str(name)])


def name_of(metric: Metric, code: float) -> str:
    """The name of a state's code, or the number."""
    return next((name for name, value in metric.codes if value == code), f"{code:g}")


def join_key(found: Labels, on: tuple[str, ...]) -> Labels:
    return tuple(pair for pair in found if pair[0] in on)
