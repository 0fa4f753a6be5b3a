"""The JSON contract: names, order, unknown as null, what is read back."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.resources import files

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.errors import SoakdError
from soakd.model import Event, Finding, LimitResult, Outcome, Severity
from soakd.report.figures import Latency
from soakd.report.model import SCHEMA, EventLine, FindingLine, LimitLine, from_json, iso, json_schema, to_json_bytes
from tests.report import golden, samples

CONTRACT = ["schema", "run_id", "outcome", "simulated", "started_at", "duration_s", "target", "load", "limits",
            "findings", "events", "outages"]  # fmt: skip
LOAD = {"offered", "started", "completed", "failed", "dropped", "rate_per_s", "concurrency_asked",
        "concurrency_achieved", "output_tokens_per_s", "errors", "ttft_s", "ttft_from_due_s", "itl_s",
        "e2e_s"}  # fmt: skip


def test_the_names_of_the_contract_are_there_and_first() -> None:
    data = orjson.loads(to_json_bytes(samples.full()))
    assert list(data)[: len(CONTRACT)] == CONTRACT
    assert data["schema"] == SCHEMA == "soakd.report/1"
    assert data["outcome"] == "FAIL"
    assert set(data["load"]) >= LOAD
    assert list(data["load"]["e2e_s"]) == ["p50", "p90", "p95", "p99", "max", "mean", "count"]
    assert {"url", "kind", "model"} <= set(data["target"])
    assert {"name", "outcome", "value", "limit", "unit", "coverage", "why"} <= set(data["limits"][0])
    assert {"at", "kind", "what"} <= set(data["events"][0])
    assert {"start", "first_success", "recovered", "requests_lost"} <= set(data["outages"][0])
    assert data["limits"][4]["outcome"] == "NOT_JUDGED"


@pytest.mark.parametrize("name", ["full", "empty", "interrupted", "many"])
def test_a_report_is_read_back_as_it_was(name: str) -> None:
    report = getattr(samples, name)()
    assert from_json(to_json_bytes(report)) == report


def test_golden_json() -> None:
    golden.check("full.json", to_json_bytes(samples.full()).decode())
    golden.check("empty.json", to_json_bytes(samples.empty()).decode())


def test_what_is_not_finite_is_unknown_and_never_in_the_json() -> None:
    report = samples.full()
    broken = replace(report, duration_s=math.nan, load=replace(report.load, rate_per_s=math.inf,
                                                              e2e_s=Latency(math.nan)))  # fmt: skip
    raw = to_json_bytes(broken)
    assert b"NaN" not in raw
    assert b"Infinity" not in raw
    back = from_json(raw)
    assert back.duration_s is None
    assert back.load.rate_per_s is None
    assert back.load.e2e_s.p50 is None


def test_mappings_are_in_the_order_of_their_keys() -> None:
    report = samples.full()
    shuffled = replace(report, load=replace(report.load, errors=dict(reversed(list(report.load.errors.items())))))
    assert to_json_bytes(shuffled) == to_json_bytes(report)


def test_text_that_is_not_utf8_and_counts_beyond_64_bits_still_give_json() -> None:
    report = replace(samples.hostile(), events_left_out=2**70)
    data = orjson.loads(to_json_bytes(report))
    assert data["load"]["errors"]
    assert data["events_left_out"] == pytest.approx(2.0**70)


def test_keys_of_a_newer_soakd_are_ignored() -> None:
    data = orjson.loads(to_json_bytes(samples.full()))
    data["later"] = {"x": 1}
    data["load"]["later"] = 2
    data["limits"][0]["later"] = 3
    assert from_json(orjson.dumps(data)) == samples.full()


def test_the_schema_file_is_the_model() -> None:
    shipped = files("soakd.report").joinpath("schema/report-1.json").read_bytes()
    assert orjson.loads(shipped) == json_schema()


def test_the_schema_requires_the_contract_and_lets_figures_be_null() -> None:
    schema = orjson.loads(orjson.dumps(json_schema()))
    assert set(CONTRACT) <= set(schema["required"])
    load = schema["$defs"]["Load"]
    assert set(load["required"]) >= LOAD
    assert {"type": "null"} in load["properties"]["rate_per_s"]["anyOf"]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not a soakd report"),
        (b"<html>", "not a soakd report"),
        (b"[]", "its schema is None"),
        (b'{"schema": "soakd.report/9"}', "soakd.report/9"),
        (b'{"schema": "soakd.report/1"}', "damaged soakd report: run_id"),
    ],
)
def test_what_is_not_a_report_is_refused_in_words(data: bytes, says: str) -> None:
    with pytest.raises(SoakdError, match=says):
        from_json(data)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    with pytest.raises(SoakdError):
        from_json(data)


def test_lines_come_from_the_core_types() -> None:
    start = 1_764_561_600_000_000_000
    event = EventLine.of(Event("xid", start + 1_500_000_000, "x", Severity.WARNING, (("a", "b"),)), start)
    assert (event.t_s, event.at, event.labels) == (1.5, "2025-12-01T04:00:01.500Z", {"a": "b"})
    finding = FindingLine.of(Finding("s", Severity.INFO, "t", "d", start - 2_000_000_000), start)
    assert finding.t_s == -2.0
    result = LimitResult("n", Outcome.PASS, 1.0, 2.0, "s", 0.5, "w")
    assert LimitLine.of(result, user_set=True, needs_s=9.0).needs_s == 9.0
    assert iso(start) == "2025-12-01T04:00:00.000Z"
