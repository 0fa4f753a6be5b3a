"""One card of the pool: its worker, its state, and what becomes of a worker that hangs, dies or loses its card."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from soakd.errors import WorkerError
from soakd.model import Event, GpuIdentity, Severity, State, labels
from soakd.nvml.device import GPU_IS_LOST, GPU_NOT_FOUND, NOT_FOUND, RESET_REQUIRED, SUCCESS, CardId
from soakd.nvml.process import WorkerProcess
from soakd.nvml.readings import state_of, why_of
from soakd.nvml.xid_table import describe
from soakd.ports import Clock, GpuReply, NvmlAnswer

EVENTS_KEY = "events"
"""Key under which every reply of a card says whether NVML delivers events (XIDs) for it."""

_CARD_GONE = frozenset({GPU_IS_LOST, GPU_NOT_FOUND, NOT_FOUND, RESET_REQUIRED})
_MAX_MIGS = 16
_GIVEN_UP = "its worker is not replaced any more (`soakd gpu acquire` tries again)"
_STARTING = "the NVML worker of this card is starting"
_RELEASED = "the NVML handles are released (`soakd gpu acquire` takes them back)"
Answered = tuple[Mapping[str, Any], State, str]


@dataclass(frozen=True, slots=True)
class Limits:
    """Deadlines and caps. ``*_share_s`` are seconds of the run's clock, all others real seconds."""

    fast_s: float = 2.0
    slow_s: float = 5.0
    probe_s: float = 20.0
    start_s: float = 15.0
    fast_share_s: float = 0.8
    slow_share_s: float = 29.0
    backoff_first_s: float = 2.0
    backoff_last_s: float = 120.0
    max_replacements: int = 5
    max_stuck: int = 3
    discover_s: float = 60.0


