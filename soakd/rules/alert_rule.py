"""The life of an alert: inactive, pending, firing, resolved; one for each series that its condition speaks of.

Only what is known moves an alert: UNKNOWN lets none fire and resolves none. The time is that of the step; the engine
gives one that a step of the system clock does not move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter

from soakd.model import Alert, AlertState, Labels, Severity
from soakd.ports import Item
from soakd.quantities import format_duration, format_value
from soakd.rules.book import FORGET_NS, Book
from soakd.rules.condition import NS, Condition, Interest, Observation, Truth
from soakd.rules.gates import Gate, Gates, interest
from soakd.rules.wording import Template

_RECENT = 24
_RECENT_EVERY_NS = 15 * NS
_PENDING_WITHOUT_WORD_NS = 600 * NS


@dataclass(frozen=True, slots=True)
class Definition:
    """What every rule has, whatever its kind. ``place`` is the file and line it stands in."""

    name: str
    severity: Severity
    for_ns: int
    keep_ns: int
    labels: Labels
    summary: Template
    description: Template
    runbook: str
    gates: tuple[Gate, ...]
    place: str = ""


@dataclass(slots=True)
class Standing:
    """One alert that is pending or fires. ``true_ns`` is when the condition was last known to hold, ``false_ns`` since
    when it is known not to."""

    since_ns: int
    true_ns: int
    fired_ns: int | None = None
    false_ns: int | None = None
    known: bool = True
    run: str = ""
    value: float | None = None
    limit: float | None = None
    what: str = ""
    fields: Labels = ()
    recent: list[float] = field(default_factory=list)
    recent_ns: int = 0


@dataclass(slots=True)
class RuleState:
    """Everything one rule knows; ``condition`` is its kind's own."""

    condition: Any
    gates: Gates
    standings: Book[Standing]


_STANDING: TypeAdapter[Standing] = TypeAdapter(Standing)
_GATES: TypeAdapter[Gates] = TypeAdapter(Gates)


