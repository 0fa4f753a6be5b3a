"""Compares runs (and published baselines) measure by measure, on intervals rather than on points. Pure.

Two intervals that do not overlap are a difference. Overlap alone is not equality: a row is ``same`` only when the
difference, at its largest within both intervals, stays under the margin; otherwise it is ``unknown``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import orjson

from soakd.errors import SoakdError
from soakd.report.figures import Measure
from soakd.report.measures import measures_of
from soakd.report.model import Report
from soakd.report.wording import say_duration

MARGIN = 0.05
"""Of the first run's figure: what is called the same may differ by this much."""
MAX_SUBJECTS = 8
NOT_APPLICABLE = "not applicable"
Way = Literal["better", "worse", "same", "unknown"]


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that must be alike for a comparison to be fair, as text; ``""`` is unknown.

    ``decisive`` conditions make a comparison void when they differ or are unknown; the others are only shown.
    """

    name: str
    value: str
    decisive: bool = True


@dataclass(frozen=True, slots=True)
class Subject:
    """One side: a run or a published baseline."""

    name: str
    kind: Literal["run", "baseline"]
    conditions: tuple[Condition, ...]
    measures: tuple[Measure, ...]
    duration_s: float | None = None
    outcome: str = ""
    simulated: bool = False
    source: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """A condition that is not alike on all sides, in the order of the sides."""

    what: str
    values: tuple[str, ...]
    decisive: bool
    why: str


@dataclass(frozen=True, slots=True)
class Row:
    """One measure. ``verdict`` is the last side against the first; ``verdicts`` each side after the first."""

    measure: str
    unit: str
    values: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    verdict: Way
    why: str
    better: str
    verdicts: tuple[Way, ...]


@dataclass(frozen=True, slots=True)
class Side:
    name: str
    kind: str
    outcome: str
    simulated: bool
    source: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The contract of ``soakd compare --json`` plus ``runs``: what was compared."""

    comparable: bool
    differences: tuple[Difference, ...]
    rows: tuple[Row, ...]
    runs: tuple[Side, ...]


def subject_of(report: Report) -> Subject:
    """A run as one side; its measures are those stored in the report; what it lacks has no interval."""
    load = report.load
    cards = sorted(
        f"{g.name}{f' {g.memory_total_bytes / 2**30:.0f} GiB' if g.memory_total_bytes else ''}" for g in report.cards
    )
    hardware = ", ".join(f"{cards.count(name)} x {name}" for name in dict.fromkeys(cards))
    host = f"{report.host.cpu}, {report.host.cores} cores" if report.host and report.host.cpu else ""
    asked = load.rate_asked_per_s if load.rate_asked_per_s is not None else load.concurrency_asked
    unit = "requests/s" if load.rate_asked_per_s is not None else "concurrent"
    bands = report.prompt_mix.bands if report.prompt_mix else ()
    mix = ", ".join(
        f"{b.share_sent:.0%} {b.from_tokens}-{b.to_tokens or ''}" for b in bands if b.share_sent is not None
    )
    cut = bool(report.prompt_mix and report.prompt_mix.cut)
    if cut and not mix and report.prompt_mix:
        mix = report.prompt_mix.why
    conditions = (
        Condition("profile", report.profile),
        Condition("load", f"{load.mode} {asked:g} {unit}" if load.mode and asked is not None else ""),
        Condition("model", report.target.model),
        Condition(
            "server",
            " ".join(x for x in (report.target.server or report.target.kind, report.target.version) if x),
            False,
        ),
        Condition("hardware", hardware or (f"no GPU; {host}" if host else "")),
        Condition("soakd version", _minor(report.versions.get("soakd", ""))),
        Condition("kind of run", "simulated" if report.simulated else "real"),
        Condition("scenario", report.scenario or "none", False),
        Condition("prompt mix sent", mix or "as the profile says", cut),
        Condition("interrupted", "yes" if report.interrupted else "no", False),
    )
    stored = {(m.name, m.unit): m for m in measures_of(report, {})} | {(m.name, m.unit): m for m in report.measures}
    measures = tuple(stored.values())
    return Subject(
        report.run_id, "run", conditions, measures, report.duration_s, report.outcome.value, report.simulated
    )


