"""The Protocols between the parts. A plug-in implements one of them; the edge composes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from soakd.model import Alert, Event, Finding, GpuIdentity, Labels, Sample, State, TargetInfo

Item = Sample | Event
S = TypeVar("S")


class Clock(Protocol):
    """Wall time for storage, monotonic time for durations. ``speed`` is 1 except in a rehearsal."""

    @property
    def speed(self) -> float: ...
    def wall_ns(self) -> int: ...
    def monotonic_ns(self) -> int: ...
    async def sleep(self, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Roots:
    """Where the kernel's trees are: parameters, so that tests and containers can point elsewhere."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    etc: Path = Path("/etc")
    run: Path = Path("/run")


@dataclass(frozen=True, slots=True)
class NvmlAnswer:
    """One NVML call or field: its return code (0 is success) and its value, decoded.

    ``value`` is a number, text, or for structured answers a mapping or a sequence of mappings.
    """

    code: int
    value: object = None


@dataclass(frozen=True, slots=True)
class GpuReply:
    """All answers of one GPU to one tier. ``state`` is OK, TIMEOUT or LOST for the card as a whole."""

    gpu: GpuIdentity
    state: State
    at_ns: int
    answers: Mapping[str, NvmlAnswer]
    why: str = ""


class GpuSource(Protocol):
    """Asks the NVML worker processes, each with a deadline. Never raises for a card: the reply says what is wrong."""

    @property
    def why_none(self) -> str:
        """Why there is no card at all (``no GPU found: ...``), or empty."""
        ...

    async def ask(self, tier: str) -> Sequence[GpuReply]:
        """One reply per card and MIG instance ever seen; a lost card stays in the list with state LOST.

        ``tier`` is ``fast`` or ``slow``; the keys of the answers are listed in ``soakd.nvml.queries``. Replies younger
        than the tier's share time are handed out again, so that several collectors cost one read.
        """
        ...

    async def take_events(self) -> Sequence[Event]:
        """XIDs and card losses and returns since the last call. Each event is handed out once."""
        ...


@dataclass(frozen=True, slots=True)
class CollectorContext:
    """What a collector may use. It reads; the runner times, bounds and counts it."""

    clock: Clock
    roots: Roots
    gpus: GpuSource | None
    target: TargetInfo | None


class Collector(Protocol):
    """One file of soakd/collectors: ``KIND``, ``Config``, ``METRICS`` and ``build(config, context)``."""

    async def collect(self) -> Sequence[Item]: ...
    async def close(self) -> None: ...


class Sink(Protocol):
    """Writes batches and nothing else; retry, order and cursors belong to the forwarder."""

    async def write(self, batch: Sequence[Item | Finding]) -> None: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Notice:
    """An alert to be told of. ``memory`` is what the channel returned when it last told of it, empty for never."""

    alert: Alert
    memory: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """What became of notices. ``memories`` has one entry for each that was delivered, by the alert's key; the others
    are tried again, not before ``retry_after_s`` where the receiver asked for that. ``problem`` says why, without
    secrets; ``hopeless`` that a person has to act first (wrong token, wrong address)."""

    memories: Mapping[tuple[str, Labels], str]
    problem: str = ""
    retry_after_s: float | None = None
    hopeless: bool = False


class Notifier(Protocol):
    """One channel of one file of soakd/notifiers: ``KIND``, ``Config`` and ``build(config, clock)``, which returns one
    notifier for each address. It raises nothing for a receiver that fails: the queue that calls it retries.

    ``resend_s`` is how often a firing alert is told again (None: only when it changes); ``pause_s`` the least time
    between two calls; ``heartbeat`` whether the alert that always fires is wanted.
    """

    name: str
    resend_s: float | None
    pause_s: float
    heartbeat: bool

    async def notify(self, notices: Sequence[Notice]) -> Told: ...
    async def close(self) -> None: ...


class Rule(Protocol[S]):
    """State in, state out, in time proportional to the batch; no I/O, no clock. A state given to ``step`` is used up:
    only the one that it returns goes on. What it returns with it are the alerts that changed."""

    def step(self, state: S, batch: Sequence[Item], now_ns: int) -> tuple[S, Sequence[Alert]]: ...
