"""The engine that the daemon runs: what is seen, through the rules, to the channels; its state kept in the journal.

``see`` only queues. A timer steps the rules, so that a burst of readings never holds up whoever measures. Rules are
fed from memory, not from the journal: alerts leave when the journal can't be written, that one first.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import orjson
import structlog

from soakd.alerting.channel import Channel, ChannelStatus
from soakd.alerting.evaluation import Evaluation, RuleStatus
from soakd.alerting.outbox import Outbox
from soakd.alerting.own_metrics import (
    DROPPED,
    EVALUATIONS,
    FAILURES,
    FIRING,
    LOOP_LAG,
    channel_samples,
)
from soakd.alerting.rule_files import LoadedRule
from soakd.model import Alert, AlertState, Event, Finding, Labels, Sample, Severity, labels
from soakd.ports import Clock, Item, Notifier
from soakd.rules.condition import RUN_ENDED, RUN_STARTED

CHECKPOINT = "alerting"
WATCHDOG = "Watchdog"
_VERSION = 1
_EVERY_S = 1.0
_LEAST_REAL_S = 0.05
_OWN_SAMPLES_S = 15.0
_CHECKPOINT_S = 60.0
_STOP_S = 3.0
_MOST_ITEMS = 100_000
_MOST_GROUPS = 1000
log = structlog.get_logger(__name__)


class Memory(Protocol):
    """The journal, as far as alerting needs it."""

    def add(self, items: Sequence[Finding], run_id: str | None = None) -> None: ...
    def keep(self, name: str, data: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class AlertingStatus:
    """What ``/status`` shows: every rule, every channel, what fires."""

    rules: tuple[RuleStatus, ...]
    channels: tuple[ChannelStatus, ...]
    firing: tuple[Alert, ...]
    items_dropped: int


class Alerting:
    """``see`` from anywhere in the loop; ``start`` and ``stop`` once. ``sources`` are asked for readings of the daemon
    itself every quarter of a minute; ``emit`` takes those and the engine's own (a feed that journals them and hands
    them back to ``see``). ``restored`` is what an engine before kept under CHECKPOINT."""

    def __init__(
        self,
        rules: Sequence[LoadedRule],
        notifiers: Sequence[Notifier],
        clock: Clock,
        memory: Memory,
        *,
        constant: Labels = (),
        sources: Sequence[Callable[[int], Sequence[Sample]]] = (),
        emit: Callable[[Sequence[Item]], None] | None = None,
        restored: bytes | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._clock, self._memory, self._constant = clock, memory, constant
        self._sources = tuple(sources)
        self._emit = emit or self.see
        self._evaluation = Evaluation(rules, constant)
        self._channels = tuple(
            Channel(n, Outbox(None if n.resend_s is None else int(n.resend_s * 1e9)), clock, jitter) for n in notifiers
        )
        self._queue: deque[tuple[int, tuple[Item, ...]]] = deque()
        self._queued = self.items_dropped = 0
        self._wall_ns, self._began_ns = clock.wall_ns(), clock.monotonic_ns()
        self._run = ""
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = self._lag_s = 0.0
        self._next_own_ns = self._next_checkpoint_ns = 0
        self._shown: set[Labels] = set()
        self._dirty = False
        self._restore(restored)

    def see(self, items: Sequence[Item]) -> None:
        """Queue what rules want of it. Never blocks; readings that find the queue full are dropped and counted."""
        wanted = tuple(item for item in items if self._evaluation.wants(item))
        if not wanted:
            return
        if self._queued + len(wanted) > _MOST_ITEMS:
            events = tuple(item for item in wanted if isinstance(item, Event))
            self.items_dropped += len(wanted) - len(events)
            wanted = events
        if wanted and self._queued < 2 * _MOST_ITEMS:
            self._queue.append((self.now_ns(), wanted))
            self._queued += len(wanted)

    def run_started(self, run_id: str, warmup_s: float, planned_s: float) -> None:
        """A soak begins: rules are gated on it, and alerts that begin in it carry its id."""
        self._run = run_id
        attrs = labels(warmup_seconds=f"{warmup_s:g}", planned_seconds=f"{planned_s:g}")
        self.see([Event(RUN_STARTED, self.now_ns(), f"soak {run_id} starts", labels=labels(run=run_id), attrs=attrs)])

    def run_ended(self) -> None:
        run, self._run = self._run, ""
        self.see([Event(RUN_ENDED, self.now_ns(), f"soak {run} has ended", labels=labels(run=run))])

    async def start(self) -> None:
        for channel in self._channels:
            if channel.heartbeat:
                channel.outbox.put(self._watchdog())
            channel.start()
        self._arm()

    async def stop(self) -> None:
        """Evaluate what is queued, give every channel a moment, keep the state. Alerts that fire are not resolved."""
        if self._timer:
            self._timer.cancel()
        self._evaluate()
        await asyncio.gather(*(channel.stop(_STOP_S) for channel in self._channels))
        self._checkpoint()

    def now_ns(self) -> int:
        """Wall time that a step of the system clock does not move: every duration of a rule is taken from it."""
        return self._wall_ns + self._clock.monotonic_ns() - self._began_ns

    def firing(self) -> tuple[Alert, ...]:
        return self._evaluation.firing()

    def status(self) -> AlertingStatus:
        return AlertingStatus(
            self._evaluation.status(), tuple(c.status() for c in self._channels), self.firing(), self.items_dropped
        )

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        every_s = max(_EVERY_S / self._clock.speed, _LEAST_REAL_S)
        self._due_s = loop.time() + every_s
        self._timer = loop.call_at(self._due_s, self._on_timer)

    def _on_timer(self) -> None:
        self._lag_s = max(self._lag_s, asyncio.get_running_loop().time() - self._due_s)
        try:
            self._work(self.now_ns())
        finally:
            self._arm()  # whatever fails in between (a log that can't be written), the next turn comes

    def _work(self, now_ns: int) -> None:
        if now_ns >= self._next_own_ns:
            self._next_own_ns = now_ns + int(_OWN_SAMPLES_S * 1e9)
            self._emit(self._own_samples())
        self._evaluate()
        if self._dirty or now_ns >= self._next_checkpoint_ns:
            self._next_checkpoint_ns = now_ns + int(_CHECKPOINT_S * 1e9)
            self._checkpoint()

    def _evaluate(self) -> None:
        changed: list[Alert] = []
        while self._queue:
            at_ns, items = self._queue.popleft()
            self._queued -= len(items)
            changed += self._evaluation.step(items, at_ns)
        changed += self._evaluation.tick(self.now_ns())
        told = [alert for alert in changed if alert.state is not AlertState.PENDING]
        if told:
            self._tell(told)

    def _tell(self, changed: Sequence[Alert]) -> None:
        self._dirty = True
        self._memory.add([finding_of(alert) for alert in changed], self._run or None)
        for channel in self._channels:
            for alert in changed:
                channel.outbox.put(alert)
            channel.wake()
        for alert in changed:
            told = {"alert": alert.name, "state": alert.state.value, "summary": alert.summary}
            log.warning("alert", **told, labels=dict(alert.labels))

    def _own_samples(self) -> list[Item]:
        at_ns = self._clock.wall_ns()
        firing = self.firing()
        for channel in self._channels:
            for alert in firing:
                channel.outbox.refresh(alert)
        found: list[Item] = [
            Sample.ok(EVALUATIONS, self._evaluation.evaluations, at_ns),
            Sample.ok(DROPPED, self.items_dropped, at_ns),
            Sample.ok(LOOP_LAG, self._lag_s, at_ns),
            *channel_samples((c.status() for c in self._channels), at_ns),
            *self._firing_samples(firing, at_ns),
        ]
        found += [
            Sample.ok(FAILURES, rule.failures, at_ns, labels(rule=rule.name)) for rule in self._evaluation.status()
        ]
        self._lag_s = 0.0
        for source in self._sources:
            found += source(at_ns)
        return found

    def _firing_samples(self, firing: Sequence[Alert], at_ns: int) -> list[Sample]:
        """A group that no longer fires is shown as 0: a scrape would keep its last value."""
        counts = dict.fromkeys(self._shown, 0)
        for alert in firing:
            tags = dict(alert.labels)
            group = labels(
                alertname=alert.name, severity=alert.severity.value, bdf=tags.get("bdf"), gpu=tags.get("gpu")
            )
            if group in counts or len(counts) < _MOST_GROUPS:
                counts[group] = counts.get(group, 0) + 1
        self._shown = {group for group, count in counts.items() if count}
        return [Sample.ok(FIRING, count, at_ns, group) for group, count in sorted(counts.items())]

    def _watchdog(self) -> Alert:
        now_ns = self.now_ns()
        return Alert(
            WATCHDOG, AlertState.FIRING, Severity.INFO, self._constant, "soakd watches this host",
            since_ns=now_ns, seen_ns=now_ns, fired_ns=now_ns,
            description="Fires as long as soakd runs and is heard. When it stops, soakd or the way to here is down.",
        )  # fmt: skip

    def _checkpoint(self) -> None:
        self._dirty = False
        state = {
            "version": _VERSION,
            "rules": self._evaluation.dump(),
            "channels": {channel.name: channel.outbox.dump() for channel in self._channels},
        }
        self._memory.keep(CHECKPOINT, orjson.dumps(state, option=orjson.OPT_NON_STR_KEYS))

    def _restore(self, restored: bytes | None) -> None:
        found: object = None
        if restored:
            try:
                found = orjson.loads(restored)
            except orjson.JSONDecodeError as error:
                log.warning("the alerts' checkpoint can't be read; they start anew", why=str(error))
        if not isinstance(found, dict) or found.get("version") != _VERSION:
            return
        self._evaluation.load(found.get("rules"))
        self.run_ended()  # a soak does not outlive its daemon
        firing = self.firing()
        for channel in self._channels:
            kept = found.get("channels", {}).get(channel.name)
            try:
                channel.outbox.load(kept if kept is not None else [])
            except ValueError as error:
                log.warning("what a channel had still to be told can't be read", channel=channel.name, why=str(error))
            channel.outbox.settle(firing, self.now_ns())


def finding_of(alert: Alert) -> Finding:
    """A change of an alert as the journal keeps it."""
    resolved = alert.state is AlertState.RESOLVED
    at_ns = alert.ended_ns if resolved else alert.fired_ns
    return Finding(
        source=f"rule.{alert.name}",
        severity=Severity.INFO if resolved else alert.severity,
        title=f"resolved: {alert.summary}" if resolved else alert.summary,
        detail=alert.over if resolved else alert.description,
        at_ns=at_ns if at_ns is not None else alert.since_ns,
        labels=alert.labels,
        metric=alert.metric,
        value=alert.value,
        unit=alert.unit,
    )