class Card:
    """Known from its first sight on: a card that is lost stays, with state LOST, until it returns."""

    def __init__(
        self, found: CardId, command: Sequence[str], clock: Clock, limits: Limits, emit: Callable[[Event], None]
    ) -> None:
        self._command = tuple(command)
        self._clock = clock
        self._limits = limits
        self._emit = emit
        self._units: dict[str, GpuIdentity] = {}
        self.seen_again(found)
        self.state = State.OK
        self._why = ""
        self._process: WorkerProcess | None = None
        self._generation = 0
        self._ready: asyncio.Future[tuple[int, str]] | None = None
        self._restarting: asyncio.Task[None] | None = None
        self._next_start = 0.0
        self._failures = 0
        self._stuck: list[WorkerProcess] = []
        self._released = False
        self._events_code = SUCCESS
        self._asking: dict[str, asyncio.Task[tuple[GpuReply, ...]]] = {}
        self._last: dict[str, tuple[int, tuple[GpuReply, ...]]] = {}

    @property
    def gpu(self) -> GpuIdentity:
        return self._units[""]

    @property
    def status(self) -> tuple[GpuIdentity, State, str]:
        """The card, the state of its last answer, and why it is not OK."""
        return (self.gpu, State.ABSENT, _RELEASED) if self._released else (self.gpu, self.state, self._why)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.usable else None

    def seen_again(self, found: CardId) -> None:
        """Take over the identity: index and address may have changed, the UUID is what the card goes by."""
        for mig in ("", *found.migs[:_MAX_MIGS]):
            self._units[mig] = GpuIdentity(found.uuid, found.bdf, found.serial, found.name, found.ordinal, mig)

    async def ask(self, tier: str) -> tuple[GpuReply, ...]:
        """The replies of the card and its MIG instances; one read is shared by all who ask within the share time."""
        share_s = self._limits.fast_share_s if tier == "fast" else self._limits.slow_share_s
        last = self._last.get(tier)
        if last is not None and self._clock.monotonic_ns() - last[0] < share_s * 1e9:
            return last[1]
        task = self._asking.get(tier)
        if task is None or task.done():
            task = asyncio.create_task(self._ask(tier))
            self._asking[tier] = task
        return await asyncio.shield(task)

    async def request(self, verb: str, deadline_s: float) -> Answered:
        """One request; what goes wrong changes the card's state and is said in the answer."""
        process = self._process
        if self._released:
            return {}, State.ABSENT, _RELEASED
        if process is None or self._ready is not None:
            self._restart_when_due()
            state = State.TIMEOUT if self.state is State.OK else self.state
            return {}, state, f"{self._why}; {_GIVEN_UP}" if self._spent else self._why or _STARTING
        try:
            message = await process.request(verb, deadline_s)
        except TimeoutError:
            await self._hangs(process, f"no answer to `{verb}` within {deadline_s:g} s")
            return {}, State.TIMEOUT, self._why
        except WorkerError as error:
            self._fails(process, str(error))
            return {}, State.TIMEOUT, self._why
        code = message.get("failed", SUCCESS)
        if code != SUCCESS:
            self._turn(State.LOST if code in _CARD_GONE else state_of(code), str(message.get("why", "")))
            return {}, self.state, self._why
        return message, State.OK, ""

    async def start(self) -> None:
        """Start the worker and wait, bounded by the start deadline, until it has the card."""
        generation = self._generation = self._generation + 1
        self._ready = ready = asyncio.get_running_loop().create_future()
        self._events_code = SUCCESS
        try:
            process = await WorkerProcess.start(self._command, partial(self._take, generation))
        except WorkerError as error:
            self._ready = None
            self._fails(None, str(error))
            return
        self._process = process
        try:
            async with asyncio.timeout(self._limits.start_s):
                code, why = await ready
        except TimeoutError:
            await self._hangs(process, f"not ready within {self._limits.start_s:g} s")
            return
        finally:
            self._ready = None
        if code != SUCCESS:
            self._process = None
            await process.close()
            self._keep_if_stuck(process)
            self._turn(State.LOST if code in _CARD_GONE else state_of(code), why or why_of(code))
            self._back_off()

    async def release(self) -> None:
        """End the worker: only a process that is gone is sure to hold no handle."""
        self._released = True
        await self._end()

    async def acquire(self) -> None:
        self._released = False
        self._failures, self._next_start = 0, 0.0
        if self.pid is None and self._ready is None:
            await self.start()
        self._last.clear()

    async def close(self) -> None:
        self._released = True
        await self._end()

    async def _end(self) -> None:
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.gather(self._restarting, return_exceptions=True)
        self._last.clear()
        process, self._process = self._process, None
        self._generation += 1
        if process is not None:
            await process.close()
            self._keep_if_stuck(process)
        stuck, self._stuck = self._stuck, []
        await asyncio.gather(*(process.close() for process in stuck))

    async def _ask(self, tier: str) -> tuple[GpuReply, ...]:
        deadline_s = self._limits.fast_s if tier == "fast" else self._limits.slow_s
        message, state, why = await self.request(tier, deadline_s)
        now = self._clock.wall_ns()
        if state is not State.OK:
            nothing: Mapping[str, NvmlAnswer] = MappingProxyType({})
            replies = tuple(GpuReply(unit, state, now, nothing, why) for unit in self._units.values())
        else:
            replies = self.replies_from(message.get("units", {}), now)
        self._last[tier] = (self._clock.monotonic_ns(), replies)
        if self.state is State.LOST:
            self._restart_when_due()
        return replies

    def replies_from(self, units: Mapping[str, Mapping[str, Sequence[Any]]], now: int) -> tuple[GpuReply, ...]:
        """What a worker read, as replies of the card and of every MIG instance known; changes the card's state."""
        read = {unit: {k: NvmlAnswer(code, value) for k, (code, value) in a.items()} for unit, a in units.items()}
        card = read.get("", {})
        gone = next((a.code for a in card.values() if a.code in (GPU_IS_LOST, GPU_NOT_FOUND, RESET_REQUIRED)), None)
        if gone is not None:
            self._turn(State.LOST, why_of(gone))
        else:
            self._turn(State.OK, "")
        card[EVENTS_KEY] = NvmlAnswer(self._events_code, None)
        for mig in [m for m in read if m not in self._units][:_MAX_MIGS]:
            if len(self._units) > _MAX_MIGS:  # the instances that are gone longest make room
                self._units.pop(next((m for m in self._units if m and m not in read), mig), None)
            g = self.gpu
            if len(self._units) <= _MAX_MIGS:
                self._units[mig] = GpuIdentity(g.uuid, g.bdf, g.serial, g.name, g.index, mig)
        replies = []
        for mig, unit in self._units.items():
            if self.state is State.LOST or mig not in read:
                why = self._why or "the MIG instance is gone"
                replies.append(GpuReply(unit, State.LOST, now, MappingProxyType({}), why))
            else:
                replies.append(GpuReply(unit, State.OK, now, MappingProxyType(read[mig]), ""))
        return tuple(replies)

    def _take(self, generation: int, message: Mapping[str, Any]) -> None:
        """A message that no request waits for; those of a worker that was replaced say nothing any more."""
        if generation != self._generation:
            return
        waiting = self._ready is not None and not self._ready.done()
        if "event" in message:
            kind, data, at_ns = message["event"]
            self._emit(event_of(self.gpu, str(kind), int(data), int(at_ns) or self._clock.wall_ns()))
        elif "events" in message:
            self._events_code = int(message["events"])
        elif self._ready is not None and waiting:
            if "card" in message:
                self._ready.set_result((SUCCESS, ""))
            elif "failed" in message:
                self._ready.set_result((int(message["failed"]), str(message.get("why", ""))))
            elif "ended" in message:
                words = self._process.last_words() if self._process else ""
                self._ready.set_result((-2, f"the NVML worker ended while starting, {words}"))

    def _turn(self, state: State, why: str) -> None:
        """Change the state; a change is an event, staying in a state is none."""
        before, self.state, self._why = self.state, state, why
        if state is State.OK:
            self._failures = 0
        if before is state:
            return
        self._last.clear()  # nothing that was read before a change may be handed out as current
        name = f"{self.gpu.name} at {self.gpu.bdf}"
        now = self._clock.wall_ns()
        if state is State.OK:
            kind = "gpu.returned" if before is State.LOST else "gpu.responsive"
            self._emit(Event(kind, now, f"{name} answers again", Severity.INFO, self.gpu.labels))
        elif state is State.LOST:
            self._next_start = 0.0
            self._back_off()
            self._emit(Event("gpu.lost", now, f"{name} is lost: {why}", Severity.CRITICAL, self.gpu.labels))
        elif state is not State.TIMEOUT:
            self._emit(Event("gpu.unreadable", now, f"{name}: {why}", Severity.WARNING, self.gpu.labels))

    async def _hangs(self, process: WorkerProcess, what: str) -> None:
        call = await process.where()
        if process is not self._process:
            return  # another request of the same worker has already given it up
        self._process = None
        process.abandon()
        self._stuck.append(process)
        self._count_failure(f"{what}{f', in {call}' if call else ''}", "gpu.unresponsive")

    def _fails(self, process: WorkerProcess | None, what: str) -> None:
        if process is not self._process:
            return
        self._process = None
        if process is not None:
            process.abandon()
            self._stuck.append(process)
        self._count_failure(what, "gpu.worker_died")

    def _count_failure(self, what: str, kind: str) -> None:
        self._failures += 1
        left = self._limits.max_replacements - self._failures + 1
        after = f"{left} more replacements" if left > 0 else "not replaced any more"
        self._turn(State.TIMEOUT, what)
        self._back_off()
        text = f"{self.gpu.name} at {self.gpu.bdf}: {what}; the worker is abandoned, {after}"
        attrs = labels(failures=self._failures, stuck=sum(p.alive for p in self._stuck))
        self._emit(Event(kind, self._clock.wall_ns(), text, Severity.CRITICAL, self.gpu.labels, attrs))

    def _back_off(self) -> None:
        wait_s = min(self._limits.backoff_first_s * 2 ** min(self._failures, 16), self._limits.backoff_last_s)
        self._next_start = max(self._next_start, asyncio.get_running_loop().time() + wait_s)

    def _keep_if_stuck(self, process: WorkerProcess) -> None:
        if process.alive:
            self._stuck.append(process)

    @property
    def _spent(self) -> bool:
        """Whether the replacements are used up, or too many workers are stuck in the driver."""
        return self._failures > self._limits.max_replacements or len(self._stuck) >= self._limits.max_stuck

    def _restart_when_due(self) -> None:
        self._stuck = [p for p in self._stuck if p.alive]
        due = asyncio.get_running_loop().time() >= self._next_start
        running = self._restarting is not None and not self._restarting.done()
        if due and not running and not self._spent and not self._released and self._ready is None:
            self._restarting = asyncio.create_task(self._restart())

    async def _restart(self) -> None:
        old, self._process = self._process, None
        if old is not None:
            await old.close()
            self._keep_if_stuck(old)
        self._back_off()
        await self.start()


def event_of(gpu: GpuIdentity, kind: str, data: int, at_ns: int) -> Event:
    """An NVML event as soakd's. An XID carries its number, name, class and advice as attributes."""
    if kind == "xid":
        xid = describe(data)
        what = f"XID {data} ({xid.name}) on {gpu.name} at {gpu.bdf}: {xid.advice}"
        attrs = labels(xid=data, name=xid.name, advice=xid.advice, source="nvml", **{"class": xid.kind.value})
        return Event("xid", at_ns, what, xid.severity, gpu.labels, attrs)
    severity = Severity.INFO if kind in ("ecc_sbe_storm", "recovery_action") else Severity.CRITICAL
    return Event(f"gpu.{kind}", at_ns, f"{kind} on {gpu.name} at {gpu.bdf}", severity, gpu.labels, labels(data=data))
