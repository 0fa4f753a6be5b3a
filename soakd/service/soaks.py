"""Soaks that the daemon runs: one at a time, on a cron expression or by order."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from pathlib import Path

import orjson
import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.cron import CronTrigger

from soakd.alerting.engine import Alerting
from soakd.blocking import BlockingReader
from soakd.config import Loaded, SoakScheduleConfig, load_config
from soakd.errors import SoakdError
from soakd.journal import Journal, JournalReader
from soakd.report.charts import Charts
from soakd.report.facts import Journal as JournalFacts
from soakd.report.model import Report, to_json_bytes
from soakd.report.outcome_metrics import outcome_samples
from soakd.report.progress import Progress
from soakd.service.alarms import alarmed
from soakd.service.watching import Watch
from soakd.soak.conclude import conclude, exit_code, finish, write_report
from soakd.soak.drill import planned_drills
from soakd.soak.environment import Environment
from soakd.soak.live import LiveView
from soakd.soak.plan import phases, stages
from soakd.soak.prepare import prepare
from soakd.soak.session import Soak
from soakd.web.app import SoakOrder

Tell = Callable[[dict[str, object]], Awaitable[None]]
log = structlog.get_logger(__name__)


class SoakDesk:
    """Takes orders. A second soak while one runs is refused with a clear message, never queued silently."""

    def __init__(self, loaded: Loaded, config_path: Path | None, environment: Environment, journal: Journal,
                 watch: Watch, alarms: Alerting) -> None:  # fmt: skip
        self._loaded = loaded
        self._config_path = config_path
        self._environment = environment
        self._journal = journal
        self._watch = watch
        self._alarms = alarms
        self._running: Soak | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._scheduler = AsyncIOScheduler(timezone=dt.UTC, job_defaults={"max_instances": 1, "coalesce": True})
        self.progress: Progress | None = None
        self.last: dict[str, object] | None = None

    @property
    def busy(self) -> bool:
        return not self._idle.is_set()

    async def idle(self) -> None:
        """Until no soak runs."""
        await self._idle.wait()

    def start(self) -> None:
        """Put the configured soaks on the schedule. Raises ConfigError for a cron expression that is none."""
        for i, planned in enumerate(self._loaded.config.soaks):
            try:
                trigger = CronTrigger.from_crontab(planned.cron, timezone=dt.UTC)
            except ValueError as error:
                raise self._loaded.source.error(("soaks", i, "cron"), f"found {planned.cron!r}", str(error)) from None
            self._scheduler.add_job(self._by_cron, trigger, args=(planned,), id=f"soak {i}")
        self._scheduler.start()

    async def stop(self, why: str) -> None:
        """End the schedule and the soak that runs, if one does; returns when its report is written."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
        if self._running:
            self._running.stop(why)

    async def _by_cron(self, planned: SoakScheduleConfig) -> None:
        sets: tuple[tuple[str, object], ...] = ()
        if planned.duration is not None:
            sets = (("load.duration", f"{planned.duration:g}s"),)
        try:
            await self.run(SoakOrder(None, planned.profile, sets), _nobody)
        except SoakdError as error:
            log.error("a scheduled soak could not run", cron=planned.cron, why=str(error))

    async def run(self, order: SoakOrder, tell: Tell) -> None:
        """One soak; ``tell`` gets progress each second and then the report. Raises SoakdError."""
        if self.busy:
            raise SoakdError("a soak is running already", hint="wait for it; `soakd runs` lists it")
        self._idle.clear()
        try:
            await self._run(order, tell)
        finally:
            self._running, self.progress = None, None
            self._idle.set()

    def _configuration(self, order: SoakOrder) -> Loaded:
        if any(key.split(".")[0] == "drill" for key, _ in order.sets):
            raise SoakdError(
                "an order can't bring drills: they run commands on this host", hint="put them into the file"
            )
        path = Path(order.config) if order.config else self._config_path
        sets = {**dict(order.sets), "data_dir": str(self._loaded.config.data_dir)}
        loaded = load_config(path, profile=order.profile, sets=sets)
        planned_drills(loaded, phases(loaded))
        stages(loaded)
        return loaded

    async def _run(self, order: SoakOrder, tell: Tell) -> None:
        loaded = self._configuration(order)
        prepared = await prepare(loaded, self._environment.clock, self._environment.roots)
        note = self._environment.gpu_note if prepared.info.local else "the target is on another host"
        environment = replace(self._environment, gpu_note=note)
        run = self._running = Soak(loaded, prepared, environment, self._journal)
        run.on_batch(self._watch.feed.relay)
        await self._watch.pause()
        telling = _Teller(tell)
        live = LiveView("", simulated=environment.simulated, gpus=environment.cards, gpu_note=note)

        def show(progress: Progress) -> None:
            self.progress = progress
            telling.put({"progress": asdict(progress)})

        run.on_tick(lambda tick, feed: show(live.snapshot(tick, feed)))
        try:
            with alarmed(self._alarms, run, loaded):
                facts, seen = await run.run()
        finally:
            await self._watch.start()
        await self._journal.flush()
        stats = self._journal.stats()
        journal_facts = JournalFacts(
            samples=stats.rows, size_bytes=stats.file_bytes,
            dropped={"queue full": stats.dropped} if stats.dropped else {},
        )  # fmt: skip

        def judge() -> tuple[Report, Charts]:
            with JournalReader(loaded.config.data_dir) as reader:
                return conclude(facts, seen, reader, journal_facts)

        reading = BlockingReader("report")
        try:
            report, charts = await reading.call(judge)
        finally:
            reading.close()
        ended = outcome_samples(report, seen.ended_ns)
        self._journal.add(ended, report.run_id)
        self._watch.feed.relay(ended)
        finish(self._journal, seen, report)
        await self._journal.flush()
        folder = write_report(report, charts, loaded.config.data_dir)
        self.last = {"run_id": report.run_id, "outcome": report.outcome.value, "report": str(folder)}
        log.info("soak ended", run=report.run_id, outcome=report.outcome.value, why=report.why)
        await telling.finish(
            {"report": orjson.loads(to_json_bytes(report)), "exit_code": exit_code(report), "folder": str(folder)}
        )


class _Teller:
    """Passes messages on without ever holding up the soak: at most one progress message waits."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._task: asyncio.Task[None] | None = None

    def put(self, message: dict[str, object]) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send(message))

    async def finish(self, message: dict[str, object]) -> None:
        if self._task:
            await asyncio.wait((self._task,), timeout=5.0)
        await self._send(message)

    async def _send(self, message: dict[str, object]) -> None:
        try:
            await self._tell(message)
        except (ConnectionError, RuntimeError) as error:  # who asked has hung up; the run goes on
            log.info("nobody listens to the soak's progress any more", why=str(error))


async def _nobody(_message: dict[str, object]) -> None:
    return None
