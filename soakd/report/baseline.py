"""Published results as data with their provenance, to hold a run against: ``configs/baselines/*.yaml``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from soakd.quantities import parse_duration
from soakd.report.compare import NOT_APPLICABLE, Condition, Subject
from soakd.report.figures import Measure
from soakd.yaml_source import Source, load_yaml


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Provenance(_Strict):
    """Where the figures come from and what is doubtful about them."""

    source: str
    measured_by_soakd: bool
    spread: str = ""
    doubts: tuple[str, ...] = ()


class Conditions(_Strict):
    """Under which the figures were had; what the source does not say is left out and counts as unknown."""

    profile: str = ""
    load: str = ""
    model: str = ""
    server: str = ""
    hardware: str = ""
    duration: str = ""


class BaselineMeasure(_Strict):
    """A figure as printed. ``low`` and ``high`` are the printed spread, if any."""

    name: str
    unit: str = ""
    value: float | None
    low: float | None = None
    high: float | None = None
    better: Literal["lower", "higher", "neither"] = "lower"
    note: str = ""


class Baseline(_Strict):
    """One file of ``configs/baselines``."""

    name: str
    title: str
    provenance: Provenance
    conditions: Conditions
    measures: tuple[BaselineMeasure, ...] = Field(min_length=1)


def load_baseline(path: Path) -> Subject:
    """Read a baseline as one side of a comparison. Raises ConfigError with file, line and key."""
    source = load_yaml(path)
    try:
        baseline = Baseline.model_validate(source.data)
    except ValidationError as error:
        raise source.validation_error(error) from None
    return _subject(baseline, source)


def _subject(baseline: Baseline, source: Source) -> Subject:
    given = baseline.conditions
    try:
        duration = parse_duration(given.duration) if given.duration else None
    except ValueError as error:
        raise source.error(("conditions", "duration"), str(error), "such as 2h") from None
    conditions = (
        Condition("profile", given.profile),
        Condition("load", given.load),
        Condition("model", given.model),
        Condition("server", given.server, False),
        Condition("hardware", given.hardware),
        Condition("soakd version", "" if baseline.provenance.measured_by_soakd else NOT_APPLICABLE),
        Condition("kind of run", "real"),
        Condition("scenario", "none", False),
        Condition("prompt mix sent", "as the profile says", False),
        Condition("interrupted", "no", False),
    )
    measures = tuple(
        Measure(m.name, m.unit, m.value, m.low, m.high, m.better, m.note or baseline.provenance.spread)
        for m in baseline.measures
    )
    return Subject(baseline.name, "baseline", conditions, measures, duration, source=baseline.provenance.source)
