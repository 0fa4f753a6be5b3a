"""The kinds of panel that the dashboards are made of: graph, timeline of states, table, single figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from grafana_foundation_sdk.builders import common, dashboard, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.models import common as words
from grafana_foundation_sdk.models import dashboard as model

from soakd.dashboards.influxql import Query
from soakd.dashboards.mappings import NOT_READ, Mappings, mappings_of
from soakd.dashboards.source import REFERENCE, Target

Steps = Sequence[tuple[float, str]]
"""From this value on, this colour; below the first it is green."""
Panel = timeseries.Panel | statetimeline.Panel | table.Panel | stat.Panel
_MIN_INTERVAL = "30s"
_NO_TAG = [model.DynamicConfigValue("noValue", "\N{EN DASH}")]
"""What has no card, no series or no pool shows a dash: there is nothing to be read."""
_REFERENCES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Text:
    """``question`` is what the panel answers; the metrics it shows are described behind it, by the catalogue."""

    title: str
    question: str

    def description(self, queries: Sequence[Query]) -> str:
        metrics = {query.metric.name: query.metric for query in queries}
        lines = (f"- `{m.name}`: {m.help.rstrip('.')} ({m.source})" for m in metrics.values())
        return "\n".join((self.question, "", *lines))


@dataclass(frozen=True, slots=True)
class Look:
    """``interval`` is the least width of a step: at least as long as the readings are apart."""

    span: int = 12
    height: int = 8
    steps: Steps = ()
    bars: bool = False
    dots: bool = False
    maximum: float | None = None
    minimum: float | None = None
    interval: str = _MIN_INTERVAL
    centred: bool = False


DEFAULT = Look()


def graph(text: Text, queries: Sequence[Query], look: Look = DEFAULT) -> timeseries.Panel:
    """Lines over time; a gap is what was not known. Raises ValueError for figures of different units."""
    units = {query.unit for query in queries}
    if len(units) != 1:
        raise ValueError(f"{text.title}: one axis for {sorted(units)}")
    panel = timeseries.Panel().title(text.title).description(text.description(queries)).datasource(REFERENCE)
    panel = panel.unit(units.pop()).span(look.span).height(look.height).interval(look.interval).no_value(NOT_READ)
    panel = panel.line_width(1).fill_opacity(60 if look.bars else 5).span_nulls(False)
    panel = panel.line_interpolation(words.LineInterpolation.LINEAR)
    panel = panel.show_points(words.VisibilityMode.ALWAYS if look.dots else words.VisibilityMode.AUTO)
    style = words.GraphDrawStyle.BARS if look.bars else words.GraphDrawStyle.LINE
    panel = panel.draw_style(words.GraphDrawStyle.POINTS if look.dots else style)
    if look.bars:
        panel = panel.stacking(common.StackingConfig().mode(words.StackingMode.NORMAL).group("A"))
    if look.dots:
        panel = panel.point_size(8)
    if look.maximum is not None:
        panel = panel.max(look.maximum)
    if look.minimum is not None:
        panel = panel.min(look.minimum)
    if look.steps:
        panel = panel.thresholds(_thresholds(look.steps)).thresholds_style(
            common.GraphThresholdsStyleConfig().mode(words.GraphThresholdsStyleMode.DASHED)
        )
    legend = common.VizLegendOptions().display_mode(words.LegendDisplayMode.TABLE).show_legend(True)
    panel = panel.legend(legend.placement(words.LegendPlacement.BOTTOM).calcs(["min", "max", "last"]))
    tooltip = common.VizTooltipOptions().mode(words.TooltipDisplayMode.MULTI).sort(words.SortOrder.DESCENDING)
    panel = panel.tooltip(tooltip)
    for ref, query in zip(_REFERENCES, queries, strict=False):
        panel = panel.with_target(Target(query, ref))
    return panel


def states(
    text: Text, queries: Sequence[Query], look: Look = DEFAULT, *, colours: Mapping[str, str] | None = None
) -> statetimeline.Panel:
    """States over time as coloured bars; nothing where nothing was read."""
    panel = statetimeline.Panel().title(text.title).description(text.description(queries)).datasource(REFERENCE)
    panel = panel.span(look.span).height(look.height).interval(look.interval).no_value(NOT_READ)
    panel = panel.mappings(mappings_of(queries, bad=colours)).merge_values(True).row_height(0.8).fill_opacity(80)
    panel = panel.show_value(words.VisibilityMode.NEVER).line_width(0)
    panel = panel.legend(common.VizLegendOptions().display_mode(words.LegendDisplayMode.LIST).show_legend(True))
    for ref, query in zip(_REFERENCES, queries, strict=False):
        panel = panel.with_target(Target(query, ref))
    return panel


@dataclass(frozen=True, slots=True)
class Column:
    """A figure of a table; ``steps`` colour its cell, ``colours`` the words of a state."""

    query: Query
    steps: Steps = ()
    colours: Mapping[str, str] = field(default_factory=dict)


def rows(
    text: Text, columns: Sequence[Column], look: Look = DEFAULT, *, sort: str = "", keep_time: str = "", link: str = ""
) -> table.Panel:
    """One row for each group of tags, one column for each figure. ``keep_time`` names the column of the time of the
    reading (all figures must then be of one time); ``link`` is what a click on a cell opens."""
    queries = [column.query for column in columns]
    panel = table.Panel().title(text.title).description(text.description(queries)).datasource(REFERENCE)
    panel = panel.span(look.span).height(look.height).filterable(True).show_header(True)
    panel = panel.override_by_field_type("string", _NO_TAG)
    for ref, column in zip(_REFERENCES, columns, strict=False):
        panel = panel.with_target(Target(column.query, ref, table=True))
        panel = panel.override_by_name(column.query.column, _column(column))
    merge = model.DataTransformerConfig(id_val="merge", options={})
    if keep_time:
        panel = panel.override_by_name("Time", [model.DynamicConfigValue("displayName", keep_time)])
        panel = panel.transformations([merge])
    else:
        drop = model.DataTransformerConfig(
            id_val="filterFieldsByName", options={"exclude": {"names": ["Time", "time"]}}
        )
        panel = panel.transformations([drop, merge])
    if sort:
        panel = panel.sort_by([common.TableSortByFieldState().display_name(sort).desc(True)])
    if link:
        panel = panel.data_links([dashboard.DashboardLink("Open this run").url(link)])
    return panel


def log(text: Text, query: Query, look: Look = DEFAULT) -> table.Panel:
    """Events, newest first."""
    panel = table.Panel().title(text.title).description(text.question).datasource(REFERENCE)
    panel = panel.span(look.span).height(look.height).no_value("nothing happened").filterable(True).show_header(True)
    panel = panel.override_by_field_type("string", _NO_TAG)
    panel = panel.sort_by([common.TableSortByFieldState().display_name("Time").desc(True)])
    panel = panel.override_by_name("what", [model.DynamicConfigValue("custom.width", 700)])
    colours = {"critical": "red", "warning": "orange", "info": "blue"}
    words_ = {w: model.ValueMappingResult(text=w, color=c, index=i) for i, (w, c) in enumerate(colours.items())}
    panel = panel.override_by_name("severity", _painted([model.ValueMap(options=words_)], ()))
    return panel.with_target(Target(query, "A", table=True))


def figure(text: Text, query: Query, look: Look = DEFAULT, *, steps: Steps = ()) -> stat.Panel:
    """The last reading in large; ``no reading`` where there is none."""
    panel = stat.Panel().title(text.title).description(text.description([query])).datasource(REFERENCE)
    panel = panel.span(look.span).height(look.height).unit(query.unit).no_value(NOT_READ)
    panel = panel.mappings(mappings_of([query])).thresholds(_thresholds(steps))
    panel = panel.color_mode(words.BigValueColorMode.BACKGROUND).graph_mode(words.BigValueGraphMode.NONE)
    panel = panel.reduce_options(common.ReduceDataOptions().calcs(["last"]))
    panel = panel.text_mode(words.BigValueTextMode.VALUE)
    return panel.with_target(Target(query, "A"))


def _column(column: Column) -> list[model.DynamicConfigValue]:
    unit = model.DynamicConfigValue("unit", column.query.unit)
    empty = model.DynamicConfigValue("noValue", NOT_READ)
    mapped = mappings_of([column.query], bad=column.colours)
    return [unit, empty, *(_painted(mapped, column.steps) if mapped or column.steps else ())]


def _painted(mapped: Mappings, steps: Steps) -> list[model.DynamicConfigValue]:
    cell = {"type": "color-text"}
    return [
        model.DynamicConfigValue("mappings", mapped),
        model.DynamicConfigValue("thresholds", _thresholds(steps).build()),
        model.DynamicConfigValue("custom.cellOptions", cell),
    ]


def _thresholds(steps: Steps) -> dashboard.ThresholdsConfig:
    base = model.Threshold(None, "green" if steps else "text")
    found = [base, *(model.Threshold(at, colour) for at, colour in steps)]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(found)
