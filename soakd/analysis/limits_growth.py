"""Limits on growth and drift: every series that could leak is judged as one family, so that one false alarm in fifty
series stays as rare as one false alarm in one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from soakd.analysis.detections import detections
from soakd.analysis.evidence import RunEvidence, Track, without_sums
from soakd.analysis.judge import judge_family
from soakd.analysis.limits import COVERAGE_NEEDED, Limit
from soakd.analysis.series import NVML_PAGE_BYTES, Leak, SeriesJudgement, SeriesQuestion, Shape
from soakd.analysis.work import WorkSlope, growth_by_work, work_words
from soakd.model import Finding, LimitResult, Severity
from soakd.quantities import format_duration, format_value


@dataclass(frozen=True, slots=True)
class Watched:
    """A metric that could leak: its quantum, the limit it is judged by, and the metric of what fills up.

    ``limit`` is empty where growth is told and no limit is on it. ``where`` are label values that a series must have.
    """

    metric: str
    limit: str
    page: float = 0.0
    total: str = ""
    cap: str = ""
    where: tuple[tuple[str, str], ...] = ()


_WHOLE_TREE = (("role", "total"),)
_EVERY_POOL = (("pool", "all"),)
_SMALL_POOL = (("pool", "small"),)
"""Blocks under 1 MiB: the large pool is busy with caches and activations, the small one shows a leak in seconds."""
WATCHED: tuple[Watched, ...] = (
    Watched("gpu_memory_used_bytes", "vram_leak_max", NVML_PAGE_BYTES, "gpu_memory_total_bytes", "vram"),
    Watched("gpu_process_memory_bytes", "vram_leak_max", NVML_PAGE_BYTES, "gpu_memory_total_bytes", "vram"),
    Watched("gpu_memory_outside_allocator_bytes", "vram_leak_max", NVML_PAGE_BYTES, "gpu_memory_total_bytes"),
    Watched("allocator_allocated_bytes", "vram_leak_max", 512.0, "gpu_memory_total_bytes", "vram", _EVERY_POOL),
    Watched("allocator_allocated_bytes", "vram_leak_max", 512.0, "gpu_memory_total_bytes", "vram", _SMALL_POOL),
    Watched(
        "server_process_anon_swap_bytes", "host_memory_leak_max", 4096.0, "host_memory_total_bytes", "host_memory",
        _WHOLE_TREE,
    ),
    Watched(
        "server_process_open_files", "open_files_leak_max", 1.0, "server_process_open_files_limit", "", _WHOLE_TREE
    ),
    # pages of mapped files are in it, which the kernel takes back: growth is told, the private memory is judged
    Watched("server_process_pss_bytes", "", 4096.0, "host_memory_total_bytes", "host_memory", _WHOLE_TREE),
    Watched("server_process_threads", "threads_leak_max", 1.0, "", "", _WHOLE_TREE),
    Watched("host_shm_used_bytes", "shm_leak_max", 4096.0, "host_shm_total_bytes"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Growth:
    """One series judged: what was watched, the answer, and its growth per unit of work (best explanation first)."""

    watched: Watched
    track: Track
    judgement: SeriesJudgement
    work: tuple[WorkSlope, ...] = ()
    detected_at_s: float | None = None
    """When a look during the run had found it, in seconds since the run began."""

    @property
    def projection(self) -> str:
        """Of a leak: its rate by work, and when what it fills is full. Empty where there is nothing to say."""
        found, unit = self.judgement, self.track.unit
        parts = [work_words(self.work, unit)]
        if found.headroom is not None and found.time_to_exhaustion is not None and found.per == "hour":
            left = format_value(max(found.headroom, 0.0), unit)
            parts.append(f"{left} of headroom last {format_duration(max(found.time_to_exhaustion, 0.0) * 3600)}")
        if self.detected_at_s is not None:
            parts.append(f"found during the run, {format_duration(self.detected_at_s)} after it began")
        return "; ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Caps:
    """Declared limits of caches, in bytes: growth within them is by design."""

    vram: float | None = None
    host_memory: float | None = None

    def of(self, name: str) -> float | None:
        return {"vram": self.vram, "host_memory": self.host_memory}.get(name)


def judge_growth(limits: Mapping[str, Limit], evidence: RunEvidence, caps: Caps) -> tuple[Growth, ...]:
    """Judge every watched series there is, as one family."""
    pairs = [(w, t) for w in WATCHED for t in without_sums(evidence.track(w.metric, **dict(w.where))) if len(t.y)]
    restarts = tuple((e.at_ns - evidence.end_ns) / 1e9 + evidence.duration_s for e in evidence.event("server.restart"))
    questions = [_question(w, t, limits.get(w.limit), evidence, caps, restarts) for w, t in pairs]
    judgements = judge_family(questions)
    during = detections(evidence)
    return tuple(
        Growth(w, t, j, _by_work(t, j, w.page, evidence), during.get((t.metric, t.labels)))
        for (w, t), j in zip(pairs, judgements, strict=True)
    )


_SEVERAL_SLOPES = (Shape.SAWTOOTH, Shape.RESTART, Shape.UNKNOWN)


def _by_work(track: Track, found: SeriesJudgement, page: float, evidence: RunEvidence) -> tuple[WorkSlope, ...]:
    """Over the part that was judged. A sawtooth's troughs and the lifetimes of a process have no one line."""
    start, end = found.evidence.judged_from, found.evidence.judged_to
    if not evidence.work or start is None or end is None or found.shape in _SEVERAL_SLOPES:
        return ()
    inside = (track.x >= start) & (track.x <= end)
    x = track.x[inside]
    counts = {per: np.interp(x, done.x, done.y) for per, done in evidence.work if len(done.y) > 1}
    return growth_by_work(x, track.y[inside], counts, page) if len(x) else ()


