"""The report as one HTML file: no network, no fonts or scripts from elsewhere, readable with JavaScript off."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import orjson
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from soakd.model import Outcome, Severity
from soakd.report import plot, wording
from soakd.report.charts import Charts
from soakd.report.figures import latency_rows
from soakd.report.model import FindingLine, LimitLine, Report

if TYPE_CHECKING:  # comparing brings scipy, which a report does not need
    from soakd.report.compare import Comparison

_ORDER = (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS, Outcome.NOT_JUDGED)
_SEVERITIES = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)
MAX_EVENTS = 500
MAX_FINDINGS = 500
OPEN_FINDINGS = 12
FOLD_LIMITS = 24
"""With more limits than this (many cards), those that passed are folded."""
_FILTERS: Mapping[str, Callable[..., str]] = {
    "clean": wording.clean,
    "clean_lines": wording.clean_lines,
    "say": wording.say,
    "count": wording.say_count,
    "share": wording.say_share,
    "duration": wording.say_duration,
    "offset": wording.say_offset,
    "moment": wording.say_moment,
    "labels": wording.say_labels,
    "outcome": wording.say_outcome,
    "symbol": wording.SYMBOLS.__getitem__,
}


def render_html(report: Report, charts: Charts | None = None) -> str:
    """The whole report. ``charts`` None or empty: the page says that there is nothing to draw."""
    page = plot.lay_out(report, charts or Charts(report.duration_s or 0.0))
    limits = sorted(report.limits, key=lambda line: _ORDER.index(line.outcome))
    fold = len(limits) > FOLD_LIMITS
    findings = sorted(report.findings, key=lambda line: _SEVERITIES.index(line.severity))
    folded = [line for line in limits if fold and line.outcome is Outcome.PASS]
    return _render(
        "report.html.j2", report=report, page=page, limits=limits, passed_limits=folded,
        open_limits=[line for line in limits if not (fold and line.outcome is Outcome.PASS)],
        findings=findings[:MAX_FINDINGS],
        findings_cut=max(0, len(findings) - MAX_FINDINGS) + report.findings_left_out, open_findings=OPEN_FINDINGS,
        events=report.events[:MAX_EVENTS], events_cut=max(0, len(report.events) - MAX_EVENTS) + report.events_left_out,
        latencies=latency_rows(report.load), counts=_counts(limits, findings), readings=_readings(page),
        peaks=_peaks(report),
        config=json.dumps(report.config, indent=2, ensure_ascii=False, default=str),
    )  # fmt: skip


def render_comparison(comparison: Comparison) -> str:
    """Two or more runs side by side."""
    return _render("compare.html.j2", comparison=comparison)


def _counts(limits: list[LimitLine], findings: list[FindingLine]) -> dict[str, int]:
    counted = {outcome.value: sum(1 for line in limits if line.outcome is outcome) for outcome in Outcome}
    return {**counted, **{s.value: sum(1 for line in findings if line.severity is s) for s in Severity}}


@dataclass(frozen=True, slots=True)
class Peaks:
    """Of the fullest and of the hottest card; None when a card could not be read."""

    memory: float | None
    temperature: float | None


def _peaks(report: Report) -> Peaks:
    memory = [g.memory_used_bytes.high for g in report.cards]
    return Peaks(_highest(memory), _highest([g.temperature_celsius.high for g in report.cards]))


def _highest(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return max(known) if known and len(known) == len(values) else None


def _readings(page: plot.Page) -> Markup:
    """What the crosshair needs, as JSON that can't end its script element."""
    charts = [
        {"unit": chart.unit, "lines": [{"t": line.t_s, "v": line.values} for line in chart.lines]}
        for chart in page.charts
    ]
    x1 = plot.WIDTH - plot.RIGHT
    data = {"duration": page.duration_s, "x0": plot.LEFT, "x1": x1, "width": plot.WIDTH, "charts": charts}
    text = orjson.dumps(data).decode()
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("soakd.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(_FILTERS)
    environment.globals.update(interval=wording.say_interval, plural=wording.say_number_of, plot=plot)
    return environment


def _render(template: str, **context: object) -> str:
    environment = _environment()
    script = _source(environment, "chart.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    style = Markup(_source(environment, "style.css"))
    text = environment.get_template(template).render(
        style=style, script=Markup(script), script_hash=digest, **context
    )  # fmt: skip
    return text.encode("utf-8", "replace").decode()


def _source(environment: Environment, name: str) -> str:
    loader = environment.loader
    return loader.get_source(environment, name)[0] if loader else ""
