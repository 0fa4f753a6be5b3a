"""Soaks that the daemon runs: one at a time, on a cron expression or by order."""

from __future__ import annotations

import asyncio
import datetime as dt
from dataclasses import asdict, replace
from pathlib import Path

import orjson
import structlog
from apscheduler.events import EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED, JobEvent
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from soakd.alerting.engine import Alerting
from soakd.config import Loaded, SoakScheduleConfig, load_config
from soakd.cron import cron_trigger
from soakd.errors import SoakdError
from soakd.journal import Journal, JournalReader
from soakd.model import Event, Sample, Severity, State
from soakd.report.model import Report, from_json, to_json_bytes
from soakd.report.outcome_metrics import outcome_samples
from soakd.report.progress import Progress
from soakd.report.run_state import CODES, RUN_STATE
from soakd.service.alarms import alarmed
from soakd.service.judging import judge
from soakd.service.telling import Tell, Teller, nobody
from soakd.service.watching import Watch
from soakd.soak.conclude import exit_code
from soakd.soak.drill import planned_drills
from soakd.soak.environment import Environment
from soakd.soak.live import LiveView
from soakd.soak.plan import phases, stages
from soakd.soak.prepare import Prepared, prepare
from soakd.soak.session import Soak
from soakd.web.app import SoakOrder

