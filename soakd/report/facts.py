"""The facts around the figures: target, host, GPUs, stages, coverage, agreement, self-check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from soakd.model import State, TargetInfo


@dataclass(frozen=True, slots=True)
class Target:
    """The server under test and how its process was found (``picked_by``)."""

    url: str
    kind: str
    model: str
    server: str = ""
    version: str = ""
    local: bool = True
    pid: int | None = None
    process: str = ""
    """The process's command, with secrets taken out."""
    picked_by: str = ""
    context_tokens: int | None = None
    slots: int | None = None
    flags: tuple[str, ...] = ()
    replicas: tuple[str, ...] = ()

    @classmethod
    def of(cls, info: TargetInfo, *, version: str = "", process: str = "") -> Target:
        return cls(info.url, info.kind, info.model, info.server, version, info.local, info.pid, process,
                   info.picked_by, info.context_tokens, info.slots, info.flags)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Host:
    """The machine that soakd ran on; ``boot_id_end`` differs from the report's ``boot_id`` after a reboot."""

    name: str
    os: str = ""
    kernel: str = ""
    cpu: str = ""
    cores: int | None = None
    memory_bytes: int | None = None
    virtual: str = ""
    boot_id_end: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """Lowest, mean and highest reading over the run; None where nothing was read."""

    low: float | None = None
    mean: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Thermal:
    """How a card's temperature answered to its power, in the measured part. None is unknown; ``why`` explains.

    ``resistance_celsius_per_watt`` has a 99 % interval, the drift (a rise that power does not explain) and the distance
    from the median of the other cards one of 98 %. ``oscillation_celsius`` is half of what 98 % of the readings span.
    """

    resistance_celsius_per_watt: float | None = None
    resistance_low: float | None = None
    resistance_high: float | None = None
    drift_celsius_per_hour: float | None = None
    drift_low: float | None = None
    drift_high: float | None = None
    smallest_detectable_drift: float | None = None
    oscillation_celsius: float | None = None
    oscillation_period_s: float | None = None
    above_siblings_celsius: float | None = None
    above_siblings_low: float | None = None
    above_siblings_high: float | None = None
    siblings: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A card by its identity, whether the target used it, and what was seen of it.

    Increases are over the run, summed over driver reloads. ``state`` is the last known state of the card.
    """

    uuid: str
    bdf: str
    serial: str
    name: str
    index: int | None = None
    mig: str = ""
    state: State = State.OK
    used_by_target: bool | None = None
    found_by: str = ""
    other_processes: int | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: Span = field(default_factory=Span)
    temperature_celsius: Span = field(default_factory=Span)
    memory_temperature_celsius: Span = field(default_factory=Span)
    power_watts: Span = field(default_factory=Span)
    utilisation_ratio: Span = field(default_factory=Span)
    throttled_s: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    ecc_corrected_increase: int | None = None
    ecc_uncorrected_increase: int | None = None
    aer_correctable_increase: int | None = None
    aer_fatal_increase: int | None = None
    xids: tuple[int, ...] = ()
    link: str = ""
    """Under load, as ``gen4 x16``; an idle link trains down and says nothing."""
    driver: str = ""
    thermal: Thermal | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the run, in seconds since its start; only ``measured`` stages are in the figures of the load."""

    name: str
    start_s: float
    duration_s: float
    measured: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class PromptBand:
    """Prompts of ``from_tokens`` to ``to_tokens`` (None: no upper end): the share asked and the share sent."""

    from_tokens: int
    to_tokens: int | None
    share_asked: float | None
    share_sent: float | None


