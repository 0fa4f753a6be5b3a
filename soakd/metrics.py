"""The catalogue: every metric soakd measures, gathered from the plug-ins that declare them.

A metric is declared once, beside the code that measures it. Everything that names a metric (rules, line protocol,
``/metrics``, dashboards, the reference) is generated from the catalogue or checked against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from soakd import schedule
from soakd.alerting import own_metrics as alerting_metrics
from soakd.forward import status as forward_status
from soakd.load import metrics as load_metrics
from soakd.model import Kind, Metric
from soakd.registry import plugins
from soakd.report import outcome_metrics, run_state


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Metrics by name, in order of name."""

    by_name: Mapping[str, Metric]

    def __iter__(self) -> Iterator[Metric]:
        return iter(self.by_name.values())

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def get(self, name: str) -> Metric | None:
        return self.by_name.get(name)

    @classmethod
    def of(cls, metrics: Iterable[Metric]) -> Catalogue:
        """Raises ValueError for a name that is declared twice with different meanings, or breaks the naming rules."""
        found: dict[str, Metric] = {}
        for metric in metrics:
            if found.setdefault(metric.name, metric) != metric:
                raise ValueError(f"metric {metric.name} is declared twice, differently")
            if (metric.kind is Kind.COUNTER) != metric.name.endswith("_total"):
                raise ValueError(f"metric {metric.name}: counters, and only they, end in _total")
        return cls(dict(sorted(found.items())))


def catalogue() -> Catalogue:
    """Every metric there is."""
    declared: list[Metric] = [*load_metrics.METRICS, *schedule.METRICS, *outcome_metrics.METRICS, *run_state.METRICS]
    declared += (*forward_status.METRICS, *alerting_metrics.METRICS)
    for package in ("collectors", "sinks"):
        for plugin in plugins(package).values():
            declared.extend(plugin.metrics)
    return Catalogue.of(declared)


def reference(found: Catalogue) -> str:
    """The metric reference as markdown: docs/metrics.md."""
    lines = [
        "# Metrics",
        "",
        "Generated from the catalogue (`make docs`). What can't be read is *unknown*, never 0.",
        "",
        "| metric | kind | unit | labels | what it is | source |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for metric in found:
        codes = "; ".join(f"{code} {name}" for name, code in metric.codes)
        text = f"{metric.help} ({codes})" if codes else metric.help
        cells = (f"`{metric.name}`", metric.kind.value, metric.unit, ", ".join(metric.label_names), text, metric.source)
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
