"""InfluxQL over what ``soakd.sinks.line_protocol`` writes. Pure: text out.

A reading has either ``value`` or, when it is not known, ``state``. A query of ``value`` alone would show the last known
value of a card that is lost for as long as the time range lasts; ``now`` and ``timeline`` therefore put both into one
column, the unknown ones far below any real value (``unknown_value``), where a mapping turns them into words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from soakd.dashboards.units import Per, unit_of
from soakd.model import Kind, Metric, State

UNKNOWN_SCALE = -1_000_000_000_000
_KNOWN = UNKNOWN_SCALE // 10
HOST = '"host" =~ /^$host$/'
GPU = '"gpu" =~ /^$gpu$/'
RUN = '"run" =~ /^$run$/'
TIME = "$timeFilter"


@dataclass(frozen=True, slots=True)
class Query:
    """``unit`` is Grafana's; ``metric`` is what a value of it means. ``column`` names the figure in a table."""

    text: str
    metric: Metric
    unit: str
    alias: str = ""
    column: str = ""
    may_be_unknown: bool = False


def unknown_value(state: State) -> int:
    """What stands for an unknown reading in the answers of ``now`` and ``timeline``."""
    return UNKNOWN_SCALE * state.code


def is_(tag: str, value: str) -> str:
    return f"\"{tag}\" = '{value}'"


def like(tag: str, pattern: str) -> str:
    return f'"{tag}" =~ /{pattern}/'


def unlike(tag: str, pattern: str) -> str:
    return f'"{tag}" !~ /{pattern}/'


def trend(metric: Metric, by: Sequence[str], where: Sequence[str], alias: str, pick: str = "mean") -> Query:
    """Readings over time, unknown ones as gaps."""
    tags = _tags(metric, by)
    text = f'SELECT {pick}("value") FROM "{metric.name}" WHERE {_all(where)} GROUP BY time($__interval), {tags}'
    return Query(f"{text} fill(null)", metric, unit_of(metric), alias)


def points(metric: Metric, by: Sequence[str], where: Sequence[str], alias: str) -> Query:
    """Every single reading; for what is written once a run."""
    text = f'SELECT "value" FROM "{metric.name}" WHERE {_all(where)} GROUP BY {_tags(metric, by)}'
    return Query(text, metric, unit_of(metric), alias)


def gained(metric: Metric, where: Sequence[str], alias: str, *, by: Sequence[str] = ()) -> Query:
    """What a counter gained in each interval, series by series; a counter that starts anew is no loss. ``by`` sums
    the gains by these tags."""
    _counter(metric)
    every = _tags(metric, ("host", *metric.label_names))
    text = f'non_negative_difference(last("value")) {"AS gain " if by else ""}FROM "{metric.name}"'
    text = f"SELECT {text} WHERE {_all(where)} GROUP BY time($__interval), {every} fill(none)"
    if by:
        tags = _tags(metric, by)
        text = f"SELECT sum(gain) FROM ({text}) WHERE {TIME} GROUP BY time($__interval), {tags} fill(none)"
    return Query(text, metric, unit_of(metric, Per.INTERVAL), alias)


def rate(metric: Metric, where: Sequence[str], alias: str, per: Per = Per.SECOND) -> Query:
    """What a counter gains a second or a minute."""
    _counter(metric)
    every = _tags(metric, ("host", *metric.label_names))
    text = f'SELECT non_negative_derivative(last("value"), {per.value}) FROM "{metric.name}"'
    text = f"{text} WHERE {_all(where)} GROUP BY time($__interval), {every} fill(none)"
    return Query(text, metric, unit_of(metric, per), alias)


def timeline(metric: Metric, by: Sequence[str], where: Sequence[str], alias: str, pick: str = "last") -> Query:
    """Readings over time, unknown ones included."""
    tags = _tags(metric, by)
    text = f'SELECT {pick}("x") FROM {_either(metric, by, where)} WHERE {TIME}'
    return Query(
        f"{text} GROUP BY time($__interval), {tags} fill(null)", metric, unit_of(metric), alias, may_be_unknown=True
    )


def failed(metric: Metric, by: Sequence[str], where: Sequence[str], alias: str) -> Query:
    """Only the unknown readings over time."""
    text = f'SELECT last("x") FROM (SELECT "state" * {UNKNOWN_SCALE}.0 AS "x" FROM "{metric.name}"'
    text = f"{text} WHERE {_all(where)} GROUP BY {_tags(metric, by)}) WHERE {TIME}"
    text = f"{text} GROUP BY time($__interval), {_tags(metric, by)} fill(null)"
    return Query(text, metric, unit_of(metric), alias, may_be_unknown=True)


def now(metric: Metric, by: Sequence[str], where: Sequence[str], column: str) -> Query:
    """The last reading of each series, known or not."""
    text = f'SELECT last("x") AS "{column}" FROM {_either(metric, by, where)} GROUP BY {_tags(metric, by)}'
    return Query(text, metric, unit_of(metric), column=column, may_be_unknown=True)


def worst(metric: Metric, by: Sequence[str], within: Sequence[str], where: Sequence[str], column: str) -> Query:
    """The highest of the last readings of the series ``within`` whose last reading is known."""
    inner = now(metric, within, where, "l").text
    text = f'SELECT max("l") AS "{column}" FROM ({inner}) WHERE "l" > {_KNOWN} GROUP BY {_tags(metric, by)}'
    return Query(text, metric, unit_of(metric), column=column)


def counted(
    metric: Metric, by: Sequence[str], within: Sequence[str], where: Sequence[str], column: str, *, known: bool
) -> Query:
    """How many series ``within`` there are, or how many of them have a last reading that is known."""
    inner = now(metric, within, where, "l").text
    only = f' WHERE "l" > {_KNOWN}' if known else ""
    text = f'SELECT count("l") AS "{column}" FROM ({inner}){only} GROUP BY {_tags(metric, by)}'
    return Query(text, metric, "short", column=column)


def newest(metric: Metric, by: Sequence[str], more: Sequence[str], where: Sequence[str], column: str) -> Query:
    """The last known reading of each group, with tags of that very reading beside it."""
    extra = "".join(f', "{tag}"' for tag in more)
    text = f'SELECT last("value") AS "{column}"{extra} FROM "{metric.name}"'
    return Query(f"{text} WHERE {_all(where)} GROUP BY {_tags(metric, by)}", metric, unit_of(metric), column=column)


def _either(metric: Metric, by: Sequence[str], where: Sequence[str]) -> str:
    tags = _tags(metric, by)
    rest = f'FROM "{metric.name}" WHERE {_all(where)} GROUP BY {tags}'
    return f'(SELECT "value" AS "x" {rest}), (SELECT "state" * {UNKNOWN_SCALE}.0 AS "x" {rest})'


def _all(where: Sequence[str]) -> str:
    return " AND ".join((*where, TIME))


def _tags(metric: Metric, by: Sequence[str]) -> str:
    """Raises ValueError for a label that the metric does not have."""
    for tag in by:
        if tag not in (*metric.label_names, "host", "run"):
            raise ValueError(f"{metric.name} has no label {tag}")
    return ", ".join(f'"{tag}"' for tag in by)


def _counter(metric: Metric) -> None:
    if metric.kind is not Kind.COUNTER:
        raise ValueError(f"{metric.name} is no counter")
