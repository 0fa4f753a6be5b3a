"""What a run's report says, as types that serialise exactly to the `soakd.report/1` JSON contract.

Every figure that may be missing is ``float | None``: None is *unknown*, is written as null and shown as the word, and
is never 0. Times of day (``at``, ``started_at``) are ISO 8601 in UTC; ``*_s`` are seconds and ``t_s`` counts from the
start of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Literal

import orjson
from pydantic import BeforeValidator, JsonValue, TypeAdapter, ValidationError

from soakd.errors import SoakdError
from soakd.model import Event, Finding, LimitResult, Outcome, Severity
from soakd.report.facts import (
    AgreementCheck,
    Canary,
    ClockStep,
    CollectorCoverage,
    Gpu,
    Host,
    Journal,
    LogTail,
    PromptMix,
    SafetyStop,
    SelfCheck,
    SeriesVerdict,
    ServerRatio,
    Stage,
    Target,
)
from soakd.report.figures import Load, Measure

SCHEMA = "soakd.report/1"


def _outcome(value: object) -> object:
    """pydantic does not turn text into an enum inside a Literal."""
    return Outcome(value) if isinstance(value, str) and value in {o.value for o in Outcome} else value


RunOutcome = Annotated[Literal[Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE], BeforeValidator(_outcome)]
"""A run is never NOT_JUDGED; only a limit is."""


def iso(at_ns: int) -> str:
    """``2026-12-01T03:56:09.123Z``: UTC to the millisecond."""
    return datetime.fromtimestamp(at_ns / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class LimitLine:
    """One limit, judged. ``coverage`` is 0 to 1. ``needs_s`` is the run length that could judge a limit that this
    run was too short for. ``user_set`` tells a limit that the user asked for from a default one."""

    name: str
    outcome: Outcome
    value: float | None
    limit: float | None
    unit: str
    coverage: float | None
    why: str
    labels: Mapping[str, str] = field(default_factory=dict)
    user_set: bool = False
    needs_s: float | None = None

    @classmethod
    def of(cls, result: LimitResult, *, user_set: bool = False, needs_s: float | None = None) -> LimitLine:
        return cls(result.name, result.outcome, result.value, result.limit, result.unit, result.coverage, result.why,
                   dict(result.labels), user_set, needs_s)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FindingLine:
    """One finding. ``t_s`` may be negative (a state that was there before the run)."""

    source: str
    severity: Severity
    title: str
    detail: str
    at: str
    t_s: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    metric: str = ""
    value: float | None = None
    unit: str = ""

    @classmethod
    def of(cls, finding: Finding, start_ns: int) -> FindingLine:
        return cls(finding.source, finding.severity, finding.title, finding.detail, iso(finding.at_ns),
                   _since(finding.at_ns, start_ns), dict(finding.labels), finding.metric, finding.value,
                   finding.unit)  # fmt: skip


@dataclass(frozen=True, slots=True)
class EventLine:
    """Something that happened, on the one time axis."""

    at: str
    kind: str
    what: str
    severity: Severity = Severity.INFO
    t_s: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    attrs: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, event: Event, start_ns: int) -> EventLine:
        return cls(iso(event.at_ns), event.kind, event.what, event.severity, _since(event.at_ns, start_ns),
                   dict(event.labels), dict(event.attrs))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outage:
    """The target did not serve. ``first_success`` and ``recovered`` (back at full health) are None when it never was.

    ``*_s`` are seconds since the run began, from the monotonic clock.
    """

    start: str
    first_success: str | None
    recovered: str | None
    requests_lost: int | None
    start_s: float | None = None
    first_success_s: float | None = None
    recovered_s: float | None = None
    planned: bool = False
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """One run. The first thirteen fields and their inner names are the fixed contract; the rest are additions."""

    schema: str
    run_id: str
    outcome: RunOutcome
    simulated: bool
    started_at: str
    duration_s: float | None
    target: Target
    load: Load
    limits: tuple[LimitLine, ...]
    findings: tuple[FindingLine, ...]
    events: tuple[EventLine, ...]
    outages: tuple[Outage, ...]
    why: str
    """The verdict's reason in one sentence."""
    profile: str = ""
    scenario: str = ""
    """The rehearsal's scenario; empty for a real run."""
    speed: float = 1.0
    wanted_duration_s: float | None = None
    interrupted: bool = False
    interrupted_by: str = ""
    """``SIGTERM``, ``Ctrl-C``, ``killed``, ``journal full``: what ended the run early."""
    safety_stop: SafetyStop | None = None
    coverage: float | None = None
    boot_id: str = ""
    host: Host | None = None
    gpus: tuple[Gpu, ...] = ()
    gpu_note: str = ""
    """Why there are no GPUs: ``no GPU found``, ``the target is on another host``."""
    stages: tuple[Stage, ...] = ()
    prompt_mix: PromptMix | None = None
    agreement: tuple[AgreementCheck, ...] = ()
    canary: Canary | None = None
    self_check: SelfCheck | None = None
    series: tuple[SeriesVerdict, ...] = ()
    server_ratios: tuple[ServerRatio, ...] = ()
    measures: tuple[Measure, ...] = ()
    collectors: tuple[CollectorCoverage, ...] = ()
    clock_steps: tuple[ClockStep, ...] = ()
    log_tails: tuple[LogTail, ...] = ()
    journal: Journal | None = None
    events_left_out: int = 0
    findings_left_out: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, JsonValue] = field(default_factory=dict)
    """The configuration that ran, with secrets already taken out by who filled it."""

    @property
    def cards(self) -> tuple[Gpu, ...]:
        """Whole cards: a MIG instance is part of one, has no temperature of its own and must not count beside it."""
        return tuple(g for g in self.gpus if not g.mig) or self.gpus


def _since(at_ns: int, start_ns: int) -> float:
    return round((at_ns - start_ns) / 1e9, 3)


def to_json_bytes(report: Report) -> bytes:
    """The report as JSON: fields in their order, mappings by key, a figure that is not finite as null (unknown)."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_SORT_KEYS
    try:
        return orjson.dumps(report, option=options)
    except TypeError:  # bytes of a command line or a log that are not UTF-8, or a count beyond 64 bits
        return orjson.dumps(_plain(asdict(report)), option=options & ~orjson.OPT_SORT_KEYS)


def _plain(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(child) for child in value]
    if isinstance(value, int) and value.bit_length() > 63:
        return float(value)
    return value


def from_json(data: bytes | str) -> Report:
    """Read a report back; keys that a newer soakd added are ignored. Raises SoakdError, never anything else."""
    try:
        parsed = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise SoakdError(f"not a soakd report: {error}", hint="give a report.json that soakd wrote") from None
    found = parsed.get("schema") if isinstance(parsed, dict) else None
    if found != SCHEMA:
        raise SoakdError(f"not a soakd report: its schema is {found!r}", hint=f"this soakd reads {SCHEMA}")
    try:
        return adapter().validate_python(parsed)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise SoakdError(f"damaged soakd report: {place}: {first['msg']}", hint="write it again from the run") from None


@cache
def adapter() -> TypeAdapter[Report]:
    """The validator of the contract, built once."""
    return TypeAdapter(Report)


def json_schema() -> dict[str, JsonValue]:
    """The JSON Schema (2020-12) of a report, as shipped in ``schema/report-1.json``."""
    schema: dict[str, JsonValue] = adapter().json_schema(mode="validation")
    head: dict[str, JsonValue] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://soakd.dev/schema/report-1.json",
    }
    return {**head, **schema, "title": SCHEMA}
