"""What a load worker is told: target, stages, prompts, limits. Everything here travels to it as one JSON document."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pydantic import TypeAdapter

from soakd.clock import FastClock
from soakd.load.arrivals import Arrivals
from soakd.load.canary import CanarySpec
from soakd.load.prompts import PromptSpec

TransportKind = Literal["auto", "raw", "aiohttp"]


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """The server under test. ``urls`` are base URLs without the adapter's path; several are replicas of one target,
    used in turn. ``extra_body`` is a JSON object put into every request. ``path`` overrides the adapter's own.

    The key and the headers are never shown: they are left out of ``repr`` and must not be logged.
    """

    urls: tuple[str, ...]
    adapter: str = "openai_chat"
    model: str = ""
    api_key: str = field(default="", repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    extra_body: str = ""
    path: str = ""
    ca_file: str | None = None
    verify: bool = True
    unix_socket: str | None = None
    proxy: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the run. ``duration_s`` is clock time (a rehearsal's clock runs faster); rates are of real seconds.

    What is not ``measured`` (warm-up, idle) is counted apart and stays out of every figure that is judged.
    """

    name: str
    arrivals: Arrivals
    duration_s: float
    measured: bool = True


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Real seconds: for the connection, from sending to the first token, between two reads of a stream, in all."""

    connect_s: float = 10.0
    first_token_s: float = 120.0
    stall_s: float = 60.0
    total_s: float = 1800.0


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """One load. ``workers`` 0 means one for every core but one, as far as the load needs them.

    ``max_in_flight`` caps the requests in flight over all workers: what is due beyond it is dropped and counted.
    Canaries are asked in every stage that has load. ``clock`` is the rehearsal's clock (None for real time).
    ``window_s`` is clock time, stretched to at least one real second. ``drain_s`` is how long, in real seconds,
    requests in flight may take to end after the last stage.
    """

    target: TargetSpec
    stages: tuple[Stage, ...]
    prompts: PromptSpec
    canary: CanarySpec | None = None
    max_in_flight: int = 4096
    timeouts: Timeouts = Timeouts()
    seed: int = 0
    transport: TransportKind = "auto"
    workers: int = 0
    clock: FastClock | None = None
    window_s: float = 10.0
    drain_s: float = 10.0
    records: bool = True

    @property
    def duration_s(self) -> float:
        """Clock time of all stages."""
        return sum(stage.duration_s for stage in self.stages)


@dataclass(frozen=True, slots=True)
class Job:
    """What one worker gets: the load and its share of it."""

    spec: LoadSpec
    shard: int
    shards: int


_JOB: TypeAdapter[Job] = TypeAdapter(Job)
_SPEC: TypeAdapter[LoadSpec] = TypeAdapter(LoadSpec)


def job_to_json(job: Job) -> bytes:
    """Holds the key in clear: for the worker's stdin alone."""
    return _JOB.dump_json(job)


def job_from_json(raw: bytes) -> Job:
    """Raises pydantic.ValidationError."""
    return _JOB.validate_json(raw)


def spec_to_json(spec: LoadSpec) -> bytes:
    """Holds the key in clear."""
    return _SPEC.dump_json(spec)


def spec_from_json(raw: bytes) -> LoadSpec:
    """Raises pydantic.ValidationError."""
    return _SPEC.validate_json(raw)
