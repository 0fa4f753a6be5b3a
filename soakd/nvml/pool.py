"""Asks the NVML workers: one process per card, a deadline on each request, losses and returns as events.

Deadlines, backoffs and the interval of discovery are real seconds, because the workers are real processes; the share
times and all time stamps follow the clock of the run.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from soakd.model import Event, GpuIdentity, Severity, State
from soakd.nvml.card import Card, Limits
from soakd.nvml.listing import Listing, device_files
from soakd.nvml.readings import state_of
from soakd.ports import Clock, GpuReply

WORKER_COMMAND: tuple[str, ...] = (sys.executable, "-m", "soakd.nvml.worker")
COMMAND_ENV = "SOAKD_NVML_COMMAND"
_MAX_EVENTS = 1024
_MAX_CARDS = 64


@dataclass(frozen=True, slots=True)
class QueryProbe:
    """Whether one query works on one card, and how long it took (microseconds)."""

    state: State
    code: int
    us: int


@dataclass(frozen=True, slots=True)
class GpuProbe:
    """The capabilities of one card. ``state`` is OK, TIMEOUT or LOST for the card as a whole."""

    gpu: GpuIdentity
    state: State
    queries: Mapping[str, QueryProbe]
    why: str = ""


def nvml_command() -> tuple[str, ...]:
    """The command of the NVML workers. ``SOAKD_NVML_COMMAND`` puts another in its place, split as a shell would: for
    tests and recordings (``python -m soakd.nvml.replay DIR``); it decides what cards soakd believes to see."""
    return tuple(shlex.split(os.environ.get(COMMAND_ENV, ""))) or WORKER_COMMAND


class GpuPool:
    """``ports.GpuSource`` over worker processes.

    ``command`` is run with ``list`` to find the cards and with ``serve UUID`` for each of them. ``fingerprint`` is
    looked at before a periodic discovery: unchanged and with no card missing, the (costly) discovery is left out;
    by default, for the real cards, it is what the driver shows in /dev and /sys.
    """

    def __init__(
        self,
        clock: Clock,
        command: Sequence[str] = WORKER_COMMAND,
        limits: Limits | None = None,
        fingerprint: Callable[[], Hashable] | None = None,
    ) -> None:
        self._clock = clock
        self._command = tuple(command)
        self._limits = limits or Limits()
        self._listing = Listing((*self._command, "list"))
        if fingerprint is None and self._command == WORKER_COMMAND:
            fingerprint = device_files
        self._fingerprint = fingerprint
        self._seen: Hashable = None
        self._cards: dict[str, Card] = {}
        self._events: deque[Event] = deque(maxlen=_MAX_EVENTS)
        self._dropped = 0
        self._starting: asyncio.Task[None] | None = None
        self._discovery: asyncio.Task[None] | None = None
        self._next_discovery = 0.0
        self._released = False
        self._why_none = ""
        self._told_none = False

    @property
    def why_none(self) -> str:
        return "" if self._cards else self._why_none

    @property
    def cards(self) -> tuple[tuple[GpuIdentity, State, str], ...]:
        """Every card ever seen, its state, and why it is not OK; ABSENT while the handles are released."""
        return tuple(card.status for card in self._cards.values())

    @property
    def workers(self) -> tuple[int, ...]:
        """Process ids of the workers in use."""
        return tuple(pid for card in self._cards.values() if (pid := card.pid) is not None)

    async def start(self) -> None:
        """Find the cards and start a worker for each. Bounded by the start deadline; asked again it does nothing."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        await asyncio.shield(self._starting)

    async def ask(self, tier: str) -> Sequence[GpuReply]:
        await self.start()
        self._discover_when_due()
        replies = await asyncio.gather(*(card.ask(tier) for card in self._cards.values()))
        return tuple(reply for units in replies for reply in units)

    async def take_events(self) -> Sequence[Event]:
        events = list(self._events)
        self._events.clear()
        if self._dropped:
            what = f"{self._dropped} GPU events were dropped: nobody took them"
            events.append(Event("gpu.events_dropped", self._clock.wall_ns(), what, Severity.WARNING))
            self._dropped = 0
        return tuple(events)

    async def probe(self) -> Sequence[GpuProbe]:
        """Ask every query once on every card and say which work. Slow (the first call of each may take 20 ms)."""
        await self.start()
        found = await asyncio.gather(*(card.request("probe", self._limits.probe_s) for card in self._cards.values()))
        return tuple(
            GpuProbe(card.gpu, state, _queries(message.get("probe", {})), why)
            for card, (message, state, why) in zip(tuple(self._cards.values()), found, strict=True)
        )

    async def release(self) -> None:
        """Let go of every handle, so that the cards can be reset: the workers end. Readings are ABSENT meanwhile."""
        self._released = True
        await self._settle_discovery()
        await asyncio.gather(*(card.release() for card in self._cards.values()))
        self._emit(Event("gpu.released", self._clock.wall_ns(), "all NVML handles were let go of"))

    async def acquire(self) -> None:
        """Take the handles back, and look which cards there are now."""
        self._released = False
        await asyncio.gather(*(card.acquire() for card in self._cards.values()))
        await self._discover()
        self._emit(Event("gpu.acquired", self._clock.wall_ns(), "the NVML handles were taken back"))

    async def close(self) -> None:
        """End every worker. One that is stuck in the driver is left to the kernel."""
        await self._settle_discovery()
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        await asyncio.gather(*(card.close() for card in self._cards.values()))

    async def _settle_discovery(self) -> None:
        if self._discovery is not None:
            self._discovery.cancel()
            await asyncio.gather(self._discovery, return_exceptions=True)
            self._discovery = None

    async def _start(self) -> None:
        await self._discover()

    def _discover_when_due(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._released or now < self._next_discovery or (self._discovery and not self._discovery.done()):
            return
        self._next_discovery = now + self._limits.discover_s
        seen = self._fingerprint() if self._fingerprint else None
        missing = any(card.state is not State.OK for card in self._cards.values())
        if self._fingerprint and seen == self._seen and not missing:
            return
        self._discovery = asyncio.create_task(self._discover())

    async def _discover(self) -> None:
        """List the cards in a process of its own: listing may hang as any other call."""
        self._next_discovery = asyncio.get_running_loop().time() + self._limits.discover_s
        self._seen = self._fingerprint() if self._fingerprint else None
        listed = await self._listing.run(self._limits.start_s)
        if isinstance(listed, str):
            self._why_none = f"no GPU found: {listed}"
        elif not listed and not self._cards:
            self._why_none = "no GPU found: NVML lists none"
        if isinstance(listed, str) or not listed:
            if not self._cards and not self._told_none:
                self._told_none = True
                self._emit(Event("gpu.none", self._clock.wall_ns(), self._why_none))
            return
        fresh = []
        for found in listed:
            card = self._cards.get(found.uuid)
            if card is not None:
                card.seen_again(found)
            elif len(self._cards) < _MAX_CARDS:
                card = Card(found, (*self._command, "serve", found.uuid), self._clock, self._limits, self._emit)
                self._cards[found.uuid] = card
                fresh.append(card)
        await asyncio.gather(*(card.start() for card in fresh))
        for card in fresh:
            what = f"{card.gpu.name} at {card.gpu.bdf}"
            self._emit(Event("gpu.found", self._clock.wall_ns(), what, Severity.INFO, card.gpu.labels))

    def _emit(self, event: Event) -> None:
        if len(self._events) == _MAX_EVENTS:
            self._dropped += 1
        self._events.append(event)


def _queries(probed: Mapping[str, Any]) -> Mapping[str, QueryProbe]:
    return MappingProxyType({k: QueryProbe(state_of(code), code, us) for k, (code, us) in probed.items()})