def compare(subjects: Sequence[Subject]) -> Comparison:
    """Two to eight sides; each is held against the first. Raises SoakdError for another number."""
    if not 2 <= len(subjects) <= MAX_SUBJECTS:
        raise SoakdError(f"{len(subjects)} runs to compare", hint=f"give two to {MAX_SUBJECTS}")
    differences = (*_conditions(subjects), *_durations(subjects))
    measured = [m for s in subjects for m in s.measures if m.value is not None]
    names = dict.fromkeys((m.name, m.unit, tuple(m.labels.items())) for m in measured)
    rows = tuple(_row(key, [_find(s, key) for s in subjects]) for key in names)
    sides = tuple(Side(s.name, s.kind, s.outcome, s.simulated, s.source) for s in subjects)
    return Comparison(not any(d.decisive for d in differences), differences, rows, sides)


def to_json_bytes(comparison: Comparison) -> bytes:
    """The JSON of ``soakd compare``; unknown is null."""
    return orjson.dumps(comparison, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def judge(first: Measure, other: Measure) -> tuple[Way, str]:
    """``other`` against ``first``, and why. Pure; never decides on point values."""
    bounds = (first.low, first.high, other.low, other.high)
    if first.value is None or other.value is None:
        return "unknown", "not measured on both sides"
    if any(b is None or not math.isfinite(b) for b in bounds):
        return "unknown", "no interval on one side, so chance can't be told from a difference"
    low1, high1, low2, high2 = (float(b or 0.0) for b in bounds)
    if low2 > high1 or high2 < low1:
        if first.better == "neither":
            return "unknown", "they differ, and neither way is better in itself"
        lower = high2 < low1
        return ("better" if lower == (first.better == "lower") else "worse"), "the intervals do not overlap"
    largest = max(abs(high2 - low1), abs(low2 - high1))
    if largest <= MARGIN * abs(first.value) or largest == 0:
        return "same", f"within {MARGIN:.0%} of each other, intervals included"
    return "unknown", "the intervals overlap and are too wide to call it the same"


def _row(key: tuple[str, str, tuple[tuple[str, str], ...]], found: Sequence[Measure | None]) -> Row:
    name, unit, labels = key
    measures = [m or Measure(name, unit, None) for m in found]
    judged = [judge(measures[0], m) for m in measures[1:]]
    title = name + (f" ({', '.join(v for _, v in labels)})" if labels else "")
    better = next((m.better for m in found if m), "neither")
    return Row(
        title,
        unit,
        tuple(m.value for m in measures),
        tuple(m.low for m in measures),
        tuple(m.high for m in measures),
        *judged[-1],
        better,
        tuple(way for way, _ in judged),
    )


def _find(subject: Subject, key: tuple[str, str, tuple[tuple[str, str], ...]]) -> Measure | None:
    return next((m for m in subject.measures if (m.name, m.unit, tuple(m.labels.items())) == key), None)


def _conditions(subjects: Sequence[Subject]) -> tuple[Difference, ...]:
    names = dict.fromkeys(c.name for s in subjects for c in s.conditions)
    return tuple(d for d in (_difference(name, subjects) for name in names) if d)


def _difference(name: str, subjects: Sequence[Subject]) -> Difference | None:
    held = [next((c for c in s.conditions if c.name == name), Condition(name, "", False)) for s in subjects]
    values = tuple(c.value for c in held)
    judged = {v for v in values if v != NOT_APPLICABLE}
    if len(judged) <= 1 and "" not in judged:
        return None
    decisive = any(c.decisive for c in held)
    if len(judged - {""}) > 1:
        why = (
            "differs, so the figures answer different questions" if decisive else "differs; it may be what is compared"
        )
        return Difference(name, tuple(v or "unknown" for v in values), decisive, why)
    why = "not known on every side, so it can't be said to be alike"
    return Difference(name, tuple(v or "unknown" for v in values), decisive, why)


def _durations(subjects: Sequence[Subject]) -> tuple[Difference, ...]:
    known = [s.duration_s for s in subjects if s.duration_s]
    shown = tuple(say_duration(s.duration_s) for s in subjects)
    if len(known) < len(subjects):
        return (Difference("duration", shown, True, "not known on every side"),)
    ratio = max(known) / min(known)
    if ratio >= 2:
        return (
            Difference("duration", shown, True, "the longer run is at least twice the shorter: slow faults show later"),
        )
    if ratio > 1.1:
        return (Difference("duration", shown, False, "differs by more than a tenth"),)
    return ()


def _minor(version: str) -> str:
    """Figures may change between minor versions, not between patches."""
    return ".".join(version.split(".")[:2])
