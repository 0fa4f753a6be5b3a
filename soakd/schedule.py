"""Runs the collectors, each on its own schedule and within its own deadline; times and counts them.

Collectors only read. What goes wrong in one of them stays with it: the others' data are never touched.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog
from apscheduler.events import EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED, JobEvent
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from soakd.model import Event, Kind, Metric, Sample, Severity, State, labels
from soakd.ports import Clock, Collector, Item

DURATION = Metric(
    "collector_duration_seconds", "seconds", Kind.GAUGE,
    "Time one collector took for its last reading.", "soakd, monotonic clock", ("collector",),
)  # fmt: skip
UP = Metric(
    "collector_up", "", Kind.STATE, "Whether the collector's last reading worked.", "soakd", ("collector",),
    (("ok", 1), ("unsupported", 2), ("absent", 3), ("timeout", 4), ("error", 5), ("lost", 6), ("no_permission", 7)),
)  # fmt: skip
FAILURES = Metric(
    "collector_failures_total", "failures", Kind.COUNTER,
    "Readings that raised an error or ran past their deadline.", "soakd", ("collector",),
)  # fmt: skip
MISSED = Metric(
    "collector_missed_total", "readings", Kind.COUNTER,
    "Scheduled readings that did not start, because the one before was still running.", "soakd", ("collector",),
)  # fmt: skip
METRICS = (DURATION, UP, FAILURES, MISSED)

_UP_CODES = dict(UP.codes)
_STEP_NS = 500_000_000
_WATCH_SECONDS = 5.0
_STOP_WITHIN_S = 1.0
_WORST_FIRST = (State.LOST, State.TIMEOUT, State.NO_PERMISSION, State.ABSENT, State.UNSUPPORTED)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """One collector and when it runs; ``interval_s`` in seconds of the run's clock, ``deadline_s`` in real seconds."""

    name: str
    collector: Collector
    interval_s: float
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Reading:
    """What one collector saw once. ``status`` is ok, unsupported, absent, timeout, error or lost."""

    name: str
    status: str
    took_s: float
    why: str
    items: tuple[Item, ...]

    @property
    def failed(self) -> bool:
        """Nothing was read. Where all that was read is that a permission is missing, the collector did its work."""
        return self.status == "timeout" or (self.status == "error" and not self.items)

    @property
    def samples(self) -> tuple[Sample, ...]:
        return tuple(i for i in self.items if isinstance(i, Sample))


@dataclass(slots=True)
class _Count:
    failures: int = 0
    missed: int = 0
    runs: int = 0
    last_problem: str = ""
    task: asyncio.Task[None] | None = field(default=None, repr=False)


async def read_once(job: Job, clock: Clock) -> Reading:
    """Run one collector once. The single place that isolates a plug-in: no error of it passes, each is recorded."""
    started = clock.monotonic_ns()
    items: tuple[Item, ...] = ()
    try:
        async with asyncio.timeout(job.deadline_s) as limit:
            items = tuple(await job.collector.collect())
    except TimeoutError as error:
        # a collector may time out by itself: then it knows better what it waited for
        status, why = "timeout", f"no answer within {job.deadline_s:g} s" if limit.expired() else str(error)
    except Exception as error:  # noqa: BLE001  # isolates the plug-in; counted and recorded by the caller
        status, why = "error", f"{type(error).__name__}: {error}"
    else:
        status, why = _status(items)
    took = (clock.monotonic_ns() - started) / 1e9 / clock.speed
    return Reading(job.name, status, took, why, items)


def _status(items: Sequence[Item]) -> tuple[str, str]:
    samples = [i for i in items if isinstance(i, Sample)]
    if not samples or any(s.state is State.OK for s in samples):
        return "ok", ""
    for state in _WORST_FIRST:
        for sample in samples:
            if sample.state is state:
                # the contract of `collect` has no status of its own for a missing permission
                return ("error" if state is State.NO_PERMISSION else state.value), sample.why or state.value
    return "ok", ""


