"""Watching between soaks: the collectors on their schedules, and the target looked for until it is found."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from soakd.config import Loaded
from soakd.errors import SoakdError
from soakd.journal import Journal
from soakd.model import Sample, TargetInfo
from soakd.ports import CollectorContext, Item
from soakd.report import outcome_metrics, run_state
from soakd.schedule import UP, Job, Runner
from soakd.soak.environment import Environment
from soakd.soak.feed import Feed
from soakd.soak.prepare import access_of
from soakd.targets.discovery import Hints, identify

_SHOWN_S = 300.0
_LOOK_EVERY_S = 30.0
_LOOK_FOR_S = 10.0
_MISSED_READINGS = 3
_FAILED = {4.0: "timeout", 5.0: "error"}
_LASTING = frozenset(m.name for m in (*outcome_metrics.METRICS, *run_state.METRICS))
log = structlog.get_logger(__name__)


class Watch:
    """Runs or pauses; a soak has collectors of its own and pauses it. Listeners get every batch, also a soak's."""

    def __init__(self, loaded: Loaded, environment: Environment, journal: Journal) -> None:
        self._loaded = loaded
        self._environment = environment
        self._clock = environment.clock
        self._runner: Runner | None = None
        self._looking: asyncio.Task[None] | None = None
        self._intervals = {n: e.interval_s for n, e in loaded.collectors.items() if e.enabled}
        self._began_ns = self._clock.monotonic_ns()
        self._read_ns: dict[str, int] = {}
        self._failing: dict[str, str] = {}
        self.feed = Feed(journal, None)
        self.target: TargetInfo | None = None
        self.feed.listen(self._seen)

    def listen(self, listener: Callable[[Sequence[Item]], None]) -> None:
        self.feed.listen(listener)

    async def start(self) -> None:
        """Start the schedules at once; a target that does not answer yet is looked for beside them."""
        self.target = await self._find_target()
        self._start_runner()
        if self.target is None and self._loaded.config.target.url is not None:
            self._looking = asyncio.create_task(self._look_for_target())

    async def pause(self) -> None:
        looking, self._looking = self._looking, None
        if looking:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        runner, self._runner = self._runner, None
        if runner:
            await runner.stop()

    def samples(self) -> tuple[Sample, ...]:
        """The latest reading of every series that still speaks; how the last soak ended stays until the next."""
        shown_s = max(_SHOWN_S, *(_MISSED_READINGS * s for s in self._intervals.values()))
        oldest = self._clock.wall_ns() - int(shown_s * 1e9)
        return tuple(s for s in self.feed.everything() if s.at_ns >= oldest or s.metric.name in _LASTING)

    def silent_s(self) -> float:
        """Seconds since any collector was last read."""
        return self._ago_s(max(self._read_ns.values(), default=self._began_ns))

    def stale(self, after_s: float) -> tuple[str, ...]:
        """Collectors whose data are older than ``after_s`` and than three of their own intervals."""
        found = []
        for name, interval_s in self._intervals.items():
            age_s = self._ago_s(self._read_ns.get(name, self._began_ns))
            if age_s > max(after_s, _MISSED_READINGS * interval_s):
                found.append(f"collector {name}: {self._failing.get(name, 'nothing')} for {age_s:.0f} s")
        return tuple(found)

    def _ago_s(self, at_ns: int) -> float:
        return (self._clock.monotonic_ns() - at_ns) / 1e9

    def _seen(self, items: Sequence[Item]) -> None:
        for item in items:
            if isinstance(item, Sample) and item.metric is UP:
                name, failed = item.labels[0][1], _FAILED.get(item.value or 0.0)
                if failed:
                    self._failing[name] = failed
                else:
                    self._failing.pop(name, None)
                    self._read_ns[name] = self._clock.monotonic_ns()

    def _start_runner(self) -> None:
        context = CollectorContext(self._clock, self._environment.roots, self._environment.gpus, self.target)
        jobs = [
            Job(name, entry.plugin.build(entry.options, context), entry.interval_s, entry.deadline_s)
            for name, entry in self._loaded.collectors.items()
            if entry.enabled
        ]
        self._runner = Runner(jobs, self._clock, self.feed.emit)
        self._runner.start()

    async def _look_for_target(self) -> None:
        """A server that is started after soakd is watched as soon as it answers."""
        while self.target is None:
            await self._clock.sleep(_LOOK_EVERY_S)
            self.target = await self._find_target(quietly=True)
        log.info("the target answers", url=self.target.url, server=self.target.server)
        runner, self._runner = self._runner, None
        if runner:
            await runner.stop()
        self._start_runner()

    async def _find_target(self, *, quietly: bool = False) -> TargetInfo | None:
        target = self._loaded.config.target
        if target.url is None:
            return None
        why = f"no answer within {_LOOK_FOR_S:g} s"
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_FOR_S):
                try:
                    return await identify(
                        access_of(self._loaded), self._clock, roots=self._environment.roots,
                        hints=Hints(target.model, target.pid, target.command), loading_wait_s=0.0,
                    )  # fmt: skip
                except SoakdError as error:
                    why = str(error)
        if not quietly:
            log.warning("the target can't be found; the host is watched without it until it is", why=why)
        return None