@dataclass(frozen=True, slots=True)
class PromptMix:
    """``cut`` is true when the server's context forced shorter prompts than the profile asked; ``why`` says so."""

    bands: tuple[PromptBand, ...]
    cut: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class AgreementCheck:
    """One thing that client and server both count. ``outcome`` is unknown when the server does not tell."""

    what: str
    client: float | None
    server: float | None
    unit: str
    outcome: Literal["agree", "disagree", "unknown"]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Canary:
    """Known prompts whose answers must not change. ``mode`` is ``garbage_only`` where batching varies the answers."""

    mode: Literal["exact", "garbage_only", "off"]
    prompts: int
    checks: int
    changed: int
    garbled: int = 0
    failed: int = 0
    """Questions that got no whole answer, which are not among the checks."""
    first_changed_at: str | None = None
    first_change: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """Was the load generator itself the bottleneck? ``bottleneck`` None: could not be told."""

    bottleneck: bool | None
    why: str = ""
    loop_lag_p99_s: float | None = None
    send_lag_p99_s: float | None = None
    cpu_share: float | None = None
    coalesced_ratio: float | None = None
    telemetry_cpu_share: float | None = None
    rss_start_bytes: int | None = None
    rss_end_bytes: int | None = None
    workers: int | None = None
    """Load processes; their largest peak of memory is ``worker_rss_peak_bytes``."""
    worker_rss_peak_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SafetyStop:
    """soakd ended the run by itself."""

    at: str
    t_s: float | None
    rule: str
    why: str


@dataclass(frozen=True, slots=True)
class WorkRate:
    """Growth per ``amount`` of ``per`` (1 ``hour``, 1,000 ``request``, 1,000,000 ``token``) with a 98 % interval.

    ``share`` (0 to 1) is how much of the evidence is for this unit; near-equal shares: too steady a load to tell.
    """

    per: str
    amount: float
    slope: float | None
    low: float | None
    high: float | None
    share: float | None


@dataclass(frozen=True, slots=True)
class SeriesVerdict:
    """A series judged for growth, in the words of ``soakd analyze --json``. Slopes are in ``unit`` per ``per``."""

    metric: str
    labels: Mapping[str, str]
    unit: str
    verdict: Literal["leak", "no_leak", "inconclusive"]
    shape: str
    slope: float | None
    slope_low: float | None
    slope_high: float | None
    per: str = "hour"
    percent_per_hour: float | None = None
    smallest_detectable: float | None = None
    why: str = ""
    points: int = 0
    used_points: int = 0
    exhausted_in_s: float | None = None
    """Time until the memory is full at the slope found."""
    headroom: float | None = None
    """What is left of what fills up, in ``unit``."""
    cap_reached_in_s: float | None = None
    """Time until growth inside a declared cap reaches it."""
    slope_now: float | None = None
    """Over the last half of what was judged."""
    by_work: tuple[WorkRate, ...] = ()
    """The unit that explains the growth best comes first."""
    detected_at_s: float | None = None
    """When a look during the run had confirmed a leak; None: none had."""


@dataclass(frozen=True, slots=True)
class ServerRatio:
    """A ratio of two of the server's counters over the measured part, with its first and last quarter.

    ``name`` is ``speculative_acceptance`` (accepted over drafted tokens) or ``prefix_cache_hits`` (tokens found over
    tokens looked up). Intervals are of 98 %; ``change`` is late less early.
    """

    name: str
    labels: Mapping[str, str]
    ratio: float | None
    low: float | None = None
    high: float | None = None
    early: float | None = None
    late: float | None = None
    change: float | None = None
    change_low: float | None = None
    change_high: float | None = None
    drift: str = "unknown"
    """``fell``, ``rose``, ``steady`` or ``unknown``."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class CollectorCoverage:
    """``coverage`` is readings had over readings due (0 to 1)."""

    name: str
    status: str
    coverage: float | None
    expected: int | None = None
    got: int | None = None
    took_p95_s: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class ClockStep:
    """The wall clock jumped by ``step_s``; no duration of the report is changed by it."""

    at: str
    t_s: float | None
    step_s: float


@dataclass(frozen=True, slots=True)
class LogTail:
    """The last lines of the server's log at a failure."""

    at: str
    source: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Journal:
    """What was kept and what was dropped on the way to the journal, by reason."""

    samples: int | None = None
    events: int | None = None
    size_bytes: int | None = None
    dropped: Mapping[str, int] = field(default_factory=dict)
    gaps_s: float | None = None
    """Seconds of the run without any row (the owner was killed, the disk was full)."""
