"""What the SDK has no types for: queries and annotations of Grafana's InfluxDB data source in InfluxQL mode."""

from __future__ import annotations

from dataclasses import dataclass

from grafana_foundation_sdk.cog import builder, variants
from grafana_foundation_sdk.models import dashboard as model

from soakd.dashboards.influxql import Query

REFERENCE = model.DataSourceRef(type_val="influxdb", uid="${datasource}")


class InfluxQuery(variants.Dataquery):
    """A raw query, as ``public/app/plugins/datasource/influxdb/types.ts`` of Grafana (``InfluxQuery``) has it."""

    def __init__(self, query: Query, ref_id: str, table: bool) -> None:
        self.query = query
        self.ref_id = ref_id
        self.table = table

    def to_json(self) -> dict[str, object]:
        return {
            "refId": self.ref_id,
            "datasource": REFERENCE,
            "query": self.query.text,
            "rawQuery": True,
            "resultFormat": "table" if self.table else "time_series",
            "alias": self.query.alias,
        }


@dataclass(frozen=True, slots=True)
class Target(builder.Builder[variants.Dataquery]):
    query: Query
    ref_id: str
    table: bool = False

    def build(self) -> variants.Dataquery:
        return InfluxQuery(self.query, self.ref_id, self.table)


class InfluxAnnotation(model.AnnotationQuery):
    """Grafana's InfluxQL annotations keep the query and the names of its columns beside the annotation's own keys."""

    def __init__(self, name: str, query: str, colour: str, enable: bool) -> None:
        super().__init__(name=name, datasource=REFERENCE, enable=enable, icon_color=colour)
        self.text = query

    def to_json(self) -> dict[str, object]:
        columns: dict[str, object] = {"query": self.text, "textColumn": "what", "tagsColumn": "kind,severity"}
        target = {
            "refId": "Anno", "datasource": REFERENCE, "rawQuery": True, "resultFormat": "table",
            "fromAnnotations": True, "textEditor": True, **columns,
        }  # fmt: skip
        return {**super().to_json(), **columns, "target": target}


@dataclass(frozen=True, slots=True)
class Annotation(builder.Builder[model.AnnotationQuery]):
    name: str
    query: str
    colour: str
    enable: bool = True

    def build(self) -> model.AnnotationQuery:
        return InfluxAnnotation(self.name, self.query, self.colour, self.enable)
