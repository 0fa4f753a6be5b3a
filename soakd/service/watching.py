"""Watching between soaks: the collectors on their schedules, into the journal, with the target found anew when lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from soakd.config import Loaded
from soakd.errors import SoakdError
from soakd.journal import Journal
from soakd.model import Sample, TargetInfo
from soakd.ports import CollectorContext, Item
from soakd.schedule import Job, Runner
from soakd.soak.environment import Environment
from soakd.soak.feed import Feed
from soakd.soak.prepare import access_of
from soakd.targets.discovery import Hints, identify

log = structlog.get_logger(__name__)


class Watch:
    """Runs or pauses; a soak has collectors of its own and pauses it. ``listener`` gets every batch, also a soak's."""

    def __init__(self, loaded: Loaded, environment: Environment, journal: Journal) -> None:
        self._loaded = loaded
        self._environment = environment
        self._runner: Runner | None = None
        self.feed = Feed(journal, None)
        self.target: TargetInfo | None = None
        self.last_ns: int | None = None
        self.feed.listen(self._seen)

    def listen(self, listener: Callable[[Sequence[Item]], None]) -> None:
        self.feed.listen(listener)

    async def start(self) -> None:
        """Find the target if there is one to watch (the host is watched in any case), and start the schedules."""
        self.target = await self._find_target()
        context = CollectorContext(
            self._environment.clock, self._environment.roots, self._environment.gpus, self.target
        )
        jobs = [
            Job(name, entry.plugin.build(entry.options, context), entry.interval_s, entry.deadline_s)
            for name, entry in self._loaded.collectors.items()
            if entry.enabled
        ]
        self._runner = Runner(jobs, self._environment.clock, self.feed.emit)
        self._runner.start()

    async def pause(self) -> None:
        runner, self._runner = self._runner, None
        if runner:
            await runner.stop()

    def samples(self) -> tuple[Sample, ...]:
        return self.feed.everything()

    def _seen(self, items: Sequence[Item]) -> None:
        self.last_ns = self._environment.clock.wall_ns()

    async def _find_target(self) -> TargetInfo | None:
        target = self._loaded.config.target
        if target.url is None:
            return None
        try:
            return await identify(
                access_of(self._loaded), self._environment.clock, roots=self._environment.roots,
                hints=Hints(target.model, target.pid, target.command), loading_wait_s=0.0,
            )  # fmt: skip
        except SoakdError as error:
            log.warning("the target can't be found; the host is watched without it", why=str(error))
            return None
