"""Speculative decoding's acceptance and the prefix cache's hit rate, from the server's own counters in the journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from soakd.analysis.ratios import Drift, RatioJudgement, RatioQuestion, judge_ratio
from soakd.journal.reader import JournalReader
from soakd.model import Finding, Labels, Severity
from soakd.report import facts
from soakd.soak.charts import Span
from soakd.soak.gather import Window

_PAIRS = (
    ("speculative_acceptance", "speculative acceptance", "server_spec_accepted_tokens_total",
     "server_spec_draft_tokens_total"),
    ("prefix_cache_hits", "prefix cache hit rate", "server_prefix_cache_hits_total",
     "server_prefix_cache_queries_total"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServerRatio:
    """One ratio of one replica, judged over the measured part."""

    name: str
    title: str
    metric: str
    labels: Labels
    judged: RatioJudgement


def server_ratios(reader: JournalReader, window: Window, span: Span) -> tuple[ServerRatio, ...]:
    """Of every replica that counts both; empty for a server that counts neither."""
    found = []
    for name, title, part, whole in _PAIRS:
        for key in reader.series(part, window.run_id):
            question = _question(reader, window, span, (part, whole), key.labels, title)
            if question is not None and float(np.ptp(question.whole)) > 0:
                found.append(ServerRatio(name, title, part, key.labels, judge_ratio(question)))
    return tuple(found)


def _question(
    reader: JournalReader, window: Window, span: Span, pair: tuple[str, str], which: Labels, title: str
) -> RatioQuestion | None:
    first, last = (window.start_ns + int(s * 1e9) for s in (span.from_s, span.to_s))
    read = [reader.read(metric, which, first, last + 1, window.run_id) for metric in pair]
    parts, wholes = (dict(zip(series.at_ns, series.values, strict=True)) for series in read)
    both = sorted(parts.keys() & wholes.keys())
    if len(both) < 2:
        return None
    at = np.asarray(both, dtype=np.float64)
    return RatioQuestion(
        (at - window.start_ns) / 1e9, np.array([parts[t] for t in both]), np.array([wholes[t] for t in both]), title
    )


def findings(ratios: Sequence[ServerRatio], at_ns: int) -> tuple[Finding, ...]:
    """What fell by more than noise: it costs throughput without an error. Changes no outcome."""
    return tuple(
        Finding(
            f"ratio.{r.name}", Severity.WARNING, f"{r.title} fell", r.judged.why, at_ns, r.labels, r.metric,
            r.judged.change, "ratio",
        )
        for r in ratios
        if r.judged.drift is Drift.FELL
    )  # fmt: skip


def lines(ratios: Sequence[ServerRatio]) -> tuple[facts.ServerRatio, ...]:
    """For the report."""
    return tuple(
        facts.ServerRatio(
            r.name, dict(r.labels), r.judged.ratio, r.judged.low, r.judged.high, r.judged.early, r.judged.late,
            r.judged.change, r.judged.change_low, r.judged.change_high, r.judged.drift.value, r.judged.why,
        )
        for r in ratios
    )  # fmt: skip
