"""The frame that all dashboards share: data source, variables, links, events on the time axis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as model

from soakd.dashboards.influxql import TIME, Query
from soakd.dashboards.panels import Panel
from soakd.dashboards.source import REFERENCE, Annotation
from soakd.metrics import Catalogue
from soakd.model import Kind, Metric
from soakd.sinks.line_protocol import EVENTS, FINDINGS

TAG = "soakd"
_EVENT = Metric(EVENTS, "", Kind.GAUGE, "Something that happened.", "the journal's events")


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard before it is built. ``slug`` is its uid and the name of its file."""

    slug: str
    title: str
    question: str
    variables: Sequence[dashboard.QueryVariable]
    rows: Sequence[Row]
    span: str = "now-6h"
    refresh: str = "30s"
    annotations: Sequence[Annotation] = ()

    def build(self) -> model.Dashboard:
        made = dashboard.Dashboard(self.title).uid(self.slug).description(self.question).tags([TAG])
        made = made.time(self.span, "now").refresh(self.refresh).timezone("browser").editable()
        made = made.tooltip(model.DashboardCursorSync.CROSSHAIR)
        link = dashboard.DashboardLink("soakd").type(model.DashboardLinkType.DASHBOARDS).tags([TAG]).as_dropdown(True)
        made = made.link(link.include_vars(True).keep_time(True))
        made = made.with_variable(dashboard.DatasourceVariable("datasource").label("Database").type("influxdb"))
        for variable in self.variables:
            made = made.with_variable(variable)
        for annotation in self.annotations:
            made = made.annotation(annotation)
        for row in self.rows:
            made = made.with_row(dashboard.Row(row.title))
            for shown in row.panels:
                made = made.with_panel(shown)
        built = made.build()
        for number, panel in enumerate(built.panels or (), start=1):
            panel.id_val = number
        return built


Maker = Callable[[Catalogue], Board]


class Metrics:
    """Metrics by name. Raises ValueError for a name that the catalogue does not have."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def __call__(self, name: str) -> Metric:
        found = self._catalogue.get(name)
        if found is None:
            raise ValueError(f"no metric {name} in the catalogue")
        return found


def hosts(*, several: bool = True) -> dashboard.QueryVariable:
    return _variable("host", "Host", 'SHOW TAG VALUES FROM "collector_up" WITH KEY = "host"', several)


def gpus() -> dashboard.QueryVariable:
    query = 'SHOW TAG VALUES FROM "gpu_memory_used_bytes" WITH KEY = "gpu" WHERE "host" =~ /^$host$/'
    return _variable("gpu", "GPU", query, several=True)


def runs(*, several: bool) -> dashboard.QueryVariable:
    """Newest first: a run's id begins with its time of start."""
    query = 'SHOW TAG VALUES FROM "load_requests_completed_total" WITH KEY = "run" WHERE "host" =~ /^$host$/'
    return _variable("run", "Run", query, several).sort(model.VariableSort.ALPHABETICAL_DESC)


def _variable(name: str, label: str, query: str, several: bool) -> dashboard.QueryVariable:
    made = dashboard.QueryVariable(name).label(label).query(query).datasource(REFERENCE)
    made = made.refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(model.VariableSort.ALPHABETICAL_ASC)
    if several:
        made = made.multi(True).include_all(True).all_value(".*")
        made = made.current(model.VariableOption(text="All", value="$__all"))
    return made


def happened(where: Iterable[str]) -> Query:
    """The events of a table, with what is known of each."""
    columns = '"kind", "severity", "what", "bdf", "host", "run"'
    return Query(f'SELECT {columns} FROM "{EVENTS}" WHERE {" AND ".join((*where, TIME))}', _EVENT, "none")


def marks(where: Sequence[str]) -> tuple[Annotation, ...]:
    """Events on the time axis of every graph: what is bad, and, switched off at first, the rest."""
    said = f'SELECT "what", "kind", "severity" FROM "{EVENTS}" WHERE {" AND ".join((*where, TIME))}'
    found = f'SELECT "title" AS "what", "source" AS "kind", "severity" FROM "{FINDINGS}"'
    return (
        Annotation("Critical events", f"{said} AND \"severity\" = 'critical'", "red"),
        Annotation("Warnings", f"{said} AND \"severity\" = 'warning'", "orange"),
        Annotation("All other events", f"{said} AND \"severity\" = 'info'", "blue", enable=False),
        Annotation("Findings", f"{found} WHERE {' AND '.join((*where, TIME))}", "purple"),
    )
