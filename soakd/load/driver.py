"""The owner's side of the load engine: starts the workers, merges what they say, never hangs on one that died."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from soakd.errors import SoakdError, WorkerError
from soakd.load.arrivals import Closed, Open
from soakd.load.canary import CanaryAnswer, CanaryJudge
from soakd.load.merge import Merger
from soakd.load.messages import Done, Message
from soakd.load.outages import TargetOutages
from soakd.load.reports import CanaryPart, Ended, Fault, Ready, Report, Start, Stop, TickPart, WindowPart
from soakd.load.runclock import RunClock
from soakd.load.spec import Job, LoadSpec, job_to_json
from soakd.load.transport import endpoints, pick
from soakd.load.worker_process import COMMAND, WorkerProcess
from soakd.model import Event, Severity
from soakd.targets.base import find_adapter

_READY_S = 60.0
_LEAD_NS = 50_000_000
_SILENT_S = 30.0
"""A worker reports every second; one that has said nothing for so long is stuck and is killed."""
_STREAMS_A_WORKER = 256
_RATE_A_WORKER = 300.0
_QUEUE = 256
_SHORTEST_WAIT_S = 0.2


def worker_count(spec: LoadSpec, cores: int | None = None) -> int:
    """What ``workers: auto`` means: one for every 256 streams or 300 requests a second, one core left free."""
    if spec.workers:
        return spec.workers
    free = max(1, (cores or len(os.sched_getaffinity(0))) - 1)
    need = 1.0
    for stage in spec.stages:
        if isinstance(stage.arrivals, Closed):
            need = max(need, stage.arrivals.concurrency / _STREAMS_A_WORKER)
        elif isinstance(stage.arrivals, Open):
            need = max(need, max(rate for _, rate in stage.arrivals.curve) / _RATE_A_WORKER)
    return min(free, math.ceil(need))


@dataclass(frozen=True, slots=True)
class _Heard:
    """A report, or None with the reason when the worker has no more."""

    worker: int
    report: Report | None
    why: str = ""


class LoadDriver:
    """One load at a time.

    ``start`` raises ConfigError for a target that can't be addressed and WorkerError when the workers can't be
    started. ``messages`` ends after its `Done`, which always comes: a worker that dies is an event, the others are
    stopped, and the load ends with what was collected. ``close`` may be called at any time and ends the processes.
    """

    def __init__(self, command: Sequence[str] = COMMAND, silent_s: float = _SILENT_S) -> None:
        self._command = command
        self._silent_s = silent_s
        self._workers: list[WorkerProcess] = []
        self._readers: list[asyncio.Task[None]] = []
        self._heard: asyncio.Queue[_Heard] = asyncio.Queue(_QUEUE)
        self._spec: LoadSpec | None = None
        self._clock = RunClock(None)
        self._stop_by: float | None = None

    async def start(self, spec: LoadSpec) -> None:
        """Returns when every worker is ready and the first stage is about to begin."""
        adapter = find_adapter(spec.target.adapter)
        endpoints(spec.target, adapter.path)
        pick(spec.target, spec.transport)
        self._spec = spec
        count = worker_count(spec)
        try:
            for shard in range(count):
                job = job_to_json(Job(spec, shard, count))
                self._workers.append(await WorkerProcess.start(self._command, job))
            async with asyncio.timeout(_READY_S):
                for worker in self._workers:
                    await _readiness(worker)
        except TimeoutError:
            await self.close()
            raise WorkerError(f"a load worker was not ready in {_READY_S:g} s") from None
        except SoakdError:
            await self.close()
            raise
        self._clock = RunClock(spec.clock, time.monotonic_ns() + _LEAD_NS)
        for number, worker in enumerate(self._workers):
            worker.order(Start(self._clock.origin_ns))
            if self._stop_by is not None:
                worker.order(Stop(0.0))
            self._readers.append(asyncio.create_task(self._listen(number, worker)))

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """The workers' process ids, so that their cost is not taken for the server's or the owner's."""
        return tuple(worker.pid for worker in self._workers)

    @property
    def origin_ns(self) -> int:
        """The clock's wall time at which the first stage began."""
        return self._clock.wall_ns(self._clock.origin_ns)

    async def messages(self) -> AsyncIterator[Message]:
        """In order of time, as far as the workers are together. Call once, after ``start``."""
        if self._spec is None:
            raise WorkerError("the load was not started")
        run = _Run(self._spec, len(self._workers), self._clock)
        while run.alive:
            try:
                async with asyncio.timeout(self._patience()):
                    heard = await self._heard.get()
            except TimeoutError:
                self._kill_the_stuck(run)
                continue
            for message in run.take(heard):
                yield message
            self._kill_the_stuck(run)
            if run.died and self._stop_by is None:
                await self.stop()
        yield run.done()
        await self.close()

    async def stop(self, grace_s: float = 2.0) -> None:
        """End the load: nothing new is sent, what is in flight gets ``grace_s`` real seconds. `Done` follows.

        May come while ``start`` is under way: the workers are then stopped as soon as they are ready.
        """
        self._stop_by = time.monotonic() + grace_s + 5.0
        for worker in self._workers:
            worker.order(Stop(grace_s))

    async def close(self) -> None:
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*(worker.close() for worker in self._workers))
        self._workers, self._readers = [], []

    def _patience(self) -> float:
        left = math.inf if self._stop_by is None else self._stop_by - time.monotonic()
        return max(_SHORTEST_WAIT_S, min(self._silent_s / 4, left))

    def _kill_the_stuck(self, run: _Run) -> None:
        late = self._stop_by is not None and time.monotonic() >= self._stop_by
        for number in run.alive if late else run.silent(self._silent_s):
            self._workers[number].kill()

    async def _listen(self, number: int, worker: WorkerProcess) -> None:
        why = ""
        try:
            while (report := await worker.report()) is not None:
                await self._heard.put(_Heard(number, report))
        except WorkerError as error:
            why = error.message
            worker.kill()
        ended = await worker.how_it_ended()
        await self._heard.put(_Heard(number, None, f"{why} ({ended})" if why else ended))


