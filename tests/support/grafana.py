"""Dashboards as Grafana treats them: panels, variables, and what stands in a query once they are filled in."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "dashboards"
FILES = tuple(sorted(FOLDER.glob("*.json")))
_SPECIAL = re.compile(r"[.*+?^${}()|[\]/\\]")
_PIXELS = 1000

Json = dict[str, Any]


def load(path: Path) -> Json:
    loaded: Json = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def panels(dashboard: Json) -> Iterator[Json]:
    """All panels but the headings of rows."""
    for panel in dashboard["panels"]:
        yield from (p for p in (panel, *panel.get("panels", ())) if p["type"] != "row")


def variables(dashboard: Json) -> list[Json]:
    return [v for v in dashboard["templating"]["list"] if v["type"] == "query"]


@dataclass(frozen=True, slots=True)
class Asked:
    """A query and where it stands."""

    where: str
    text: str
    min_interval_s: float
    needs_rows: bool = True


def queries(dashboard: Json) -> Iterator[Asked]:
    """Of every panel, and of the annotations (which may well have nothing to tell)."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            where = f"{dashboard['title']} / {panel['title']} / {target['refId']}"
            yield Asked(where, target["query"], seconds(panel.get("interval", "1s")))
    for annotation in dashboard["annotations"]["list"]:
        yield Asked(f"{dashboard['title']} / {annotation['name']}", annotation["query"], 1.0, needs_rows=False)


def seconds(interval: str) -> float:
    return float(interval[:-1]) * {"s": 1, "m": 60, "h": 3600}[interval[-1]]


@dataclass(frozen=True, slots=True)
class View:
    """What a person has chosen: the time range, and values of the variables (None is `All`)."""

    from_ns: int
    to_ns: int
    chosen: Mapping[str, Sequence[str] | None] = field(default_factory=dict)

    def fill(self, text: str, min_interval_s: float = 1.0) -> str:
        """The query as it is sent. Raises KeyError for a variable that was not chosen."""
        span_s = (self.to_ns - self.from_ns) / 1e9
        step_ms = int(max(min_interval_s, span_s / _PIXELS) * 1000)
        times = f"time >= {self.from_ns // 10**6}ms and time <= {self.to_ns // 10**6}ms"
        text = text.replace("$timeFilter", times).replace("$__interval", f"{step_ms}ms")
        for name in sorted(set(re.findall(r"\$([a-z_]+)\b", text)) - {"tag"}):
            text = re.sub(rf"\${name}\b", lambda _, n=name: self._value(n), text)  # type: ignore[misc]
        return text

    def _value(self, name: str) -> str:
        """As `interpolateQueryExpr` of Grafana's InfluxDB data source does it."""
        values = self.chosen[name]
        if values is None:
            return ".*"
        escaped = [_SPECIAL.sub(r"\\\g<0>", value) for value in values]
        return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"


class QueryError(Exception):
    """The database refused the query."""


def ask(url: str, database: str, text: str) -> list[Json]:
    """The series of an answer, each a dict with ``tags``, ``columns`` and ``values``. Raises QueryError."""
    parameters = urllib.parse.urlencode({"db": database, "q": text, "epoch": "ns"})
    try:
        with urllib.request.urlopen(f"{url}/query?{parameters}", timeout=60) as answer:
            result = json.loads(answer.read())["results"][0]
    except urllib.error.HTTPError as error:
        raise QueryError(f"{error.read().decode()} of {text}") from None
    if "error" in result:
        raise QueryError(f"{result['error']} of {text}")
    series: list[Json] = result.get("series", [])
    return series


def known(series: Sequence[Json]) -> list[tuple[Mapping[str, str], list[Any]]]:
    """Tags and values of all rows that hold a figure (null is a step without one)."""
    return [
        (one.get("tags", {}), row) for one in series for row in one["values"] if any(v is not None for v in row[1:])
    ]