class Runner:
    """Schedules the jobs on apscheduler and hands every reading to ``emit``.

    apscheduler works on wall time, so that a step of the system clock would stall or rush every job; the runner
    watches wall against monotonic time, reports a step as an event and starts the schedules anew.
    """

    def __init__(self, jobs: Sequence[Job], clock: Clock, emit: Callable[[Sequence[Item]], None]) -> None:
        self._jobs = {job.name: job for job in jobs}
        self._counts = {job.name: _Count() for job in jobs}
        self._clock = clock
        self._emit = emit
        self._scheduler = AsyncIOScheduler(
            timezone=dt.UTC, job_defaults={"max_instances": 1, "coalesce": True, "misfire_grace_time": None}
        )
        self._scheduler.add_listener(self._on_missed, EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES)
        self._watch: asyncio.TimerHandle | None = None
        self._offset_ns = 0

    def start(self) -> None:
        for job in self._jobs.values():
            self._scheduler.add_job(
                self._run, "interval", seconds=job.interval_s / self._clock.speed,
                id=job.name, args=(job,), next_run_time=dt.datetime.now(dt.UTC),
            )  # fmt: skip
        self._scheduler.start()
        self._offset_ns = self._clock.wall_ns() - self._clock.monotonic_ns()
        self._arm_watch()

    async def stop(self, *, last_reading: bool = False) -> None:
        """Stop the schedules, let what is running end (bounded), read everything once more if wanted, and close."""
        if self._watch:
            self._watch.cancel()
        if self._scheduler.running:
            # its shutdown would cancel what runs, and what is just about to start
            self._scheduler.pause()
            await asyncio.sleep(0)
        running = [c.task for c in self._counts.values() if c.task and not c.task.done()]
        if running:
            _, late = await asyncio.wait(running, timeout=_STOP_WITHIN_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
        if last_reading:
            await self.read_all()
        await asyncio.gather(*(j.collector.close() for j in self._jobs.values()), return_exceptions=True)

    async def read_all(self) -> tuple[Reading, ...]:
        """Every collector once, now, side by side."""
        return tuple(await asyncio.gather(*(self._read(job) for job in self._jobs.values())))

    async def _run(self, job: Job) -> None:
        self._counts[job.name].task = asyncio.current_task()
        try:
            await self._read(job)
        except asyncio.CancelledError:
            # only `stop` cancels; apscheduler would log it as the failure of a job
            return

    async def _read(self, job: Job) -> Reading:
        reading = await read_once(job, self._clock)
        count = self._counts[job.name]
        count.runs += 1
        count.failures += reading.failed
        now = self._clock.wall_ns()
        items: list[Item] = list(reading.items)
        problem = f"{reading.status}: {reading.why}" if reading.status in ("timeout", "error") else ""
        if problem and problem != count.last_problem:
            log.warning("collector failed", collector=job.name, status=reading.status, why=reading.why)
            items.append(
                Event("collector.failed", now, f"{job.name}: {problem}", Severity.WARNING, labels(collector=job.name))
            )
        elif count.last_problem and not problem:
            log.info("collector works again", collector=job.name)
            items.append(
                Event("collector.recovered", now, f"{job.name} works again", Severity.INFO, labels(collector=job.name))
            )
        count.last_problem = problem
        items.extend(self._own_samples(job.name, reading, count, now))
        self._emit(items)
        return reading

    def _own_samples(self, name: str, reading: Reading, count: _Count, now: int) -> tuple[Sample, ...]:
        tags = labels(collector=name)
        forbidden = reading.status == "error" and not reading.failed
        return (
            Sample.ok(DURATION, reading.took_s, now, tags),
            Sample.ok(UP, _UP_CODES["no_permission" if forbidden else reading.status], now, tags),
            Sample.ok(FAILURES, count.failures, now, tags),
            Sample.ok(MISSED, count.missed, now, tags),
        )

    def _on_missed(self, event: JobEvent) -> None:
        if event.job_id in self._counts:
            self._counts[event.job_id].missed += 1

    def _arm_watch(self) -> None:
        self._watch = asyncio.get_running_loop().call_later(_WATCH_SECONDS, self._check_clock)

    def _check_clock(self) -> None:
        offset = self._clock.wall_ns() - self._clock.monotonic_ns()
        step = offset - self._offset_ns
        if abs(step) >= _STEP_NS * self._clock.speed:
            self._offset_ns = offset
            self._emit([_step_event(step, self._clock.wall_ns())])
            for job in self._scheduler.get_jobs():
                job.modify(next_run_time=dt.datetime.now(dt.UTC))
        self._arm_watch()


def _step_event(step_ns: int, now_ns: int) -> Event:
    direction = "forward" if step_ns > 0 else "back"
    what = f"the system clock stepped {direction} by {abs(step_ns) / 1e9:.3f} s; durations are not affected"
    return Event("clock.step", now_ns, what, Severity.WARNING, (), labels(step_seconds=f"{step_ns / 1e9:.3f}"))
