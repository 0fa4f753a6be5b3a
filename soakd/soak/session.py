"""One soak: drives the load, lets the collectors watch, ends by plan, by hand or for safety."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from soakd.config import Loaded, read_secret
from soakd.journal.records import RunRecord
from soakd.journal.writer import Journal
from soakd.load.canary import CanaryResult, CanarySpec, plan_canary
from soakd.load.driver import LoadDriver
from soakd.load.messages import Done, Tick, Window
from soakd.load.metrics import samples as window_samples
from soakd.model import Event, Finding, RunState, Severity, labels
from soakd.ports import CollectorContext, Item
from soakd.schedule import Job, Runner
from soakd.soak.canaries import event_of
from soakd.soak.drill import Drills, planned_drills
from soakd.soak.environment import Environment, boot_id
from soakd.soak.feed import Feed
from soakd.soak.plan import interval_of, load_spec, phases
from soakd.soak.prepare import Prepared
from soakd.soak.run_facts import BLOB as FACTS
from soakd.soak.run_facts import RunFacts, run_facts
from soakd.soak.safety import SafetyLimits, SafetyWatch, Stop
from soakd.soak.sharing import CardSharing
from soakd.soak.usage import Usage, measure_usage
from soakd.soak.watching_growth import GrowthWatch
from soakd.soak.window_store import BLOB as WINDOW
from soakd.soak.window_store import TAIL, Tail, encode
from soakd.targets.server_log import LogSource, tail

_STOP_GRACE_S = 2.0
_MOST_TAILS = 20
LOG_TAIL = "server.log_tail"
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Ending:
    """How the run ended. ``interrupted_by`` is empty when it ran to its plan."""

    interrupted_by: str = ""
    safety: Stop | None = None
    journal_full: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """What the session itself saw, beside what is in the journal. ``duration_s`` is of the monotonic clock;
    ``done`` None when the load process never told its totals."""

    duration_s: float
    ended_ns: int
    done: Done | None = None
    ending: Ending = Ending()
    usage: tuple[Usage, ...] = ()
    boot_id_end: str = ""


class Soak:
    """Built for one run. ``run`` returns when the run has ended, whatever ended it; ``stop`` may be called any time."""

    def __init__(self, loaded: Loaded, prepared: Prepared, environment: Environment, journal: Journal) -> None:
        self._loaded = loaded
        self._prepared = prepared
        self._environment = environment
        self._journal = journal
        self._driver = LoadDriver()
        self._stopping = asyncio.Event()
        self._ending = Ending()
        self._listeners: list[Callable[[Tick, Feed], None]] = []
        self._batch_listeners: list[Callable[[Sequence[Item]], None]] = []
        self._start_listeners: list[Callable[[RunFacts], None]] = []
        safety = loaded.config.safety
        self._safety = SafetyWatch(
            SafetyLimits(
                safety.gpu_temperature_celsius if prepared.info.local else None,
                safety.xid_reboot_class and prepared.info.local,
                safety.error_rate,
                safety.error_rate_window,
            )
        )
        self._sharing = CardSharing(environment.roots.proc, prepared.info.pid)
        where = loaded.config.target.log
        self._log = LogSource(where.file, where.unit, where.container)
        self._tails = 0
        self._drills = planned_drills(loaded, phases(loaded))
        self._growth: GrowthWatch | None = None
        self.feed: Feed | None = None

    def on_tick(self, listener: Callable[[Tick, Feed], None]) -> None:
        """Called each real second with the load's state and the latest readings."""
        self._listeners.append(listener)

    def on_batch(self, listener: Callable[[Sequence[Item]], None]) -> None:
        """Called with everything the run's collectors and its load say, once it is on its way to the journal."""
        self._batch_listeners.append(listener)

    def on_start(self, listener: Callable[[RunFacts], None]) -> None:
        """Called once, when the run is known and nothing of it was measured yet."""
        self._start_listeners.append(listener)

    def stop(self, why: str) -> None:
        """End the run early; it still ends with a report. The first reason is kept."""
        if not self._stopping.is_set():
            self._ending = Ending(interrupted_by=why)
            self._stopping.set()

    async def run(self) -> tuple[RunFacts, Seen]:
        """Raises WorkerError when the load engine can't be started."""
        clock, roots = self._environment.clock, self._environment.roots
        spec = load_spec(
            self._loaded, self._prepared.info, self._prepared.prompts, self._canary(), self._environment.fast
        )
        facts = run_facts(self._loaded, self._prepared, self._environment, spec, clock.wall_ns())
        began_ns = clock.monotonic_ns()
        self._open_run(facts)
        feed = self.feed = Feed(self._journal, facts.run_id)
        feed.listen(self._watch)
        for listener in self._batch_listeners:
            feed.listen(listener)
        for told in self._start_listeners:
            told(facts)
        growth = self._growth = self._watch_growth(facts, feed)
        feed.listen(growth.take)
        runner = Runner(self._jobs(), clock, feed.emit)
        before = measure_usage(clock)
        runner.start()
        beside = [asyncio.create_task(self._stop_when_asked())]
        try:
            await self._driver.start(spec)
            beside.append(asyncio.create_task(self._drill(feed)))
            done = await self._consume(facts.run_id, feed)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await growth.close()
            await self._driver.close()  # a run that is cut short must not go on loading its target
            after = measure_usage(clock)
            await runner.stop(last_reading=True)
        duration_s = (clock.monotonic_ns() - began_ns) / 1e9
        seen = Seen(duration_s, clock.wall_ns(), done, self._ending, (before, after), boot_id(roots))
        return facts, seen

    def _watch_growth(self, facts: RunFacts, feed: Feed) -> GrowthWatch:
        def tell(event: Event, finding: Finding) -> None:
            feed.emit([event])
            feed.find([finding])
            log.warning("a leak", what=event.what)

        return GrowthWatch(facts.started_ns, facts.planned, facts.limits, facts.caps, tell)

    def _canary(self) -> CanarySpec | None:
        config = self._loaded.config.canary
        if not config.enabled:
            return None
        return plan_canary(
            phases(self._loaded).measured_s, target_kind=self._prepared.server_kind, prompts=config.prompts,
            max_tokens=config.max_tokens, interval_s=config.interval,
        )  # fmt: skip

    def _open_run(self, facts: RunFacts) -> None:
        self._journal.start_run(
            RunRecord(
                id=facts.run_id,
                started_ns=facts.started_ns,
                state=RunState.RUNNING,
                target=facts.target.url,
                profile=facts.profile,
                simulated=facts.simulated,
                boot_id=facts.boot_id,
                config=facts.config.encode(),
            )
        )
        self._journal.add_blob(FACTS, facts.run_id, facts.started_ns, facts.started_ns, 1, facts.to_json())

    def _jobs(self) -> tuple[Job, ...]:
        environment, speed = self._environment, self._environment.clock.speed
        context = CollectorContext(environment.clock, environment.roots, environment.gpus, self._prepared.info)
        return tuple(
            Job(name, entry.plugin.build(entry.options, context), interval_of(entry, speed), entry.deadline_s)
            for name, entry in self._loaded.collectors.items()
            if entry.enabled
        )

    async def _drill(self, feed: Feed) -> None:
        target, clock = self._loaded.config.target, self._environment.clock
        key = read_secret(target.api_key_env, target.api_key_file, "API key")
        secrets = [key] if key else []
        drills = Drills(self._drills, clock, feed.emit, simulated=self._environment.simulated,
                        secrets=[*secrets, *target.headers.values()])  # fmt: skip
        await drills.run(clock.monotonic_ns() + self._driver.origin_ns - clock.wall_ns())

    async def _consume(self, run_id: str, feed: Feed) -> Done | None:
        done: Done | None = None
        async for message in self._driver.messages():
            if isinstance(message, Tick):
                self._journal.keep(TAIL, Tail.of(run_id, message).to_json())
                self._on_tick(message, feed)
            elif isinstance(message, Window):
                self._on_window(message, run_id, feed)
            elif isinstance(message, CanaryResult):
                feed.emit([e for e in (event_of(message),) if e])
            elif isinstance(message, Event):
                await self._on_event(message, feed)
            else:
                done = message
        return done

    def _on_tick(self, tick: Tick, feed: Feed) -> None:
        self._end_for(self._safety.requests(tick.at_ns, tick.completed, tick.failed), feed)
        if self._journal.failure is not None and not self._stopping.is_set():
            log.error("the journal can't be written; the run ends", why=str(self._journal.failure))
            self._ending = Ending(interrupted_by="journal full", journal_full=True)
            self._stopping.set()
        if self._growth:
            self._growth.tick(tick.at_ns)
        for listener in self._listeners:
            listener(tick, feed)

    def _on_window(self, window: Window, run_id: str, feed: Feed) -> None:
        feed.emit(window_samples(window))
        ended = window.counts.completed + window.counts.failed
        self._journal.add_blob(WINDOW, run_id, window.start_ns, window.end_ns, ended, encode(window))
        if window.records:
            self._journal.add_blob("load.requests", run_id, window.start_ns, window.end_ns, ended, window.records)

    async def _on_event(self, event: Event, feed: Feed) -> None:
        feed.emit([event])
        if event.severity is Severity.INFO or self._tails >= _MOST_TAILS or self._log == LogSource():
            return
        self._tails += 1
        found = await tail(self._log)
        text = "\n".join(found.lines) or f"(nothing: {found.problem})"
        feed.emit([Event(LOG_TAIL, event.at_ns, text, Severity.INFO, (), labels(source=found.source))])

    def _watch(self, items: Sequence[Item]) -> None:
        if self.feed:
            self._end_for(self._safety.step(items), self.feed)
            self.feed.emit(self._sharing.step(items))

    def _end_for(self, stop: Stop | None, feed: Feed) -> None:
        if stop is None or self._stopping.is_set():
            return
        self._ending = Ending(interrupted_by=f"safety limit {stop.rule}", safety=stop)
        self._stopping.set()
        log.error("a safety limit ends the run", rule=stop.rule, why=stop.why)
        feed.emit([Event("safety.stop", stop.at_ns, f"{stop.rule}: {stop.why}", Severity.CRITICAL)])

    async def _stop_when_asked(self) -> None:
        await self._stopping.wait()
        await self._driver.stop(_STOP_GRACE_S)