class _Run:
    """What was heard so far."""

    def __init__(self, spec: LoadSpec, workers: int, clock: RunClock) -> None:
        self._spec = spec
        self._clock = clock
        self._merger = Merger(spec, workers)
        self._outages = TargetOutages(spec)
        self._judge = CanaryJudge(spec.canary) if spec.canary else None
        self._last_heard = dict.fromkeys(range(workers), time.monotonic())
        self._looked = time.monotonic()
        self._workers = workers
        self._finished: set[int] = set()
        self._faults: dict[int, str] = {}
        self._stopped = False
        self._rss = 0
        self.alive = set(range(workers))
        self.died: list[str] = []

    def silent(self, seconds: float) -> list[int]:
        """Workers that said nothing for so long, unless it was this process that did not listen (it was stopped)."""
        now = time.monotonic()
        slept, self._looked = now - self._looked > seconds / 2, now
        if slept:
            self._last_heard = dict.fromkeys(self._last_heard, now)
        return [number for number in self.alive if now - self._last_heard[number] >= seconds]

    def take(self, heard: _Heard) -> list[Message]:
        number, report = heard.worker, heard.report
        self._last_heard[number] = time.monotonic()
        match report:
            case TickPart():
                return self._tick(number, report)
            case WindowPart():
                return [*self._merger.add_window(number, report)]
            case CanaryPart() if self._judge is not None:
                if report.error:
                    self._judge.failed()
                    return []
                return [self._judge.judge(CanaryAnswer(report.prompt_id, report.at_ns, report.text))]
            case Fault():
                self._faults[number] = report.message
                return []
            case Ended():
                self._finished.add(number)
                self._stopped = self._stopped or report.stopped
                self._rss = max(self._rss, report.rss_bytes)
                return []
            case None:
                return self._gone(number, heard.why)
        return []

    def _tick(self, number: int, part: TickPart) -> list[Message]:
        second_ns = self._clock.origin_ns + part.second * 1_000_000_000
        at_ns = self._clock.wall_ns(second_ns)
        tick = self._merger.add_tick(number, part, at_ns, part.second * self._clock.speed)
        out: list[Message] = [] if tick is None else [tick]
        out += self._outages.add(number, part, at_ns, self.alive)
        return out

    def _gone(self, number: int, why: str) -> list[Message]:
        self.alive.discard(number)
        out: list[Message] = [*self._merger.drop(number)]
        if number not in self._finished:
            what = f"load worker {number + 1} of {self._workers} died: {self._faults.get(number, why)}"
            self.died.append(what)
            out.append(self._event("load.worker_died", what, Severity.CRITICAL))
        return out

    def _event(self, kind: str, what: str, severity: Severity = Severity.WARNING) -> Event:
        return Event(kind, self._clock.wall_ns(time.monotonic_ns()), what, severity)

    def done(self) -> Done:
        incomplete = "; ".join(self.died) or ("it was stopped before its end" if self._stopped else "")
        return Done(
            total=self._merger.total(),
            stages=self._merger.stages(),
            outages=self._outages.outages(),
            self_check=self._merger.self_check(),
            canary=self._judge.summary() if self._judge else None,
            bottleneck=self._merger.bottleneck(),
            incomplete=incomplete,
            workers=self._workers,
            worker_rss_bytes=self._rss or None,
            replicas=self._merger.replicas(),
        )


async def _readiness(worker: WorkerProcess) -> None:
    """Raises WorkerError unless the worker says that it is ready."""
    report = await worker.report()
    if isinstance(report, Fault):
        raise WorkerError(report.message)
    if not isinstance(report, Ready):
        raise WorkerError(f"the load worker did not start: {await worker.how_it_ended()}")