_GRACE_S = 60
"""A cron soak that the loop comes to later than this is missed, and said to be."""
_LET_GO_S = 1.0
_STOPPING = "the daemon is stopping"
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
        self._preparing: asyncio.Task[Prepared] | None = None
        self._task: asyncio.Task[object] | None = None
        self._stopping = False
        self._scheduler = AsyncIOScheduler(
            timezone=dt.UTC, job_defaults={"max_instances": 1, "coalesce": True, "misfire_grace_time": _GRACE_S}
        )
        self._scheduler.add_listener(self._on_missed, EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES)
        self.progress: Progress | None = None
        self.last: dict[str, object] | None = None
        self.state = "idle"

    @property
    def busy(self) -> bool:
        return self.state != "idle"

    def start(self) -> None:
        """Recall how the last soak ended, and put the configured ones on the schedule."""
        self._to("idle")
        self._recall()
        for i, planned in enumerate(self._loaded.config.soaks):
            trigger = cron_trigger(planned.cron)
            self._scheduler.add_job(self._by_cron, trigger, args=(planned,), id=f"soak {i}", name=planned.cron)
        self._scheduler.start()

    async def stop(self, why: str, within_s: float) -> None:
        """End the schedule and the soak that runs, if one does; returns when its report is written, or in time."""
        self._stopping = True
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
        if self._running:
            self._running.stop(why)
        if self._preparing:
            self._preparing.cancel()
        if self._task is None:
            return
        await asyncio.wait((self._task,), timeout=within_s)
        if not self._task.done():
            log.warning("the soak did not end in time; `soakd report` judges what it left in the journal")
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=_LET_GO_S)

    async def run(self, order: SoakOrder, tell: Tell) -> None:
        """One soak; ``tell`` gets progress each second and then the report. Raises SoakdError.

        It goes on when the one who waits for it goes away.
        """
        if self._stopping:
            raise SoakdError(_STOPPING)
        if self.busy:
            raise SoakdError("a soak is running already", hint="wait for it; `soakd runs` lists it")
        self._to("preparing")
        task = self._task = asyncio.create_task(self._to_its_end(order, tell))
        await asyncio.shield(task)

    def _on_missed(self, event: JobEvent) -> None:
        job = self._scheduler.get_job(event.job_id)
        self._refused(job.name if job else event.job_id, "its time passed while soakd could not start it")

    async def _by_cron(self, planned: SoakScheduleConfig) -> None:
        sets: tuple[tuple[str, object], ...] = ()
        if planned.duration is not None:
            sets = (("load.duration", f"{planned.duration:g}s"),)
        try:
            await self.run(SoakOrder(None, planned.profile, sets), nobody)
        except SoakdError as error:
            self._refused(planned.cron, str(error))

    def _refused(self, cron: str, why: str) -> None:
        """Nobody waits for a scheduled soak: that it did not take place is an event."""
        log.error("a scheduled soak did not take place", cron=cron, why=why)
        what = f"the soak scheduled at {cron!r} did not take place: {why}"
        self._watch.feed.emit([Event("soak.refused", self._environment.clock.wall_ns(), what, Severity.WARNING)])

    def _to(self, state: str) -> None:
        self.state = state
        self._watch.feed.emit([Sample.ok(RUN_STATE, CODES[state], self._environment.clock.wall_ns())])

    def _recall(self) -> None:
        with JournalReader(self._loaded.config.data_dir) as reader:
            ended = [run for run in reader.runs(limit=20, brief=True) if run.outcome]
            if not ended:
                return
            try:
                report = from_json(reader.run(ended[0].id).report)
            except SoakdError as error:  # of another version; soaks are not held up by it
                log.warning("how the last soak ended can't be read", run=ended[0].id, why=str(error))
                return
        folder = self._loaded.config.data_dir / "runs" / report.run_id
        self.last = _last(report, folder if folder.is_dir() else None)
        self._watch.feed.relay(outcome_samples(report, ended[0].ended_ns or ended[0].started_ns))

    async def _to_its_end(self, order: SoakOrder, tell: Tell) -> None:
        try:
            await self._run(order, tell)
        finally:
            self._running, self.progress = None, None
            self._to("idle")

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

    async def _cards(self) -> Environment:
        """The cards as they are now: they may have come, gone or been released since the daemon began."""
        environment, gpus = self._environment, self._environment.gpus
        if gpus is None:
            return environment
        replies = await gpus.ask("fast")
        if any(reply.state is State.ABSENT for reply in replies):
            raise SoakdError("the cards are released, and a soak needs to see them", hint="soakd gpu acquire")
        return replace(environment, cards=tuple(reply.gpu for reply in replies), gpu_note=gpus.why_none)

    async def _prepare(self, loaded: Loaded) -> Prepared:
        task = self._preparing = asyncio.create_task(
            prepare(loaded, self._environment.clock, self._environment.roots)
        )  # fmt: skip
        try:
            return await task
        except asyncio.CancelledError:
            if self._stopping:
                raise SoakdError(_STOPPING) from None
            raise
        finally:
            self._preparing = None

    async def _run(self, order: SoakOrder, tell: Tell) -> None:
        loaded = self._configuration(order)
        environment = await self._cards()
        prepared = await self._prepare(loaded)
        if not prepared.info.local:
            environment = replace(environment, gpu_note="the target is on another host")
        run = self._running = Soak(loaded, prepared, environment, self._journal)
        run.on_batch(self._watch.feed.relay)
        await self._watch.pause()
        telling = Teller(tell)
        run.on_start(lambda facts: live.begins(facts.run_id))
        live = LiveView("", simulated=environment.simulated, gpus=environment.cards, gpu_note=environment.gpu_note)

        def show(progress: Progress) -> None:
            self.progress = progress
            telling.put({"progress": asdict(progress)})

        run.on_tick(lambda tick, feed: show(live.snapshot(tick, feed)))
        self._to("running")
        try:
            with alarmed(self._alarms, run, loaded):
                facts, seen = await run.run()
        finally:
            self._to("judging")
            if not self._stopping:
                await self._watch.start()
        judged = await judge(self._journal, loaded.config.data_dir, facts, seen)
        report = judged.report
        self._watch.feed.relay(judged.ended)
        self.last = _last(report, judged.folder)
        log.info("soak ended", run=report.run_id, outcome=report.outcome.value, why=report.why)
        message = {"report": orjson.loads(to_json_bytes(report)), "exit_code": exit_code(report)}
        await telling.finish({**message, "folder": str(judged.folder) if judged.folder else None})


def _last(report: Report, folder: Path | None) -> dict[str, object]:
    return {
        "run_id": report.run_id, "outcome": report.outcome.value, "why": report.why,
        "report": str(folder) if folder else None,
    }  # fmt: skip
