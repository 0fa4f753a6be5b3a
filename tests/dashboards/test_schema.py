"""Grafana's own types, as grafana-foundation-sdk has them, take every dashboard and give it back unchanged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import dashboard as model

from tests.support.grafana import FILES, Json, load, panels

register_default_plugins()
_OURS = {"query", "textColumn", "tagsColumn", "target"}
"""Keys of InfluxDB's annotations, which the SDK has no type for."""


def round_trip(document: Json) -> Json:
    given: Json = json.loads(json.dumps(model.Dashboard.from_json(document), cls=JSONEncoder))
    return given


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_nothing_is_lost_in_grafanas_types(path: Path) -> None:
    document = load(path)
    found = round_trip(document)
    for annotation in (*document["annotations"]["list"], *found["annotations"]["list"]):
        for key in _OURS:
            annotation.pop(key, None)
    assert found == document


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_panel_is_of_a_type_that_the_sdk_knows(path: Path) -> None:
    kinds = {"timeseries", "state-timeline", "table", "stat"}
    assert {panel["type"] for panel in panels(load(path))} <= kinds


def test_a_key_that_grafana_does_not_know_does_not_pass() -> None:
    document = load(FILES[0])
    next(panels(document))["fieldConfig"]["defaults"]["colour"] = "red"
    assert round_trip(document) != document