def _question(
    watched: Watched, track: Track, limit: Limit | None, evidence: RunEvidence, caps: Caps,
    restarts: tuple[float, ...],
) -> SeriesQuestion:  # fmt: skip
    total = _total(watched, track, evidence)
    return SeriesQuestion(
        track.x, track.y, page=watched.page, total=total, cap=caps.of(watched.cap),
        limit=absolute_limit(limit, total) if limit else None,
        starts=restarts if is_of_process(watched) else (), name=watched.metric, unit=track.unit,
    )  # fmt: skip


def is_of_process(watched: Watched) -> bool:
    """Whether the series begins anew with the server's process."""
    return watched.metric.startswith(("server_process", "gpu_process", "allocator"))


def _total(watched: Watched, track: Track, evidence: RunEvidence) -> float | None:
    card = dict(track.labels).get("gpu")
    for total in evidence.track(watched.total) if watched.total else ():
        if len(total.y) and dict(total.labels).get("gpu") == card:
            return float(np.max(total.y))
    return None


def absolute_limit(limit: Limit, total: float | None) -> float | None:
    """The limit in units of the series per hour; a percentage is of the card and unknown without its size."""
    if limit.unit != "%/h":
        return limit.value
    return limit.value / 100 * total if total else None


def growth_results(
    limits: Mapping[str, Limit], grown: Sequence[Growth], evidence: RunEvidence
) -> tuple[LimitResult, ...]:
    """One result for each series of each growth limit that is set."""
    results: list[LimitResult] = []
    for name in dict.fromkeys(w.limit for w in WATCHED if w.limit):
        limit = limits.get(name)
        if limit is None:
            continue
        mine = [g for g in grown if g.watched.limit == name]
        if not mine:
            note = evidence.gpu_note if name == "vram_leak_max" else ""
            results.append(limit.absent(note or "nothing to judge was measured"))
        results.extend(_growth_result(limit, g, evidence) for g in mine)
    return tuple(results)


def _growth_result(limit: Limit, grown: Growth, evidence: RunEvidence) -> LimitResult:
    found, track = grown.judgement, grown.track
    named = (("series", track.metric), *track.labels)
    total = _total(grown.watched, track, evidence)
    allowed = absolute_limit(limit, total)
    scale = 100 / total if limit.unit == "%/h" and total else 1.0
    value = found.slope * scale if found.slope is not None else None
    why = f"{track.metric}: {found.why}"
    coverage = min(1.0, track.coverage)
    needs = found.needed_span if found.per == "hour" else None
    if allowed is None:
        return limit.absent(f"{track.metric}: the size of the card is unknown, so a share of it is too", labels=named)
    if found.verdict is Leak.LEAK and value is not None:
        if found.slope_low is not None and found.slope_low > allowed:
            more = grown.projection
            return limit.judged(False, value, f"{why}; {more}" if more else why, coverage, named)
        if found.slope_high is not None and found.slope_high <= allowed:
            return limit.judged(True, value, f"{why}; within the limit", coverage, named)
        return limit.absent(f"{why}; too near the limit to tell", coverage, named, value, needs)
    if found.time_to_cap is not None and found.verdict is Leak.INCONCLUSIVE:
        return limit.missing(why, coverage, named)
    if coverage < COVERAGE_NEEDED:
        return limit.missing(f"{track.metric} was known for {coverage:.0%} of the run", coverage, named)
    if found.verdict is Leak.NO_LEAK:
        bound = found.slope_high if found.slope_high is not None else found.smallest_detectable
        if bound is None and found.shape is not Shape.RESTART:
            return limit.absent(
                f"{why}; too few to tell how small a growth they would have shown", coverage, named, value
            )
        if bound is None or min(bound, found.smallest_detectable or bound) <= allowed:
            return limit.judged(True, value or 0.0, why, coverage, named)
    return limit.absent(why, coverage, named, value, needs)


def not_upheld(grown: Sequence[Growth], at_ns: int) -> tuple[Finding, ...]:
    """What was said to leak during the run and is no leak over the whole of it."""
    return tuple(
        Finding(
            "growth.online", Severity.INFO, f"{g.track.metric}: a leak said during the run is not upheld",
            f"{format_duration(g.detected_at_s)} into the run it grew; over the whole run: {g.judgement.why}", at_ns,
            g.track.labels, g.track.metric, g.judgement.slope, f"{g.track.unit}/h",
        )
        for g in grown
        if g.detected_at_s is not None and g.judgement.verdict is not Leak.LEAK
    )  # fmt: skip


def unlimited_growth(limits: Mapping[str, Limit], grown: Sequence[Growth], at_ns: int) -> tuple[Finding, ...]:
    """Growth that no limit is on; it changes no outcome."""
    return tuple(
        Finding(
            "growth", Severity.WARNING, f"{g.track.metric} grows", f"{g.judgement.why}; no limit is on it", at_ns,
            g.track.labels, g.track.metric, g.judgement.slope, f"{g.track.unit}/h",
        )
        for g in grown
        if g.watched.limit not in limits and g.judgement.verdict is Leak.LEAK
    )  # fmt: skip
