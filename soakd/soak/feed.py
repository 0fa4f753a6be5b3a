"""Where everything that is seen during a run arrives once: to the journal, to who watches, to the latest values."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from soakd.journal.writer import Journal
from soakd.model import Event, Finding, Labels, Sample
from soakd.ports import Item

_MOST_SERIES = 20_000
_MOST_EVENTS = 2_000
_FORGET_NS = 600 * 10**9


class Feed:
    """Takes items from collectors and load; never blocks. ``listeners`` get every batch, after the journal.

    The latest reading of each series is kept for progress and ``/status``. Beyond the bound, series that said nothing
    for ten minutes make room; where there are none, new ones are counted, not kept. Of the events the last are kept.
    """

    def __init__(self, journal: Journal, run_id: str | None) -> None:
        self._journal = journal
        self._run_id = run_id
        self._latest: dict[tuple[str, Labels], Sample] = {}
        self._listeners: list[Callable[[Sequence[Item]], None]] = []
        self.events: deque[Event] = deque(maxlen=_MOST_EVENTS)
        self.series_left_out = 0
        self._swept_ns = 0

    def listen(self, listener: Callable[[Sequence[Item]], None]) -> None:
        self._listeners.append(listener)

    def emit(self, items: Sequence[Item]) -> None:
        if not items:
            return
        self._journal.add(items, self._run_id)
        self.relay(items)

    def relay(self, items: Sequence[Item]) -> None:
        """Take what another feed has journalled already: for the latest values and the listeners only."""
        for item in items:
            if isinstance(item, Event):
                self.events.append(item)
            else:
                self._keep_sample(item)
        for listener in self._listeners:
            listener(items)

    def find(self, findings: Sequence[Finding]) -> None:
        self._journal.add(findings, self._run_id)

    def latest(self, metric: str) -> tuple[Sample, ...]:
        """The last reading of every series of a metric."""
        return tuple(s for (name, _), s in self._latest.items() if name == metric)

    def everything(self) -> tuple[Sample, ...]:
        return tuple(self._latest.values())

    def _keep_sample(self, sample: Sample) -> None:
        key = (sample.metric.name, sample.labels)
        if key in self._latest or len(self._latest) < _MOST_SERIES or self._make_room(sample.at_ns):
            self._latest[key] = sample
        else:
            self.series_left_out += 1

    def _make_room(self, now_ns: int) -> bool:
        if abs(now_ns - self._swept_ns) < _FORGET_NS / 10:
            return False
        self._swept_ns = now_ns
        self._latest = {k: s for k, s in self._latest.items() if s.at_ns > now_ns - _FORGET_NS}
        return len(self._latest) < _MOST_SERIES
