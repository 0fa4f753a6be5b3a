"""What is fixed when a run starts. Kept in the journal, so that a run that was killed can still be judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from soakd.analysis.limits import Limit
from soakd.analysis.limits_growth import Caps
from soakd.config import Config, Loaded
from soakd.errors import JournalError
from soakd.journal.reader import JournalReader
from soakd.journal.records import new_run_id
from soakd.load.spec import LoadSpec, Stage
from soakd.model import GpuIdentity, TargetInfo
from soakd.report.facts import Host
from soakd.soak.environment import Environment, boot_id, host_facts
from soakd.soak.limits import limits_of
from soakd.soak.plan import Phases, interval_of, phases
from soakd.soak.prepare import Prepared
from soakd.targets.redaction import redact_command

BLOB = "run.facts"


@dataclass(frozen=True, slots=True)
class StageFact:
    """A stage as planned, seconds of clock time since the run began."""

    name: str
    start_s: float
    duration_s: float
    measured: bool


@dataclass(frozen=True, slots=True)
class RunFacts:
    """``intervals`` are seconds between readings by metric name; ``gpu_note`` says why there is no card to see."""

    run_id: str
    started_ns: int
    profile: str
    simulated: bool
    scenario: str
    speed: float
    boot_id: str
    target: TargetInfo
    server_kind: str
    replicas: tuple[str, ...]
    planned: Phases
    stages: tuple[StageFact, ...]
    arrivals: str
    rate_asked: float | None
    seed: int
    prompt_notes: tuple[str, ...]
    prompt_options: str
    canary_prompts: int
    canary_max_tokens: int
    caps: Caps
    limits: tuple[Limit, ...]
    intervals: Mapping[str, float]
    host: Host
    gpus: tuple[GpuIdentity, ...]
    gpu_note: str
    config: str

    def to_json(self) -> bytes:
        return _ADAPTER.dump_json(self)

    @classmethod
    def of_run(cls, reader: JournalReader, run_id: str) -> RunFacts:
        """Raises JournalError when the journal holds none, or some that this version can't read."""
        blob = next(iter(reader.blobs(BLOB, run_id)), None)
        if blob is None:
            raise JournalError(f"run {run_id} has no facts in the journal", hint="it ended before it began")
        try:
            return _ADAPTER.validate_json(blob.data)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise JournalError(
                f"run {run_id} was written by another version of soakd: {place}: {first['msg']}"
            ) from None


_ADAPTER: TypeAdapter[RunFacts] = TypeAdapter(RunFacts)


def run_facts(
    loaded: Loaded, prepared: Prepared, environment: Environment, spec: LoadSpec, started_ns: int
) -> RunFacts:
    """The facts of a run that starts now."""
    config = loaded.config
    rate = config.load.arrivals.get("rate")
    return RunFacts(
        run_id=new_run_id(started_ns),
        started_ns=started_ns,
        profile=config.load.profile,
        simulated=environment.simulated,
        scenario=environment.scenario,
        speed=environment.clock.speed,
        boot_id=boot_id(environment.roots),
        target=prepared.info,
        server_kind=prepared.server_kind,
        replicas=config.target.replicas,
        planned=phases(loaded),
        stages=_stage_facts(spec.stages),
        arrivals=str(config.load.arrivals.get("kind", "closed")),
        rate_asked=float(rate) if isinstance(rate, int | float) else None,
        seed=config.load.seed,
        prompt_notes=prepared.prompts.notes,
        prompt_options=prepared.prompts.options,
        canary_max_tokens=config.canary.max_tokens,
        canary_prompts=config.canary.prompts if config.canary.enabled else 0,
        caps=prepared.caps,
        limits=limits_of(config.limits),
        intervals={
            m.name: interval_of(e, environment.clock.speed)
            for e in loaded.collectors.values()
            if e.enabled
            for m in e.plugin.metrics
        },
        host=host_facts(),
        gpus=environment.cards,
        gpu_note=environment.gpu_note if prepared.info.local else "the target is on another host",
        config=redacted(config),
    )


def _stage_facts(stages: Sequence[Stage]) -> tuple[StageFact, ...]:
    found, start = [], 0.0
    for stage in stages:
        found.append(StageFact(stage.name, start, stage.duration_s, stage.measured))
        start += stage.duration_s
    return tuple(found)


def redacted(config: Config) -> str:
    """The configuration as JSON, with what may hold a secret left out."""
    drills = tuple(drill.model_copy(update={"command": redact_command(drill.command)}) for drill in config.drill)
    return config.model_copy(update={"drill": drills}).model_dump_json(
        exclude={"target": {"headers", "body"}, "sinks": True, "notifiers": True}
    )