class AlertRule:
    """Implements ``ports.Rule``."""

    def __init__(self, definition: Definition, condition: Condition[Any]) -> None:
        self.definition = definition
        self.condition = condition
        self.interest: Interest = condition.interest | interest(definition.gates)

    def start(self) -> RuleState:
        return RuleState(self.condition.start(), Gates(), Book())

    def step(self, state: RuleState, batch: Sequence[Item], now_ns: int) -> tuple[RuleState, Sequence[Alert]]:
        state.gates.step(batch, now_ns)
        state.condition, said = self.condition.step(state.condition, batch, now_ns)
        gates = self.definition.gates
        changed: list[Alert] = []
        spoken: set[Labels] = set()
        for one in said:
            spoken.add(one.labels)
            why = state.gates.why_closed(gates, one.labels, now_ns) if gates else ""
            observed = replace(one, truth=Truth.FALSE, what=why) if why else one
            changed += self._apply(state, observed, now_ns)
        for labels, standing in state.standings:
            if labels not in spoken:
                why = state.gates.why_closed(gates, labels, now_ns) if gates else ""
                changed += self._unspoken(state, labels, standing, why, now_ns)
        return state, changed

    def alerts(self, state: RuleState) -> tuple[Alert, ...]:
        """Those that are pending or fire."""
        return tuple(self._alert(labels, s, s.true_ns) for labels, s in state.standings)

    def _apply(self, state: RuleState, o: Observation, now_ns: int) -> list[Alert]:
        standing = state.standings.get(o.labels)
        if standing is None:
            if o.truth is not Truth.TRUE:
                return []
            standing = Standing(now_ns, now_ns)
            if not state.standings.put(o.labels, standing, now_ns):
                return []
            if self.definition.for_ns:
                _note(standing, o, now_ns)
                return [self._alert(o.labels, standing, now_ns)]
        if o.truth is Truth.UNKNOWN:
            standing.known = False
            return []
        standing.known = True
        _note(standing, o, now_ns)
        if o.truth is Truth.TRUE:
            return self._holds(state, o.labels, standing, now_ns)
        return self._holds_not(state, o.labels, standing, now_ns)

    def _holds(self, state: RuleState, labels: Labels, standing: Standing, now_ns: int) -> list[Alert]:
        standing.true_ns, standing.false_ns = now_ns, None
        state.standings.put(labels, standing, now_ns)
        if standing.fired_ns is not None or now_ns - standing.since_ns < self.definition.for_ns:
            return []
        standing.fired_ns, standing.run = now_ns, state.gates.run
        return [self._alert(labels, standing, now_ns)]

    def _holds_not(self, state: RuleState, labels: Labels, standing: Standing, now_ns: int) -> list[Alert]:
        if standing.fired_ns is None:
            state.standings.drop(labels)
            return []
        standing.false_ns = now_ns if standing.false_ns is None else standing.false_ns
        if now_ns - standing.false_ns < self.definition.keep_ns:
            return []
        return self._resolve(state, labels, standing, standing.what or "the condition no longer holds", now_ns)

    def _unspoken(self, state: RuleState, labels: Labels, standing: Standing, why: str, now_ns: int) -> list[Alert]:
        """A standing that its condition said nothing of: data may be missing, or a gate has closed."""
        if why:
            standing.what = why
            return self._holds_not(state, labels, standing, now_ns)
        if standing.fired_ns is None:
            if now_ns - standing.true_ns > max(_PENDING_WITHOUT_WORD_NS, self.definition.for_ns):
                state.standings.drop(labels)
            return []
        if now_ns - standing.true_ns > FORGET_NS:
            return self._resolve(state, labels, standing, "nothing was heard of it for a day; given up", now_ns)
        return []

    def _resolve(self, state: RuleState, labels: Labels, standing: Standing, over: str, now_ns: int) -> list[Alert]:
        state.standings.drop(labels)
        alert = self._alert(labels, standing, now_ns)
        return [replace(alert, state=AlertState.RESOLVED, ended_ns=now_ns, over=over)]

    def _alert(self, labels: Labels, standing: Standing, now_ns: int) -> Alert:
        own, shape = self.definition, self.condition.shape
        texts = self._texts(labels, standing, now_ns)
        return Alert(
            name=own.name,
            state=AlertState.PENDING if standing.fired_ns is None else AlertState.FIRING,
            severity=own.severity,
            labels=tuple(sorted({**dict(labels), **dict(own.labels)}.items())),
            summary=own.summary.render(texts),
            description=own.description.render(texts),
            since_ns=standing.since_ns,
            seen_ns=standing.true_ns,
            fired_ns=standing.fired_ns,
            metric=shape.metric,
            value=standing.value,
            limit=standing.limit,
            unit=shape.unit,
            runbook=own.runbook,
            run=standing.run,
            recent=tuple(standing.recent),
            known=standing.known,
        )

    def _texts(self, labels: Labels, standing: Standing, now_ns: int) -> Mapping[str, str]:
        unit = self.condition.shape.unit
        return {
            **dict.fromkeys(self.condition.shape.label_names, "-"),
            **dict(labels),
            **dict(standing.fields),
            "value": format_value(standing.value, unit),
            "limit": format_value(standing.limit, unit),
            "what": standing.what or "-",
            "duration": format_duration(max(0, now_ns - standing.since_ns) / NS),
            "run": standing.run or "-",
        }

    def dump(self, state: RuleState) -> object:
        """Plain JSON data."""
        return {
            "condition": self.condition.dump(state.condition),
            "gates": _GATES.dump_python(state.gates, mode="json"),
            "standings": state.standings.dump(_STANDING),
        }

    def load(self, data: object) -> RuleState:
        """Raises ValueError for what another version, or another definition of the rule, has left."""
        if not isinstance(data, dict):
            raise ValueError("not the state of a rule")
        gates = _GATES.validate_python(data.get("gates"))
        return RuleState(self.condition.load(data.get("condition")), gates, Book.load(data.get("standings"), _STANDING))


def _note(standing: Standing, o: Observation, now_ns: int) -> None:
    if o.truth is Truth.TRUE or standing.fired_ns is not None:
        standing.value, standing.limit, standing.what, standing.fields = o.value, o.limit, o.what, o.fields
    if o.value is not None and now_ns - standing.recent_ns >= _RECENT_EVERY_NS:
        standing.recent = [*standing.recent[1 - _RECENT :], o.value]
        standing.recent_ns = now_ns
