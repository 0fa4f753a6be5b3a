from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.model import Event, Finding, Kind, Metric, Sample, Severity, State, labels
from soakd.sinks.delivery import Record
from soakd.sinks.line_protocol import LineEncoder, series_text
from tests.support.readings import ECC, MEMORY, T0, TEMPERATURE, card

GOLDEN = Path(__file__).parent.parent / "fixtures" / "line_protocol" / "records.lp"

RECORDS: tuple[Record, ...] = (
    Sample.ok(TEMPERATURE, 61, T0, card(0)),
    Sample.ok(TEMPERATURE, 61.5, T0 + 1, tuple(sorted((*card(0), ("run", "20261201-0402-ab12"))))),
    Sample.ok(MEMORY, 85899345920, T0, card(1)),
    Sample.ok(MEMORY, 1e300, T0, card(1)),
    Sample.ok(MEMORY, -0.0, T0, card(1)),
    Sample.unknown(TEMPERATURE, State.TIMEOUT, T0, card(0), "no answer in 3 s"),
    Sample.unknown(ECC, State.UNSUPPORTED, T0, card(0)),
    Sample.ok(TEMPERATURE, math.inf, T0, card(0)),
    Sample.ok(TEMPERATURE, 1, T0, labels(host="named by the sample", mount="/a b,c=d", request_id="r-1", empty="")),
    Sample.ok(TEMPERATURE, 1, T0, labels(path="C:\\gpu\\", note="two\nlines\tand more")),
    Event("xid", T0, 'XID 79: "fallen off"\nthe bus \\', Severity.CRITICAL, card(0), labels(code=79, pid="1, 2")),
    Event("gpu.lost", T0, "", labels=labels(kind="its own", gpu="GPU-1")),
    Finding("limit.vram_leak", Severity.CRITICAL, "VRAM grows", "3 %/h", T0, card(0), MEMORY.name, 3.1, "%/h"),
    Finding("rule.GpuXid", Severity.WARNING, "fired", "twice", T0),
)


def test_every_kind_of_record_gives_the_golden_lines() -> None:
    lines = LineEncoder(labels(host="gpu-01")).encode(RECORDS)
    assert lines == GOLDEN.read_text().splitlines()


@pytest.mark.parametrize("state", [state for state in State if state is not State.OK])
def test_unknown_never_looks_like_a_number(state: State) -> None:
    (line,) = LineEncoder().encode([Sample.unknown(TEMPERATURE, state, T0)])
    assert line == f"{TEMPERATURE.name} state={state.code}i {T0}"
    assert state.code != 0


def test_without_texts_nothing_is_a_string() -> None:
    assert not any('"' in line for line in LineEncoder(texts=False).encode(RECORDS))


def test_the_same_record_always_gives_the_same_line() -> None:
    assert LineEncoder().encode(RECORDS) == [LineEncoder().encode([record])[0] for record in RECORDS]


LINE = re.compile(
    r"(?P<name>(?:[^,\s\\]|\\.|\\(?=[^, =]))+)(?P<tags>(?:,(?:\\[,= ]|[^,= \n])+=(?:\\[,= ]|[^,= \n])+)*) \w+=\S+ \d+"
)
AWKWARD = st.text(st.sampled_from('ab,= \\"\n\té\u2028'), max_size=12)


@given(st.dictionaries(AWKWARD, AWKWARD, max_size=4), AWKWARD)
def test_any_tags_stay_one_line_of_three_parts(tags: dict[str, str], text: str) -> None:
    metric = Metric("m_bytes", "bytes", Kind.GAUGE, "h", "s")
    key = tuple(sorted(tags.items()))
    (line,) = LineEncoder(texts=True).encode([Sample.ok(metric, 1.0, T0, key)])
    assert LINE.fullmatch(line), line
    (event,) = LineEncoder().encode([Event("k", T0, text)])
    assert "\n" not in event


def test_a_long_tag_is_cut() -> None:
    assert len(series_text("m", (("t", "x" * 5000),))) < 300
