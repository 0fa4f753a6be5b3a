"""Comparison: on intervals, never on points; not comparable is said with what makes it so."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.errors import ConfigError, SoakdError
from soakd.report.baseline import load_baseline
from soakd.report.compare import Comparison, Subject, compare, judge, subject_of, to_json_bytes
from soakd.report.figures import Latency, Measure
from soakd.report.measures import counted, measures_of, single, windowed
from soakd.report.model import Report
from tests.report import samples

BASELINES = Path(__file__).parents[2] / "configs/baselines"


def measure(value: float | None, low: float | None = None, high: float | None = None, better: str = "lower") -> Measure:
    return Measure(
        "m", "s", value, low, high, "lower" if better == "lower" else "higher" if better == "higher" else "neither"
    )


def differing(report: Report) -> Comparison:
    return compare([subject_of(samples.full()), subject_of(report)])


@pytest.mark.parametrize(
    ("first", "other", "verdict"),
    [
        (measure(1.0, 0.9, 1.1), measure(2.0, 1.9, 2.1), "worse"),
        (measure(2.0, 1.9, 2.1), measure(1.0, 0.9, 1.1), "better"),
        (measure(1.0, 0.9, 1.1, "higher"), measure(2.0, 1.9, 2.1, "higher"), "better"),
        (measure(2.0, 1.9, 2.1, "higher"), measure(1.0, 0.9, 1.1, "higher"), "worse"),
        (measure(1.0, 0.5, 1.5), measure(2.0, 1.4, 2.6), "unknown"),  # twice as slow, but the intervals overlap
        (measure(1.0, 0.99, 1.01), measure(1.005, 0.995, 1.015), "same"),
        (measure(1.0, 0.9, 1.1), measure(1.0, 0.9, 1.1), "unknown"),  # equal points are no proof of equality
        (measure(0.0, 0.0, 0.0), measure(0.0, 0.0, 0.0), "same"),
        (measure(0.0, 0.0, 0.0), measure(1.0, 1.0, 1.0), "worse"),
        (measure(1.0), measure(99.0), "unknown"),
        (measure(1.0, 0.9, 1.1), measure(99.0), "unknown"),
        (measure(None), measure(1.0, 0.9, 1.1), "unknown"),
        (measure(1.0, 0.9, 1.1, "neither"), measure(2.0, 1.9, 2.1, "neither"), "unknown"),
        (measure(1.0, math.nan, 1.1), measure(2.0, 1.9, 2.1), "unknown"),
    ],
)
def test_verdicts(first: Measure, other: Measure, verdict: str) -> None:
    way, why = judge(first, other)
    assert way == verdict
    assert why


_SPAN = st.tuples(st.floats(-1e3, 1e3), st.floats(0, 1e3))


@given(_SPAN, _SPAN)
def test_better_one_way_is_worse_the_other(a: tuple[float, float], b: tuple[float, float]) -> None:
    first, other = (measure(v, v - w, v + w) for v, w in (a, b))
    there, back = judge(first, other)[0], judge(other, first)[0]
    if there in ("better", "worse"):
        assert {there, back} == {"better", "worse"}
    else:
        assert back not in ("better", "worse")


def test_the_json_contract() -> None:
    data = orjson.loads(to_json_bytes(differing(replace(samples.full(), run_id="b"))))
    assert data["comparable"] is True
    assert data["differences"] == []
    row = next(r for r in data["rows"] if r["measure"] == "e2e_p95")
    assert {"measure", "unit", "values", "low", "high", "verdict"} <= set(row)
    assert len(row["values"]) == len(row["low"]) == len(row["high"]) == 2
    assert row["verdict"] == "same"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"profile": "other"}, "profile"),
        ({"duration_s": 600.0}, "duration"),
        ({"gpus": ()}, "hardware"),
        ({"versions": {"soakd": "0.2.0"}}, "soakd version"),
        ({"simulated": True}, "kind of run"),
        ({"profile": ""}, "profile"),
    ],
)
def test_what_makes_runs_incomparable(change: dict[str, object], what: str) -> None:
    found = differing(replace(samples.full(), **change))  # type: ignore[arg-type]
    assert not found.comparable
    assert [d.what for d in found.differences if d.decisive] == [what]


def test_another_server_on_the_same_hardware_is_what_one_compares() -> None:
    report = samples.full()
    found = differing(replace(report, target=replace(report.target, server="llama.cpp")))
    assert found.comparable
    assert [(d.what, d.decisive) for d in found.differences] == [("server", False)]
    assert not differing(replace(report, target=replace(report.target, model="other"))).comparable


def test_a_patch_release_and_a_few_seconds_more_do_not_matter() -> None:
    report = replace(samples.full(), versions={"soakd": "0.1.9"}, duration_s=7290.0)
    assert differing(report).differences == ()


def test_one_run_is_not_a_comparison() -> None:
    with pytest.raises(SoakdError, match="1 runs to compare"):
        compare([subject_of(samples.full())])


def test_three_sides_are_each_held_against_the_first() -> None:
    sides = [
        Subject(n, "run", (), (measure(v, v - 0.1, v + 0.1),), 60.0) for n, v in (("a", 1.0), ("b", 2.0), ("c", 0.5))
    ]
    [row] = compare(sides).rows
    assert row.verdicts == ("worse", "better")
    assert row.verdict == "better"


def test_a_measure_of_one_side_only_is_a_row_with_an_unknown() -> None:
    a = Subject("a", "run", (), (measure(1.0, 0.9, 1.1),), 60.0)
    [row] = compare([a, Subject("b", "run", (), (), 60.0)]).rows
    assert row.values == (1.0, None)
    assert row.verdict == "unknown"


def test_intervals_of_windows_hold_the_truth_though_windows_are_correlated() -> None:
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(300):
        noise = np.zeros(720)
        for i in range(1, 720):
            noise[i] = 0.9 * noise[i - 1] + rng.normal(0, 0.02)
        values = 0.4 + noise
        found = windowed("e2e_p95", "seconds", float(values.mean()), values.tolist())
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0.4 <= found.high
    assert held >= 290


def test_few_windows_or_unknown_ones_give_no_interval() -> None:
    assert windowed("x", "s", 1.0, [1.0] * 9).low is None
    assert windowed("x", "s", None, [1.0] * 99).low is None
    assert windowed("x", "s", 1.0, [None, math.nan] * 50).low is None
    steady = windowed("x", "s", 1.0, [1.0] * 50)
    assert (steady.low, steady.high, steady.points) == (1.0, 1.0, 50)
    assert single("x", "s", 1.0).low is None


def test_counts_of_rare_things_carry_their_chance() -> None:
    none, one, forty = (counted("outages", n) for n in (0.0, 1.0, 40.0))
    assert none.high == pytest.approx(5.298, abs=1e-3)
    assert (one.low, one.high) == pytest.approx((0.005, 7.43), abs=1e-2)
    assert judge(none, one)[0] == "unknown"
    assert judge(none, forty)[0] == "worse"
    assert counted("outages", None).low is None


def test_measures_of_a_report() -> None:
    report = samples.full()
    found = {m.name: m for m in measures_of(report, {"e2e_p95": [0.74, 0.75] * 100})}
    assert found["e2e_p95"].low is not None
    assert found["e2e_p50"].low is None
    assert found["error_ratio"].value == pytest.approx(11_164 / (204_812 + 11_164))
    assert found["recovery_time"].value == pytest.approx(90.0)
    assert found["growth of gpu_memory_used_bytes"].unit == "bytes/hour"
    assert found["vram_leak"].value == pytest.approx(0.0119, abs=1e-4)
    assert found["vram_leak"].low == pytest.approx(0.00336, abs=1e-4)
    assert found["gpu_temperature"].value == pytest.approx(77.8)
    assert "gpu_temperature" not in {m.name for m in measures_of(samples.empty(), {})}


def test_one_card_that_could_not_be_read_makes_the_figure_of_all_unknown() -> None:
    report = samples.full()
    first = replace(report.gpus[0], throttled_s=None, ecc_uncorrected_increase=None)
    found = {m.name: m for m in measures_of(replace(report, gpus=(first, report.gpus[1])), {})}
    assert found["gpu_throttled"].value is None
    assert found["ecc_uncorrected"].value is None
    assert found["vram_peak"].value == report.gpus[0].memory_used_bytes.high


def test_the_article_side_by_side() -> None:
    found = compare(
        [load_baseline(BASELINES / "article-llamacpp.yaml"), load_baseline(BASELINES / "article-1cat-vllm.yaml")]
    )
    assert found.comparable
    rows = {r.measure: r for r in found.rows}
    assert rows["vram_leak"].values == (0.087, 0.012)
    assert rows["vram_leak"].verdict == "unknown", "neither figure was printed with an interval"
    assert rows["single_card_ttft"].verdict == "better"
    assert rows["gpu_temperature"].verdict == "unknown", "85 +/- 5 and 78 +/- 2 touch"
    assert rows["long_context_ttft_p95"].values == (None, 1.84)


def test_a_run_against_the_article_says_why_it_is_another_question() -> None:
    run = replace(samples.full(), load=replace(samples.full().load, e2e_s=Latency()), measures=())
    found = compare([load_baseline(BASELINES / "article-llamacpp.yaml"), subject_of(run)])
    assert not found.comparable
    assert {"load", "model", "hardware"} <= {d.what for d in found.differences if d.decisive}
    assert "soakd version" not in {d.what for d in found.differences}
    assert "vram_leak" in {r.measure for r in found.rows if None not in r.values}


@pytest.mark.parametrize("path", sorted(BASELINES.glob("*.yaml")), ids=lambda p: p.name)
def test_every_baseline_shipped_loads(path: Path) -> None:
    subject = load_baseline(path)
    assert subject.kind == "baseline"
    assert subject.source


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: x\ntitle: y\n", "provenance"),
        ("nam: x\n", "nam: unknown key"),
        ("measures: []\n", "measures"),
        ("[1, 2]\n", "found"),
    ],
)
def test_a_wrong_baseline_names_file_and_key(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "b.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_baseline(path)
    assert "b.yaml" in str(caught.value)
    assert says in str(caught.value)


def test_a_wrong_duration_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "b.yaml"
    path.write_text((BASELINES / "article-llamacpp.yaml").read_text().replace("duration: 2h", "duration: long"))
    with pytest.raises(ConfigError, match=r"b.yaml:\d+: conditions.duration: 'long' is not a duration"):
        load_baseline(path)
