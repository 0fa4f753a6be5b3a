"""Tests of rules: series and events in, alerts expected at times out.

A test file names its ``rules`` (files beside it) and has ``tests``, each with ``rule`` (or ``rules``), ``interval``,
``series`` in shorthand, ``events``, ``soaks``, and either ``expect`` (alerts at times, all that fire then) or
``silent: true`` (nothing ever fires). ``prometheus: false`` for what PromQL sees otherwise (hysteresis, missing data).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator

from soakd.alerting.rule_files import LoadedRule, load_rules
from soakd.alerting.shorthand import Reading, expand
from soakd.errors import ConfigError, Problem
from soakd.fields import ConfigModel, Seconds
from soakd.model import Alert, AlertState, Event, Labels, Metric, Sample, Severity, State
from soakd.ports import Item
from soakd.rules.condition import NS, RUN_ENDED, RUN_STARTED
from soakd.rules.options import MetricRef, RuleContext, Values, check_labels
from soakd.yaml_source import load_yaml

_START_NS = 1_700_000_000 * NS
_MOST_STEPS = 200_000


def _readings(value: object) -> tuple[Reading, ...]:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise ValueError("give readings in one text, such as 70x9 86x20")
    return tuple(expand(str(value)))


class SeriesConfig(ConfigModel):
    """One reading every interval, in the metric's own unit."""

    metric: MetricRef
    labels: Mapping[str, str] = {}
    values: Annotated[tuple[Reading, ...], BeforeValidator(_readings)]

    @field_validator("labels")
    @classmethod
    def _known(cls, value: Mapping[str, str], info: ValidationInfo) -> Mapping[str, str]:
        check_labels(info.data.get("metric"), value)
        return value


class EventConfig(ConfigModel):
    """Something that happens ``at`` a time from the start of the test."""

    at: Seconds
    kind: str
    what: str = "it happened"
    severity: Severity = Severity.WARNING
    labels: Mapping[str, str] = {}
    attrs: Mapping[str, str] = {}


class SoakConfig(ConfigModel):
    """A soak that runs ``from`` to ``to`` (the end of the test)."""

    from_: Seconds = Field(0.0, alias="from")
    to: Seconds | None = None
    warmup: Seconds = 0.0
    run: str = "test-run"
    planned: Seconds | None = None


class ExpectedAlert(ConfigModel):
    """``labels`` and texts that must be there; the alert may have more."""

    name: str
    labels: Mapping[str, str] = {}
    state: AlertState = AlertState.FIRING
    summary: str | None = None
    severity: Severity | None = None


class Expectation(ConfigModel):
    at: Seconds
    alerts: tuple[ExpectedAlert, ...] = ()


class CaseConfig(ConfigModel):
    name: str
    rule: Values
    interval: Seconds = 10.0
    lasts: Seconds | None = None
    series: tuple[SeriesConfig, ...] = ()
    events: tuple[EventConfig, ...] = ()
    soaks: tuple[SoakConfig, ...] = ()
    expect: tuple[Expectation, ...] = ()
    silent: bool = False
    prometheus: bool = True

    @model_validator(mode="after")
    def _judged(self) -> CaseConfig:
        if self.silent == bool(self.expect):
            raise ValueError("give what to expect, or silent: true")
        if self.steps > _MOST_STEPS:
            raise ValueError(f"more than {_MOST_STEPS} steps; use a longer interval")
        return self

    @property
    def steps(self) -> int:
        longest = max((len(s.values) for s in self.series), default=0)
        last_s = max((*(e.at for e in self.events), *(e.at for e in self.expect), self.lasts or 0.0), default=0.0)
        return max(longest, int(last_s / self.interval) + 1)


@dataclass(frozen=True, slots=True)
class Case:
    """A test, the rules it is about, and where it stands."""

    config: CaseConfig
    rules: tuple[LoadedRule, ...]
    place: str


@dataclass(frozen=True, slots=True)
class CaseResult:
    """``failures`` empty: the test holds. ``fired`` are the rules that fired at any time."""

    case: Case
    failures: tuple[str, ...]
    fired: frozenset[str]


def load_tests(path: Path, context: RuleContext) -> tuple[Case, ...]:
    """Raises ConfigError with every problem of the file and of the rule files it names."""
    source = load_yaml(path)
    data = source.data
    if not isinstance(data, dict) or not isinstance(data.get("tests"), list) or not isinstance(data.get("rules"), list):
        raise source.error((), "not a test file", "it has a list of rule files under `rules` and a list under `tests`")
    problems = [
        source.problem((key,), "unknown key", "a test file has `rules` and `tests`")
        for key in data if key not in ("rules", "tests")
    ]  # fmt: skip
    files = [path.parent / str(name) for name in data["rules"]]
    rules = {r.config.name: r for r in load_rules(files, context.metrics)}
    cases: list[Case] = []
    for i, entry in enumerate(data["tests"]):
        place = ("tests", i)
        try:
            config = CaseConfig.model_validate(entry, context=context)
        except ValidationError as error:
            problems.extend(source.validation_error(error, place).problems)
            continue
        unknown = [name for name in config.rule if name not in rules]
        problems += [source.problem((*place, "rule"), f"no rule {n!r}", "one of these files' rules") for n in unknown]
        if not unknown:
            chosen = tuple(rules[name] for name in config.rule)
            cases.append(Case(config, chosen, f"{source.name}:{source.line_of(place)}"))
    if problems:
        raise ConfigError([Problem(p.file, p.line, p.key, p.found, p.wanted) for p in problems])
    return tuple(cases)


