"""Outages of the whole target: one tracker for each replica, fed with the seconds of all workers together."""

from __future__ import annotations

from collections.abc import Collection

from soakd.load.histogram import Histogram
from soakd.load.messages import Outage
from soakd.load.outage import Change, OutageTracker, Second, Step
from soakd.load.reports import ReplicaTick, TickPart
from soakd.load.spec import LoadSpec
from soakd.model import Event, Severity, labels

_KINDS = {
    Step.STARTED: ("load.outage", Severity.CRITICAL),
    Step.ANSWERED: ("load.first_success", Severity.INFO),
    Step.RECOVERED: ("load.recovered", Severity.INFO),
}
_MOST_BEHIND = 2


class TargetOutages:
    """Waits for all live workers' seconds, but for none that is more than two behind."""

    def __init__(self, spec: LoadSpec) -> None:
        self._urls = spec.target.urls
        self._trackers = [OutageTracker() for _ in self._urls]
        self._waiting: dict[int, dict[int, tuple[TickPart, int]]] = {}
        self._stage = -1
        self._told_backoff = False

    def add(self, worker: int, part: TickPart, at_ns: int, alive: Collection[int]) -> list[Event]:
        self._waiting.setdefault(part.second, {})[worker] = (part, at_ns)
        events: list[Event] = []
        for second in sorted(self._waiting):
            parts = self._waiting[second]
            if all(number in parts for number in alive) or second < part.second - _MOST_BEHIND:
                del self._waiting[second]
                events += self._step(parts)
            else:
                break
        return events

    def outages(self) -> tuple[Outage, ...]:
        """In order of their start."""
        found = [
            Outage(url, o.start_ns, o.first_success_ns, o.recovered_ns, o.lost, o.retried)
            for url, tracker in zip(self._urls, self._trackers, strict=True)
            for o in tracker.outages
        ]
        return tuple(sorted(found, key=lambda outage: outage.start_ns))

    def _step(self, parts: dict[int, tuple[TickPart, int]]) -> list[Event]:
        at_ns = max(at for _, at in parts.values())
        ticks = [part for part, _ in parts.values()]
        stage = max(part.stage for part in ticks)
        if stage != self._stage:
            self._stage = stage
            for tracker in self._trackers:
                tracker.new_stage()
        events = []
        for number, url in enumerate(self._urls):
            changes = self._trackers[number].step(_second([part.replicas[number] for part in ticks], at_ns))
            events += [_event(change, url) for change in changes]
        return [*events, *self._backoff(sum(part.backing_off for part in ticks), at_ns)]

    def _backoff(self, streams: int, at_ns: int) -> list[Event]:
        if bool(streams) == self._told_backoff:
            return []
        self._told_backoff = bool(streams)
        what = "no stream backs off any more"
        if streams:
            what = f"{streams} streams of the closed loop wait up to 1 s between requests because their last one failed"
        return [Event("load.backoff", at_ns, what, Severity.INFO)]


def _second(ticks: list[ReplicaTick], at_ns: int) -> Second:
    return Second(
        at_ns=at_ns,
        completed=sum(t.completed for t in ticks),
        failed=sum(t.failed for t in ticks),
        down=sum(t.down for t in ticks),
        retried=sum(t.retried for t in ticks),
        first_down_ns=min((t.first_down_ns for t in ticks if t.first_down_ns is not None), default=None),
        back_ns=min((t.back_ns for t in ticks if t.back_ns is not None), default=None),
        why=next((t.why for t in ticks if t.why), ""),
        e2e=Histogram.merged(Histogram.decode(t.e2e) for t in ticks),
    )


def _event(change: Change, url: str) -> Event:
    kind, severity = _KINDS[change.step]
    return Event(kind, change.at_ns, change.what, severity, labels(url=url))
