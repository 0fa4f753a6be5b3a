"""Every query of every panel on a real InfluxDB, filled by SIMULATED hosts through soakd's own forwarder."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from soakd.dashboards.influxql import GPU, HOST, Query, counted, is_, now, timeline, unknown_value, worst
from soakd.metrics import catalogue
from soakd.model import Metric, Sample, State, labels
from soakd.sinks.line_protocol import LineEncoder
from tests.dashboards.conftest import DATABASE, Filled
from tests.support.databases import Influx
from tests.support.grafana import FILES, View, ask, known, load, queries, variables

pytestmark = pytest.mark.integration


def metric(name: str) -> Metric:
    found = catalogue().get(name)
    assert found
    return found


def views(filled: Filled) -> Iterator[View]:
    """All, each host with its run, and several chosen at once."""
    yield filled.view()
    for host, run in filled.runs.items():
        yield filled.view(host=[host], run=[run])
    yield filled.view(host=list(filled.runs), run=list(filled.runs.values()), gpu=["GPU-none", "GPU-(odd).*"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_query_runs_and_each_finds_rows(filled: Filled, path: Path) -> None:
    empty = []
    for asked in queries(load(path)):
        found = [
            known(ask(filled.url, DATABASE, view.fill(asked.text, asked.min_interval_s))) for view in views(filled)
        ]
        if asked.needs_rows and not any(found):
            empty.append(f"{asked.where}: {asked.text}")
    assert not empty, "\n".join(empty)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_variables_offer_what_was_forwarded(filled: Filled, path: Path) -> None:
    wanted = {"host": set(filled.runs), "run": set(filled.runs.values())}
    for variable in variables(load(path)):
        series = ask(filled.url, DATABASE, filled.view().fill(variable["query"]))
        values = {row[1] for one in series for row in one["values"]}
        assert values == wanted.get(variable["name"], values)
        assert len(values) >= 2, variable["name"]
        (host, _) = sorted(filled.runs.items())[0]
        narrowed = ask(filled.url, DATABASE, filled.view(host=[host]).fill(variable["query"]))
        if variable["name"] == "run":
            assert [row[1] for one in narrowed for row in one["values"]] == [filled.runs[host]]


def test_a_card_that_was_lost_reads_lost_and_not_its_last_temperature(filled: Filled) -> None:
    query = now(metric("gpu_temperature_celsius"), ("host", "bdf"), [HOST, is_("sensor", "core")], "core")
    view = filled.view(host=["losing"])
    answers = {tags["bdf"]: row[1] for tags, row in known(ask(filled.url, DATABASE, view.fill(query.text)))}
    lost = [value for value in answers.values() if value == unknown_value(State.LOST)]
    assert len(lost) == 1
    assert len([value for value in answers.values() if 20 < value < 110]) == len(answers) - 1


def test_what_the_card_does_not_support_is_said_and_is_not_zero(filled: Filled) -> None:
    query = now(metric("gpu_temperature_margin_celsius"), ("host", "bdf"), [HOST], "margin")
    view = filled.view(host=["crashing"])
    values = {row[1] for _, row in known(ask(filled.url, DATABASE, view.fill(query.text)))}
    assert values == {unknown_value(State.UNSUPPORTED)}


def test_the_worst_of_a_host_leaves_out_the_hotter_card_that_is_lost(filled: Filled) -> None:
    core, card, second = metric("gpu_temperature_celsius"), ("host", "bdf", "gpu"), 10**9
    about = {bdf: labels(gpu=f"GPU-{bdf}", bdf=bdf, sensor="core") for bdf in ("1a", "1b")}
    samples = (
        Sample.ok(core, 60.0, filled.from_ns + second, about["1a"]),
        Sample.ok(core, 95.0, filled.from_ns + second, about["1b"]),
        Sample.unknown(core, State.LOST, filled.from_ns + 2 * second, about["1b"]),
    )
    Influx(filled.url, 0).create("hot")
    body = "\n".join(LineEncoder(labels(host="one")).encode(samples)).encode()
    urllib.request.urlopen(f"{filled.url}/write?db=hot&precision=ns", data=body).close()

    def answers(query: Query) -> list[float]:
        return sorted(row[1] for _, row in known(ask(filled.url, "hot", filled.view().fill(query.text))))

    assert answers(now(core, card, [HOST], "core")) == [unknown_value(State.LOST), 60.0]
    assert answers(worst(core, ("host",), card, [HOST], "core")) == [60.0]
    assert answers(counted(core, ("host",), card, [HOST], "cards", known=False)) == [2]
    assert answers(counted(core, ("host",), card, [HOST], "cards", known=True)) == [1]


def test_a_timeline_shows_both_the_known_and_the_unknown_part(filled: Filled) -> None:
    query = timeline(metric("gpu_temperature_celsius"), ("bdf",), [HOST, GPU], "$tag_bdf")
    rows = known(ask(filled.url, DATABASE, filled.view(host=["losing"]).fill(query.text, 60.0)))
    values = [row[1] for _, row in rows]
    assert unknown_value(State.LOST) in values
    assert any(value > 20 for value in values)
    assert 0 not in values


def test_one_host_chosen_shows_nothing_of_the_other(filled: Filled) -> None:
    for path in FILES:
        for asked in queries(load(path)):
            if "GROUP BY" not in asked.text or '"host"' not in asked.text.rpartition("GROUP BY")[2]:
                continue
            text = filled.view(host=["losing"]).fill(asked.text, asked.min_interval_s)
            hosts = {tags.get("host") for tags, _ in known(ask(filled.url, DATABASE, text))}
            assert hosts <= {"losing"}, asked.where


def test_the_steps_of_a_counter_add_up_to_what_the_run_lost(filled: Filled) -> None:
    run = load(FILES[0].with_name("run.json"))
    asked = next(a for a in queries(run) if "load_requests_failed_total" in a.text)
    view = filled.view(host=["crashing"], run=[filled.runs["crashing"]])
    rows = known(ask(filled.url, DATABASE, view.fill(asked.text, asked.min_interval_s)))
    total = ask(
        filled.url, DATABASE, 'SELECT last("value") FROM "load_requests_failed_total" WHERE "host" = \'crashing\''
    )
    failed = total[0]["values"][0][1]
    assert failed > 0
    assert sum(row[1] for _, row in rows) == failed
    by_class = ask(
        filled.url, DATABASE, "SELECT last(\"value\") FROM load_errors_total WHERE host = 'crashing' GROUP BY class"
    )
    assert sum(one["values"][0][1] for one in by_class) == failed