def run_test(case: Case) -> CaseResult:
    """Step the rules through the test. Pure."""
    config = case.config
    states = [r.rule.start() for r in case.rules]
    firing: dict[tuple[str, Labels], Alert] = {}
    fired: set[str] = set()
    failures: list[str] = []
    due = sorted(config.expect, key=lambda e: e.at)
    for at_s, batch in _batches(config):
        now_ns = _START_NS + int(at_s * NS)
        current: list[Alert] = []
        for i, loaded in enumerate(case.rules):
            states[i], changed = loaded.rule.step(states[i], batch, now_ns)
            for alert in changed:
                _note(alert, firing, fired)
            current += loaded.rule.alerts(states[i])
        if config.silent and firing:
            shown = "; ".join(alert.summary for alert in firing.values())
            return CaseResult(case, (f"at {at_s:g}s it fires: {shown}",), frozenset(fired))
        while due and due[0].at < at_s + config.interval:
            failures += _compare(due.pop(0), current)
    failures += [f"at {e.at:g}s: the test ends before" for e in due]
    return CaseResult(case, tuple(failures), frozenset(fired))


def _note(alert: Alert, firing: dict[tuple[str, Labels], Alert], fired: set[str]) -> None:
    if alert.state is AlertState.FIRING:
        firing[alert.key] = alert
        fired.add(alert.name)
    else:
        firing.pop(alert.key, None)


def _batches(config: CaseConfig) -> Iterator[tuple[float, list[Item]]]:
    timed = [(e.at, _event(e)) for e in config.events]
    for soak in config.soaks:
        timed += _soak(soak)
    timed.sort(key=lambda t: t[0])
    for step in range(config.steps):
        at_s = step * config.interval
        batch: list[Item] = []
        while timed and timed[0][0] < at_s + config.interval:
            batch.append(timed.pop(0)[1])
        for series in config.series:
            if step < len(series.values) and series.values[step] is not None:
                batch.append(_sample(series.metric, series.labels, series.values[step], _START_NS + int(at_s * NS)))
        yield at_s, batch


def _sample(metric: Metric, labels: Mapping[str, str], reading: Reading, at_ns: int) -> Sample:
    tags = tuple(sorted(labels.items()))
    if isinstance(reading, State):
        return Sample.unknown(metric, reading, at_ns, tags, f"it is {reading.value}")
    assert reading is not None
    return Sample.ok(metric, reading, at_ns, tags)


def _event(config: EventConfig) -> Event:
    at_ns = _START_NS + int(config.at * NS)
    return Event(config.kind, at_ns, config.what, config.severity, _pairs(config.labels), _pairs(config.attrs))


def _soak(config: SoakConfig) -> list[tuple[float, Event]]:
    attrs = {"warmup_seconds": f"{config.warmup:g}"}
    if config.planned is not None:
        attrs["planned_seconds"] = f"{config.planned:g}"
    start_ns = _START_NS + int(config.from_ * NS)
    found = [(config.from_, Event(RUN_STARTED, start_ns, "", labels=(("run", config.run),), attrs=_pairs(attrs)))]
    if config.to is not None:
        found.append((config.to, Event(RUN_ENDED, _START_NS + int(config.to * NS), "")))
    return found


def _pairs(found: Mapping[str, str]) -> Labels:
    return tuple(sorted(found.items()))


def _compare(expected: Expectation, current: Sequence[Alert]) -> list[str]:
    """Every alert that is expected must be there, and none besides in the states that are spoken of."""
    states = {AlertState.FIRING, *(e.state for e in expected.alerts)}
    left = [alert for alert in current if alert.state in states]
    failures = []
    for wanted in expected.alerts:
        found = next((alert for alert in left if not _differences(wanted, alert)), None)
        if found is not None:
            left.remove(found)
            continue
        near = [d for alert in left if alert.name == wanted.name for d in _differences(wanted, alert)]
        why = f" ({'; '.join(near)})" if near else ""
        failures.append(f"at {expected.at:g}s: {wanted.name} is not {wanted.state.value}{why}")
    failures += [f"at {expected.at:g}s: unexpected: {a.name} {dict(a.labels)} is {a.state.value}" for a in left]
    return failures


def _differences(wanted: ExpectedAlert, alert: Alert) -> list[str]:
    if alert.name != wanted.name:
        return [f"it is {alert.name}"]
    have = dict(alert.labels)
    found = [f"{k} is {have.get(k)!r}, not {v!r}" for k, v in wanted.labels.items() if have.get(k) != v]
    if alert.state is not wanted.state:
        found.append(f"it is {alert.state.value}")
    if wanted.summary is not None and alert.summary != wanted.summary:
        found.append(f"its summary is {alert.summary!r}")
    if wanted.severity is not None and alert.severity is not wanted.severity:
        found.append(f"it is {alert.severity.value}")
    return found
