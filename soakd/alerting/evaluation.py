"""Steps every rule over what was seen. Holds the rules' state; no I/O, no clock, no tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import structlog

from soakd.alerting.rule_files import LoadedRule
from soakd.model import Alert, AlertState, Event, Labels
from soakd.ports import Item
from soakd.rules.alert_rule import RuleState

_FAULTS = (ArithmeticError, LookupError, TypeError, ValueError)
"""What a judgement may fail with: numbers that can't be judged. The rule starts anew, and says so."""
_MOST_KINDS = 512
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RuleStatus:
    """``failures`` counts steps that failed; ``problem`` is the last one's reason."""

    name: str
    place: str
    pending: int
    firing: int
    failures: int
    problem: str


class Evaluation:
    """``constant`` labels (host) stand on every alert."""

    def __init__(self, rules: Sequence[LoadedRule], constant: Labels) -> None:
        self._rules = tuple(rules)
        self._constant = constant
        self._states: list[RuleState] = [r.rule.start() for r in rules]
        self._failures = [0] * len(rules)
        self._problems = [""] * len(rules)
        self._by_metric: dict[str, list[int]] = defaultdict(list)
        self._by_kind: dict[str, tuple[int, ...]] = {}
        for i, loaded in enumerate(rules):
            for name in loaded.rule.interest.metrics:
                self._by_metric[name].append(i)
        self.evaluations = 0

    def wants(self, item: Item) -> bool:
        return bool(self._takers(item))

    def step(self, batch: Sequence[Item], now_ns: int) -> list[Alert]:
        """The alerts that changed by this batch: only rules that want some of it are stepped."""
        parts: dict[int, list[Item]] = defaultdict(list)
        for item in batch:
            for i in self._takers(item):
                parts[i].append(item)
        return [alert for i, part in parts.items() for alert in self._step(i, part, now_ns)]

    def tick(self, now_ns: int) -> list[Alert]:
        """Step every rule without anything new: what holds by time alone moves on."""
        return [alert for i in range(len(self._rules)) for alert in self._step(i, (), now_ns)]

    def alerts(self) -> Iterator[Alert]:
        """Those that are pending or fire."""
        for loaded, state in zip(self._rules, self._states, strict=True):
            for alert in loaded.rule.alerts(state):
                yield self._labelled(alert)

    def firing(self) -> tuple[Alert, ...]:
        return tuple(a for a in self.alerts() if a.state is AlertState.FIRING)

    def status(self) -> tuple[RuleStatus, ...]:
        found = []
        for i, loaded in enumerate(self._rules):
            standings = [s for _, s in self._states[i].standings]
            firing = sum(s.fired_ns is not None for s in standings)
            own = loaded.rule.definition
            found.append(RuleStatus(own.name, own.place, len(standings) - firing, firing, self._failures[i],
                                    self._problems[i]))  # fmt: skip
        return tuple(found)

    def dump(self) -> dict[str, object]:
        return {
            loaded.config.name: {"definition": loaded.fingerprint, "state": loaded.rule.dump(state)}
            for loaded, state in zip(self._rules, self._states, strict=True)
        }

    def load(self, data: object) -> None:
        """Take up what ``dump`` left. A rule that is new or was changed starts anew."""
        if not isinstance(data, dict):
            return
        for i, loaded in enumerate(self._rules):
            kept = data.get(loaded.config.name)
            if not isinstance(kept, dict) or kept.get("definition") != loaded.fingerprint:
                continue
            try:
                self._states[i] = loaded.rule.load(kept.get("state"))
            except _FAULTS as error:
                log.warning(
                    "the state of a rule can't be read; it starts anew", rule=loaded.config.name, why=str(error)
                )

    def _step(self, i: int, part: Sequence[Item], now_ns: int) -> list[Alert]:
        rule = self._rules[i].rule
        self.evaluations += 1
        try:
            self._states[i], changed = rule.step(self._states[i], part, now_ns)
        except _FAULTS as error:
            self._failures[i] += 1
            problem = f"{type(error).__name__}: {error}"
            if self._problems[i] != problem:
                log.error("a rule fails", rule=rule.definition.name, why=problem)
            self._problems[i] = problem
            return []
        return [self._labelled(alert) for alert in changed]

    def _labelled(self, alert: Alert) -> Alert:
        return replace(alert, labels=tuple(sorted({**dict(self._constant), **dict(alert.labels)}.items())))

    def _takers(self, item: Item) -> Sequence[int]:
        if not isinstance(item, Event):
            return self._by_metric.get(item.metric.name, ())
        found = self._by_kind.get(item.kind)
        if found is None:
            found = tuple(
                i for i, loaded in enumerate(self._rules)
                if any(fnmatchcase(item.kind, pattern) for pattern in loaded.rule.interest.events)
            )  # fmt: skip
            if len(self._by_kind) < _MOST_KINDS:
                self._by_kind[item.kind] = found
        return found
