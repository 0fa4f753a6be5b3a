"""``soakd analyze``: a file and options in, the judgement as JSON or text out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from soakd.analysis.columns import axis_of
from soakd.analysis.ingest import FileSeries, read_series
from soakd.analysis.judge import judge_family
from soakd.analysis.series import Floats, Leak, SeriesJudgement, SeriesQuestion, Shape
from soakd.analysis.work import WorkSlope, growth_by_work
from soakd.errors import ConfigError, Problem
from soakd.quantities import format_bytes, format_duration

MOST_COLUMNS = 64
_EXIT = {Leak.NO_LEAK: 0, Leak.LEAK: 1, Leak.INCONCLUSIVE: 3}
_RANK = {Leak.LEAK: 0, Leak.INCONCLUSIVE: 1, Leak.NO_LEAK: 2}


@dataclass(frozen=True, slots=True)
class AnalyzeOptions:
    """``total``, ``cap`` and ``limit`` (per hour or unit of work) in units of the column (bytes for sizes).

    ``warmup`` is left out at the start (seconds or work; None: chosen).
    """

    column: str | None = None
    total: float | None = None
    cap: float | None = None
    limit: float | None = None
    warmup: float | None = None


@dataclass(frozen=True, slots=True)
class Analysis:
    """``judgement`` is on the column asked for, or on the worst of those judged together; ``exit_code`` is 0 no leak,
    1 leak, 3 inconclusive."""

    series: FileSeries
    judgement: SeriesJudgement
    others: tuple[SeriesJudgement, ...]
    by_work: tuple[WorkSlope, ...] = ()

    @property
    def exit_code(self) -> int:
        return _EXIT[self.judgement.verdict]

    def to_json(self) -> dict[str, object]:
        """The JSON contract of ``soakd analyze --json``."""
        j, e = self.judgement, self.judgement.evidence
        return {
            "verdict": j.verdict.value,
            "shape": j.shape.value,
            "slope": j.slope,
            "slope_low": j.slope_low,
            "slope_high": j.slope_high,
            "per": j.per,
            "percent_per_hour": j.percent_per_hour,
            "smallest_detectable": j.smallest_detectable,
            "why": j.why,
            "points": j.points,
            "used_points": j.used_points,
            "column": self.series.name,
            "unit": j.unit,
            "slope_now": j.slope_now,
            "needed_span": j.needed_span,
            "headroom": j.headroom,
            "time_to_exhaustion": j.time_to_exhaustion,
            "time_to_cap": j.time_to_cap,
            "p_value": e.p_value,
            "jumps": [{"x": jump.x, "size": jump.size} for jump in e.jumps],
            "segments": [{"start": s.start, "end": s.end, "points": s.points, "slope": s.slope} for s in e.segments],
            "warm_up_tau": e.tau,
            "by_work": [
                {"per": w.per, "amount": w.amount, "slope": w.slope, "low": w.low, "high": w.high, "share": w.share}
                for w in self.by_work
            ],
            "notes": list(self.series.notes),
            "others": [
                {"column": o.name, "verdict": o.verdict.value, "shape": o.shape.value, "slope": o.slope, "why": o.why}
                for o in self.others
            ],
        }

    def to_text(self) -> str:
        j = self.judgement
        lines = [f"{self.series.name}: {j.verdict.value.upper().replace('_', ' ')} ({j.shape.value})", f"  {j.why}."]
        if j.slope is not None:
            lines.append(f"  slope {self._rate(j.slope)}, now {self._rate(j.slope_now or 0.0)}")
        if j.percent_per_hour is not None:
            lines.append(f"  {j.percent_per_hour:.3g} % of the total an hour")
        if j.time_to_exhaustion is not None and j.headroom is not None and j.headroom <= 0:
            lines.append("  past the given total already")
        elif j.time_to_exhaustion is not None:
            lines.append(f"  full in {self._span(j.time_to_exhaustion)} at that slope")
        for w in (w for w in self.by_work if w.per != "hour" and w.low > 0):
            lines.append(f"  {self._amount(w.slope)} per {_spoken(w)} ({100 * w.share:.0f} % of the evidence)")
        lines.append(f"  {j.points} readings, {j.used_points} judged")
        lines.extend(f"  note: {note}" for note in self.series.notes)
        lines.extend(f"  {o.name}: {o.verdict.value.replace('_', ' ')} ({o.shape.value}); {o.why}" for o in self.others)
        return "\n".join(lines)

    def _amount(self, value: float) -> str:
        return format_bytes(value) if self.series.unit == "bytes" else f"{value:.4g} {self.series.unit}".strip()

    def _rate(self, slope: float) -> str:
        return f"{self._amount(slope)} per {self.series.per}"

    def _span(self, value: float) -> str:
        return format_duration(value * 3600) if self.series.per == "hour" else f"{value:,.0f} {self.series.per}s"


def _spoken(w: WorkSlope) -> str:
    return w.per if w.amount == 1 else f"{w.amount:,.0f} {w.per}s"


def analyze_file(path: Path, options: AnalyzeOptions) -> Analysis:
    """Judge the column asked for; without one the only column, or every memory column as one family, the worst first.

    Raises ConfigError where the file or the options do not fit.
    """
    found = read_series(path)
    chosen = read_series(path, options.column) if options.column is not None else _to_judge(path, found)
    chosen = tuple(replace(s, y=(options.total or 0.0) - s.y) if s.is_free else s for s in chosen)
    questions = [_question(s, options) for s in chosen]
    judged = judge_family(questions)
    order = sorted(range(len(judged)), key=lambda i: (_RANK[judged[i].verdict], i))
    first = order[0]
    main = chosen[first]
    others = tuple(judged[i] for i in order[1:])
    return Analysis(main, judged[first], others, _by_work(main, judged[first], found))


def _to_judge(path: Path, found: tuple[FileSeries, ...]) -> tuple[FileSeries, ...]:
    if len(found) == 1:
        return found
    memory = tuple(s for s in found if s.is_memory)
    if memory and len(memory) <= MOST_COLUMNS:
        return memory
    names = ", ".join(s.name for s in found[:12])
    what = f"{len(found)} columns, none of them clearly memory"
    if memory:
        what = f"{len(memory)} columns of memory, where at most {MOST_COLUMNS} are judged together"
    raise ConfigError([Problem(str(path), None, "--column", what, f"one of: {names}")])


def _question(s: FileSeries, options: AnalyzeOptions) -> SeriesQuestion:
    return SeriesQuestion(
        s.x, s.y, per=s.per, page=s.page, total=options.total, cap=options.cap, limit=options.limit,
        warmup=options.warmup, name=s.name, unit=s.unit,
    )  # fmt: skip


def _by_work(main: FileSeries, judgement: SeriesJudgement, found: tuple[FileSeries, ...]) -> tuple[WorkSlope, ...]:
    """Only for growth against time, where the file counts work beside it."""
    if main.per != "hour" or judgement.verdict is Leak.NO_LEAK or judgement.shape is Shape.RESTART:
        return ()
    counts: dict[str, Floats] = {}
    # a total holds its parts
    total = any(s.name == "total_tokens" for s in found)
    for s in found:
        if total and s.name.endswith("_tokens") and s.name != "total_tokens":
            continue
        axis = axis_of(s.name)
        per = axis.per if axis is not None else ("token" if s.name.endswith("_tokens") else "")
        if per in ("request", "token") and len(s.x) == len(main.x):
            counts[per] = counts[per] + s.y if per in counts else s.y
    if not counts:
        return ()
    start = judgement.evidence.judged_from
    skip = max(0.0, start - float(np.nanmin(main.x))) if start is not None else 0.0
    return growth_by_work(main.x, main.y, _monotone(counts), main.page, skip)


def _monotone(counts: Mapping[str, Floats]) -> dict[str, Floats]:
    return {per: c for per, c in counts.items() if (np.diff(c[np.isfinite(c)]) >= 0).all()}
