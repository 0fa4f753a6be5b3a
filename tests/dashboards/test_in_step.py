"""The committed dashboards are those that the generator makes, and say nothing that the catalogue does not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from soakd.dashboards.__main__ import main
from soakd.dashboards.generate import documents
from soakd.dashboards.influxql import gained, timeline, trend, unknown_value
from soakd.dashboards.mappings import mappings_of
from soakd.dashboards.panels import Text, graph
from soakd.metrics import catalogue
from soakd.model import Kind, Metric, State
from soakd.sinks.line_protocol import EVENTS, FINDINGS
from tests.support.grafana import FILES, FOLDER, Json, load, panels, queries

_FROM = re.compile(r'FROM "([a-z0-9_]+)"')
_UNITS = {
    "bytes": "bytes", "bytes/s": "binBps", "bytes/h": "si:B/h", "items/h": "suffix:/h", "ratio": "percentunit",
    "ratio/h": "percentunit", "seconds": "s", "celsius": "celsius", "watts": "watt", "hertz": "hertz", "": "none",
    "requests/s": "reqps", "tokens/s": "suffix:tokens/s", "transfers/s": "si:transfers/s", "lanes": "prefix:x",
}  # fmt: skip
_RATES = {"bytes": "binBps", "seconds": "percentunit"}
CATALOGUE = catalogue()


def everywhere() -> Iterator[tuple[str, Json, str]]:
    for path in FILES:
        for panel in panels(load(path)):
            for target in panel["targets"]:
                yield f"{path.stem} / {panel['title']}", panel, target["query"]


def asked_of(query: str) -> list[Metric]:
    found = [CATALOGUE.get(name) for name in _FROM.findall(query) if name not in (EVENTS, FINDINGS)]
    assert None not in found, query
    return [metric for metric in found if metric]


def wanted_unit(metric: Metric, query: str) -> str:
    if query.startswith("SELECT count("):
        return "short"
    if "non_negative_derivative" in query:
        per = {"1s": "s", "1m": "min", "1h": "h"}[re.findall(r", (1[smh])\) FROM", query)[0]]
        return _RATES[metric.unit] if per == "s" else f"suffix:{metric.unit}/{per}"
    if metric.name.endswith("_per_minute"):
        return f"suffix:{metric.unit}/min"
    return _UNITS.get(metric.unit, "short")


def test_the_committed_files_are_what_the_generator_makes() -> None:
    made = documents(CATALOGUE)
    assert {path.name for path in FILES} == set(made)
    stale = [path.name for path in FILES if path.read_text(encoding="utf-8") != made[path.name]]
    assert not stale, f"run: python -m soakd.dashboards dashboards ({stale})"


def test_check_says_which_file_is_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                         capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    monkeypatch.setattr("sys.argv", ["dashboards", str(tmp_path)])
    assert main() == 0
    monkeypatch.setattr("sys.argv", ["dashboards", str(tmp_path), "--check"])
    assert main() == 0
    (tmp_path / "gpu.json").write_text("{}")
    assert main() == 1
    assert "gpu.json is not up to date" in capsys.readouterr().err


def test_every_metric_and_label_asked_for_is_in_the_catalogue() -> None:
    for where, _, query in everywhere():
        for metric in asked_of(query):
            for tags in re.findall(r"GROUP BY ([^)]*?)(?:$|\)| fill)", query.replace("time($__interval), ", "")):
                for tag in re.findall(r'"([a-z_]+)"', tags):
                    assert tag in (*metric.label_names, "host", "run"), f"{where}: {metric.name} has no {tag}"
            for tag in re.findall(r'"([a-z_]+)" (?:=|=~|!~) ', query):
                assert tag in (*metric.label_names, "host", "run"), f"{where}: {metric.name} has no {tag}"


def test_units_are_those_of_the_catalogue() -> None:
    for path in FILES:
        for panel in panels(load(path)):
            columns = {o["matcher"]["options"]: o["properties"] for o in panel["fieldConfig"]["overrides"]}
            for target in panel["targets"]:
                for metric in asked_of(target["query"])[:1]:
                    if metric.kind is Kind.STATE or panel["type"] == "state-timeline":
                        continue
                    unit = panel["fieldConfig"]["defaults"].get("unit")
                    if panel["type"] == "table":
                        (name,) = set(re.findall(r'^SELECT .*? AS "([^"]+)"', target["query"]))
                        unit = next(p["value"] for p in columns[name] if p["id"] == "unit")
                    assert unit == wanted_unit(metric, target["query"]), f"{panel['title']}: {metric.name}"


def test_every_unit_of_the_catalogue_that_is_no_mere_count_has_one_of_grafana() -> None:
    counted = {m.unit for m in CATALOGUE} - set(_UNITS)
    assert not {unit for unit in counted if "/" in unit}


def test_every_panel_has_a_title_of_its_own_a_description_and_a_question() -> None:
    for path in FILES:
        dashboard = load(path)
        found = list(panels(dashboard))
        titles = [panel["title"] for panel in found]
        assert len(titles) == len(set(titles)), path.name
        ids = [panel["id"] for panel in dashboard["panels"]]
        assert len(ids) == len(set(ids))
        assert dashboard["description"].strip()
        for panel in found:
            question = panel["description"].partition("\n")[0]
            assert len(question) > 14, panel["title"]
            named = set(re.findall(r"`([a-z0-9_]+)`:", panel["description"]))
            assert named == {m.name for t in panel["targets"] for m in asked_of(t["query"])}, panel["title"]


def test_every_variable_in_a_query_is_declared_and_every_declared_one_is_used() -> None:
    for path in FILES:
        dashboard = load(path)
        declared = {v["name"] for v in dashboard["templating"]["list"]} - {"datasource"}
        used = {name for asked in queries(dashboard) for name in re.findall(r"\^\$([a-z]+)\$/", asked.text)}
        assert used == declared, path.name
        assert all(t["datasource"]["uid"] == "${datasource}" for p in panels(dashboard) for t in p["targets"])


def test_nothing_fills_what_was_not_read_with_a_number() -> None:
    for where, panel, query in everywhere():
        fills = set(re.findall(r"fill\((\w+)\)", query))
        assert fills <= {"null", "none"}, where
        if panel["type"] == "table" and EVENTS not in query:
            said = {p["value"] for p in _column(panel, query) if p["id"] == "noValue"}
        else:
            said = {panel["fieldConfig"]["defaults"]["noValue"]}
        assert said <= {"no reading", "nothing happened"}, where
        assert said, where
        if panel["type"] == "timeseries":
            assert panel["fieldConfig"]["defaults"]["custom"]["spanNulls"] is False, where


def test_unknown_readings_are_words_wherever_they_can_show() -> None:
    words = {str(unknown_value(s)): s.value.replace("_", " ") for s in State if s is not State.OK}
    shown = 0
    for path in FILES:
        for panel in panels(load(path)):
            for target in panel["targets"]:
                if '"state"' not in target["query"] or '"l" > ' in target["query"] or "count(" in target["query"]:
                    continue
                shown += 1
                assert panel["type"] in ("table", "stat", "state-timeline"), panel["title"]
                mapped = _mapped(panel, target["query"])
                assert {code: mapped[code]["text"] for code in words} == words, panel["title"]
    assert shown > 40


def _column(panel: Json, query: str) -> list[Json]:
    """What a table says of the column of a query."""
    name = re.findall(r'^SELECT .*? AS "([^"]+)"', query)[0]
    found: list[Json] = next(
        o["properties"] for o in panel["fieldConfig"]["overrides"] if o["matcher"]["options"] == name
    )
    return found


def _mapped(panel: Json, query: str) -> Json:
    found: Json = {}
    mappings = panel["fieldConfig"]["defaults"].get("mappings", [])
    if panel["type"] == "table":
        mappings = next(p["value"] for p in _column(panel, query) if p["id"] == "mappings")
    for mapping in mappings:
        found |= mapping["options"]
    return found


def test_codes_of_states_are_shown_as_the_words_of_the_catalogue() -> None:
    for where, panel, query in everywhere():
        for metric in asked_of(query)[:1]:
            if metric.kind is not Kind.STATE or '"x"' not in query:
                continue
            mapped = _mapped(panel, query)
            assert all(mapped[str(code)]["text"] == word for word, code in metric.codes), f"{where}: {metric.name}"


def test_the_five_dashboards_answer_what_they_are_for() -> None:
    needed = {
        "fleet": {"soak_outcome", "soak_growth_bytes_per_hour", "collector_up", "gpu_temperature_celsius"},
        "run": {"load_requests_per_second", "load_e2e_p95_seconds", "gpu_memory_used_bytes", "load_errors_total",
                "gpu_temperature_celsius"},
        "gpu": {"gpu_ecc_errors_total", "gpu_xid_code_errors_total", "pcie_aer_errors_total", "pcie_link_state",
                "gpu_temperature_band_seconds_total", "gpu_throttle_seconds_total"},
        "leak": {"soak_growth_bytes_per_hour", "gpu_memory_used_bytes", "server_process_anon_swap_bytes",
                 "allocator_reserved_bytes", "server_process_open_files"},
        "compare": {"soak_result_seconds", "soak_result_ratio", "soak_outcome"},
    }  # fmt: skip
    for name, metrics in needed.items():
        dashboard = load(FOLDER / f"{name}.json")
        asked = {m.name for p in panels(dashboard) for t in p["targets"] for m in asked_of(t["query"])}
        assert metrics <= asked, metrics - asked
        assert EVENTS in str(dashboard["annotations"])


GAUGE = Metric("a_bytes", "bytes", Kind.GAUGE, "h", "s", ("gpu",))
STATE = Metric("a_state", "", Kind.STATE, "h", "s", (), (("on", 1),))


def test_a_label_or_a_kind_that_a_metric_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="no label bdf"):
        trend(GAUGE, ("bdf",), (), "")
    with pytest.raises(ValueError, match="no counter"):
        gained(GAUGE, (), "")


def test_one_axis_has_one_unit_and_one_code_one_meaning() -> None:
    other = Metric("a_seconds", "seconds", Kind.GAUGE, "h", "s")
    with pytest.raises(ValueError, match="one axis"):
        graph(Text("t", "q"), (trend(GAUGE, ("gpu",), (), ""), trend(other, ("host",), (), "")))
    clash = Metric("b_state", "", Kind.STATE, "h", "s", (), (("off", 1),))
    with pytest.raises(ValueError, match="means something else"):
        mappings_of([timeline(STATE, ("host",), (), ""), timeline(clash, ("host",), (), "")])
