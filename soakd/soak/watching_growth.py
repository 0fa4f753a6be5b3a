"""Looks for leaks while a run goes on, so that one is told in minutes and not at the end. It bears on no verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from soakd.analysis.detections import FOUND
from soakd.analysis.limits import Limit
from soakd.analysis.limits_growth import WATCHED, Caps, Watched, absolute_limit, is_of_process
from soakd.analysis.online import Look, MonitorConfig, SeriesMonitor
from soakd.analysis.series import Leak, SeriesJudgement
from soakd.blocking import BlockingReader
from soakd.model import Event, Finding, Labels, Sample, Severity, labels
from soakd.ports import Item
from soakd.quantities import format_duration, format_value
from soakd.soak.plan import Phases

_MOST_SERIES = 96
"""Series watched at once, about 200 KiB each; those beyond are left to the end of the run and counted."""

_MOST_TOTALS = 256
_LOOKS_AT_ONCE = 4
"""A look costs about 10 ms; those that are due beyond this wait for the next second."""

log = structlog.get_logger(__name__)
_BY_METRIC: Mapping[str, tuple[Watched, ...]] = {
    w.metric: tuple(v for v in WATCHED if v.metric == w.metric) for w in WATCHED
}
_TOTALS = frozenset(w.total for w in WATCHED if w.total)
Key = tuple[str, Labels]


@dataclass(slots=True)
class _Series:
    watched: Watched
    key: Key
    monitor: SeriesMonitor
    told: bool = False

    @property
    def card(self) -> str:
        return dict(self.key[1]).get("gpu", "")

    @property
    def bdf(self) -> str:
        return dict(self.key[1]).get("bdf", "")


class GrowthWatch:
    """``take`` every batch of the run's feed; ``tick`` each second: it looks at what is due, on a thread of its own.

    Looks at a series are due after a quarter of the run and nine times while it doubles, in the measured part
    only. A leak that three looks in a row find is told once.
    """

    def __init__(
        self, started_ns: int, planned: Phases, limits: Sequence[Limit], caps: Caps,
        tell: Callable[[Event, Finding], None],
    ) -> None:  # fmt: skip
        self._started_ns = started_ns
        self._planned = planned
        self._limits = {limit.name: limit for limit in limits}
        self._caps = caps
        self._tell = tell
        self._series: dict[Key, _Series] = {}
        self._totals: dict[tuple[str, str], float] = {}
        self._thread = BlockingReader("growth")
        self._looking: asyncio.Task[None] | None = None
        self.left_out: set[Key] = set()
        self.looks = 0

    def take(self, items: Sequence[Item]) -> None:
        """In constant time for each reading."""
        for item in items:
            if isinstance(item, Event):
                if item.kind == "server.restart":
                    self._restarted(item.at_ns)
            elif item.value is None:
                continue
            elif item.metric.name in _BY_METRIC:
                self._add(item, item.value)
            elif item.metric.name in _TOTALS:
                self._keep_total(item, item.value)

    def tick(self, now_ns: int) -> None:
        """Begin the looks that are due, unless the ones before still run."""
        now_s = (now_ns - self._started_ns) / 1e9
        start = self._planned.measured_from_s
        if not start <= now_s <= start + self._planned.measured_s or (self._looking and not self._looking.done()):
            return
        due = self._due(now_s)
        if due:
            self._looking = asyncio.create_task(self._look(due, now_ns))

    async def idle(self) -> None:
        """Until the looks that were begun have been answered."""
        if self._looking:
            await self._looking

    async def close(self) -> None:
        looking, self._looking = self._looking, None
        if looking:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        self._thread.close()
        if self.left_out:
            log.warning("series were not watched for leaks during the run", count=len(self.left_out))

    def _add(self, sample: Sample, value: float) -> None:
        key = (sample.metric.name, sample.labels)
        series = self._series.get(key)
        if series is None:
            watched = next((w for w in _BY_METRIC[key[0]] if set(w.where) <= set(key[1])), None)
            if watched is None:
                return
            if len(self._series) >= _MOST_SERIES:
                if len(self.left_out) < _MOST_SERIES:
                    self.left_out.add(key)
                return
            series = self._series[key] = _Series(watched, key, SeriesMonitor(self._config(watched, sample)))
        series.monitor.add((sample.at_ns - self._started_ns) / 1e9, value)

    def _config(self, watched: Watched, sample: Sample) -> MonitorConfig:
        return MonitorConfig(
            page=watched.page, cap=self._caps.of(watched.cap), wanted_span=self._planned.total_s, name=watched.metric,
            unit=sample.metric.unit,
        )  # fmt: skip

    def _keep_total(self, sample: Sample, value: float) -> None:
        key = (sample.metric.name, dict(sample.labels).get("gpu", ""))
        if key in self._totals or len(self._totals) < _MOST_TOTALS:
            self._totals[key] = value

    def _restarted(self, at_ns: int) -> None:
        for series in self._series.values():
            if is_of_process(series.watched):
                series.monitor.restarted((at_ns - self._started_ns) / 1e9)

    def _due(self, now_s: float) -> list[tuple[_Series, Look]]:
        split = {s.bdf for s in self._series.values() if s.card.startswith("MIG-")}
        judged = [s for s in self._series.values() if s.card.startswith("MIG-") or s.bdf not in split]
        begun: list[tuple[_Series, Look]] = []
        for series in judged:
            if len(begun) >= _LOOKS_AT_ONCE:
                break
            if series.told or not series.monitor.due(now_s):
                continue
            total = self._totals.get((series.watched.total, series.card))
            limit = self._limits.get(series.watched.limit)
            allowed = absolute_limit(limit, total) if limit else None
            series.monitor.known(family=len(judged), total=total, limit=allowed)
            look = series.monitor.begin(now_s)
            if look is not None:
                begun.append((series, look))
        return begun

    async def _look(self, due: Sequence[tuple[_Series, Look]], now_ns: int) -> None:
        answers = await self._thread.call(lambda: [look.judge() for _, look in due])
        self.looks += len(due)
        for (series, look), answer in zip(due, answers, strict=True):
            found = series.monitor.settle(look, answer)
            if found.verdict is Leak.LEAK:
                series.told = True
                self._tell(*_said(series.key, found, look.now, now_ns))


def _said(key: Key, found: SeriesJudgement, now_s: float, now_ns: int) -> tuple[Event, Finding]:
    metric, tags = key
    where = " ".join(v for k, v in tags if k in ("bdf", "pid", "pool"))
    slope = format_value(found.slope, f"{found.unit}/h")
    what = f"{metric}{f' of {where}' if where else ''} grows by {slope}"
    attrs = labels(series=metric, slope_per_hour=f"{found.slope:.6g}", after_seconds=f"{now_s:.0f}")
    detail = f"found {format_duration(now_s)} after the run began: {found.why}"
    if found.time_to_exhaustion is not None:
        left = format_value(found.headroom, found.unit)
        detail += f"; {left} of headroom last {format_duration(found.time_to_exhaustion * 3600)}"
    detail += "; the verdict is given at the end, on the whole run"
    return (
        Event(FOUND, now_ns, what, Severity.WARNING, tags, attrs),
        Finding("growth.online", Severity.WARNING, what, detail, now_ns, tags, metric, found.slope, f"{found.unit}/h"),
    )
