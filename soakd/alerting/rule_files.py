"""Rule files: YAML to rules, every fault with its file, line and key."""

from __future__ import annotations

import glob
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, Field, ValidationError, field_validator

from soakd import share
from soakd.errors import ConfigError, Problem
from soakd.fields import ConfigModel, Seconds
from soakd.model import Metric, Severity
from soakd.registry import plugins
from soakd.rules.alert_rule import AlertRule, Definition
from soakd.rules.condition import NS, Condition
from soakd.rules.gates import Gate
from soakd.rules.options import RuleContext, RuleKind
from soakd.rules.wording import ALWAYS, Template
from soakd.yaml_source import Source, load_yaml

_NAME = re.compile(r"[A-Z][A-Za-z0-9]{2,63}")
_LABEL = re.compile(r"[a-z_][a-z0-9_]*")
TEST_SUFFIX = "_test.yaml"
_RESERVED = ("alertname", "severity", "run", "host")
_FIELDS_OF_ALL = ("name", "kind", "severity", "for", "keep_firing_for", "labels", "summary", "description", "runbook",
                  "when", "prometheus")  # fmt: skip


class RuleConfig(ConfigModel):
    """The keys of every rule. ``keep_firing_for`` is how long the condition must be known not to hold before the alert
    is resolved. ``prometheus`` replaces the expression that is generated for Prometheus."""

    name: str
    kind: str
    severity: Severity
    for_: Seconds = Field(0.0, alias="for")
    keep_firing_for: Seconds = 60.0
    labels: Mapping[str, str] = {}
    summary: str = Field(min_length=1)
    description: str = ""
    runbook: str = ""
    when: tuple[Gate, ...] = ()
    prometheus: str | None = None

    @field_validator("name")
    @classmethod
    def _camel(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError("a rule is named in CamelCase, such as GpuXidReset")
        return value

    @field_validator("labels")
    @classmethod
    def _labels(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        for name in value:
            if not _LABEL.fullmatch(name) or name in _RESERVED:
                raise ValueError(f"{name!r} can't be a label here; use small letters, and not {', '.join(_RESERVED)}")
        return value


@dataclass(frozen=True, slots=True)
class LoadedRule:
    """A rule with what it was made of; ``fingerprint`` changes with its definition."""

    config: RuleConfig
    options: BaseModel
    rule: AlertRule
    fingerprint: str


def kinds() -> Mapping[str, RuleKind]:
    return {name: RuleKind(plugin.config, plugin.build) for name, plugin in plugins("rules").items()}


def rule_files(given: Sequence[Path]) -> tuple[Path, ...]:
    """The files that paths and patterns name; the shipped ones where none is given. Raises ConfigError."""
    if not given:
        return tuple(p for p in sorted((share.root() / "alerts").glob("*.yaml")) if not p.name.endswith(TEST_SUFFIX))
    found: dict[Path, None] = {}
    for pattern in given:
        paths = sorted(Path(p) for p in glob.glob(str(pattern))) or [pattern]
        found.update((p, None) for p in paths if not p.name.endswith(TEST_SUFFIX) or p == pattern)
    return tuple(found)


def load_rules(files: Sequence[Path], metrics: Mapping[str, Metric]) -> tuple[LoadedRule, ...]:
    """Raises ConfigError with every problem of every file."""
    context = RuleContext(metrics, kinds())
    problems: list[Problem] = []
    rules: dict[str, LoadedRule] = {}
    for path in files:
        try:
            source = load_yaml(path)
            for loaded in _file(source, context, problems):
                name = loaded.config.name
                if name in rules:
                    place = rules[name].rule.definition.place
                    problems.append(Problem(loaded.rule.definition.place, None, "name", f"{name} stands twice",
                                            f"first at {place}"))  # fmt: skip
                rules.setdefault(name, loaded)
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(problems)
    return tuple(rules.values())


def _file(source: Source, context: RuleContext, problems: list[Problem]) -> list[LoadedRule]:
    data = source.data
    if not isinstance(data, dict) or not isinstance(data.get("rules"), list):
        raise source.error((), "not a rule file", "it is a mapping with a list under `rules`")
    for key in data:
        if key != "rules":
            problems.append(source.problem((key,), "unknown key", "a rule file has only `rules`"))
    found = []
    for i, entry in enumerate(data["rules"]):
        try:
            found.append(_rule(source, ("rules", i), entry, context))
        except ConfigError as error:
            problems.extend(error.problems)
    return found


def _rule(source: Source, path: tuple[str | int, ...], entry: object, context: RuleContext) -> LoadedRule:
    if not isinstance(entry, dict):
        raise source.error(path, "not a mapping", "a rule has a name, a kind, a severity and a summary")
    general = {k: v for k, v in entry.items() if k in _FIELDS_OF_ALL}
    own = {k: v for k, v in entry.items() if k not in _FIELDS_OF_ALL}
    problems: list[Problem] = []
    config: RuleConfig | None = None
    try:
        config = RuleConfig.model_validate(general)
    except ValidationError as error:
        problems.extend(source.validation_error(error, path).problems)
    kind = entry.get("kind")
    if isinstance(kind, str) and kind not in context.kinds:
        problems.append(source.problem((*path, "kind"), f"no kind {kind!r}", f"one of {', '.join(context.kinds)}"))
    elif isinstance(kind, str):
        try:
            options = context.kinds[kind].config.model_validate(own, context=context)
        except ValidationError as error:
            problems.extend(source.validation_error(error, path).problems)
    if problems or config is None:
        raise ConfigError(problems)
    condition: Condition[Any] = context.kinds[config.kind].build(options)
    rule = AlertRule(_definition(source, path, config, condition), condition)
    fingerprint = hashlib.sha256(orjson.dumps(entry, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
    return LoadedRule(config, options, rule, fingerprint)


def _definition(
    source: Source, path: tuple[str | int, ...], config: RuleConfig, condition: Condition[Any]
) -> Definition:
    shape = condition.shape
    names = (*ALWAYS, *shape.label_names, *shape.fields)
    texts: dict[str, Template] = {}
    for key in ("summary", "description"):
        try:
            texts[key] = Template.parse(getattr(config, key), names)
        except ValueError as error:
            raise source.error((*path, key), "wrong template", str(error)) from None
    return Definition(
        name=config.name,
        severity=config.severity,
        for_ns=int(config.for_ * NS),
        keep_ns=int(config.keep_firing_for * NS),
        labels=tuple(sorted(config.labels.items())),
        summary=texts["summary"],
        description=texts["description"],
        runbook=config.runbook,
        gates=config.when,
        place=f"{source.name}:{source.line_of(path)}",
    )
