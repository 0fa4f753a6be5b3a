"""Thinning and geometry: bounded, honest about gaps, everything on one axis."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.model import Severity
from soakd.report import plot
from soakd.report.charts import MAX_POINTS, Charts, ChartSeries, thin
from soakd.report.model import EventLine, Report
from tests.report import samples


def lay_out(*series: ChartSeries, report: Report | None = None, duration: float = 100.0) -> plot.Page:
    return plot.lay_out(report or samples.empty(), Charts(duration, series))


@given(st.lists(st.tuples(st.floats(0, 1e5), st.floats(-1e9, 1e9) | st.just(math.nan)), max_size=2000))
def test_thinned_series_are_bounded_ordered_and_within_their_readings(points: list[tuple[float, float]]) -> None:
    times, values = [t for t, _ in points], [v for _, v in points]
    series = thin("x", "s", "latency", times, values, points=50)
    known = [v for v in values if not math.isnan(v)]
    assert sum(v is not None for v in series.mean) <= max(50, min(len(known), 50) + 1)
    assert list(series.t_s) == sorted(series.t_s)
    for column in (series.mean, series.low, series.high):
        assert all(v is None or min(known) - 1e-3 <= v <= max(known) + 1e-3 for v in column)
    if series.low:
        kept = [v for v in series.low if v is not None], [v for v in series.high if v is not None]
        assert min(kept[0]) == min(known)
        assert max(kept[1]) == max(known)


def test_two_hours_at_one_a_second_fit_and_a_spike_survives() -> None:
    values = [1.0] * 7200
    values[5000] = 99.0
    series = thin("x", "s", "latency", [float(t) for t in range(7200)], values)
    assert len(series.t_s) <= MAX_POINTS
    assert max(v for v in series.high if v is not None) == 99.0


def test_a_hole_is_a_gap_and_not_a_line() -> None:
    times = [float(t) for t in (*range(50), *range(90, 140))]
    series = thin("x", "s", "latency", times, [1.0] * len(times))
    assert series.mean.count(None) == 1
    [chart] = lay_out(series, duration=140.0).charts
    assert chart.lines[0].path.count("M") == 2


def test_columns_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="lengths differ"):
        ChartSeries("x", "s", "latency", (0.0, 1.0), (1.0,))


def test_every_point_lies_in_the_plot_and_the_time_axis_is_one() -> None:
    page = plot.lay_out(samples.full(), samples.charts())
    assert [c.title for c in page.charts] == ["Latency", "Rate", "gpu memory used", "rss", "Temperature", "Errors"]
    for chart in page.charts:
        for line in chart.lines:
            for px, py in re.findall(r"[ML](\S+?) ([-\d.e]+)", line.path + line.band):
                assert plot.LEFT <= float(px) <= plot.WIDTH - plot.RIGHT
                assert plot.TOP <= float(py) <= plot.TOP + plot.PLOT_HEIGHT
    outage = page.outages[0]
    middle = plot.LEFT + 3600 / 7204.5 * (plot.WIDTH - plot.LEFT - plot.RIGHT)
    assert outage.x == pytest.approx(middle, abs=0.1)
    assert page.marks[1].x == pytest.approx(middle, abs=0.1)
    assert [t.label for t in page.ticks[:3]] == ["0s", "15m", "30m"]


def test_latency_starts_at_zero_and_memory_shows_a_few_pages() -> None:
    page = plot.lay_out(samples.full(), samples.charts())
    latency, memory = page.charts[0], page.charts[2]
    assert latency.from_zero
    assert not memory.from_zero
    lowest, highest = memory.ticks[0], memory.ticks[-1]
    assert (lowest.label, highest.label) == ("28,150 MiB", "28,180 MiB")
    assert memory.limits[0].y is None, "a limit far above would flatten the steps"


def test_an_outage_that_never_ended_reaches_the_end() -> None:
    page = plot.lay_out(samples.interrupted(), Charts(660.0))
    assert page.outages[0].x + page.outages[0].width == pytest.approx(plot.WIDTH - plot.RIGHT, abs=0.2)
    assert "not back" in page.outages[0].label


def test_events_in_one_place_are_one_mark_of_the_worst() -> None:
    events = tuple(
        EventLine("", "k", f"e{i}", Severity.CRITICAL if i == 3 else Severity.INFO, 50.0 + i / 1000) for i in range(9)
    )
    report = samples.empty()
    page = plot.lay_out(replace(report, events=events), Charts(100.0))
    [mark] = page.marks
    assert (mark.severity, mark.count) == ("critical", 9)
    assert "e3" in mark.label
    assert "8 more" in mark.label


def test_more_lines_than_can_be_told_apart_are_counted() -> None:
    series = [
        ChartSeries("m_bytes", "bytes", "memory", (0.0, 1.0), (1.0, 2.0), labels={"gpu": str(i)}) for i in range(20)
    ]
    [chart] = lay_out(*series).charts
    assert len(chart.lines) == plot.MAX_LINES
    assert chart.left_out == 20 - plot.MAX_LINES


@pytest.mark.parametrize("value", [0.0, 1e-9, 1e15, -5.0, 2.0**40])
@pytest.mark.parametrize("unit", ["seconds", "bytes", "ratio", "", "celsius", "bytes/hour"])
@pytest.mark.parametrize("panel", ["latency", "memory", "temperature", "other", "no such panel"])
def test_a_constant_of_any_size_can_be_drawn(value: float, unit: str, panel: str) -> None:
    [chart] = lay_out(ChartSeries("x", unit, panel, (0.0, 50.0), (value, value))).charts
    assert 2 <= len(chart.ticks) <= 9
    assert chart.lines[0].path.startswith("M")
    assert "nan" not in chart.lines[0].path


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=1, max_size=30))
def test_any_readings_can_be_drawn(values: list[float]) -> None:
    page = lay_out(ChartSeries("x", "s", "latency", [float(i) for i in range(len(values))], values))
    assert len(page.charts) == any(math.isfinite(v) for v in values)
    for chart in page.charts:
        assert not re.search("nan|inf", chart.lines[0].path)


def test_nothing_to_draw_is_no_chart() -> None:
    assert lay_out().charts == ()
    assert lay_out(ChartSeries("x", "s", "latency", (0.0,), (None,))).charts == ()
    assert plot.lay_out(samples.empty(), Charts(math.nan)).duration_s == 1.0


def test_errors_that_never_were_are_named_and_not_drawn() -> None:
    zero = [
        ChartSeries("PCIe errors", "errors/min", "errors", (0.0, 1.0), (0.0, 0.0), labels={"n": str(i)})
        for i in range(8)
    ]
    once = ChartSeries("ECC errors", "errors/min", "errors", (0.0, 1.0), (0.0, 0.0), (0.0, 0.0), (0.0, 1.0))
    idle = ChartSeries("rate", "requests/s", "rate", (0.0, 1.0), (0.0, 0.0))
    page = lay_out(*zero, once, idle)
    assert page.quiet == ("PCIe errors (8 series)",)
    assert [c.title for c in page.charts] == ["Rate", "Errors"], "a peak in a bin is an error; a rate of zero is news"


def test_a_line_bears_only_the_labels_that_tell_it_from_the_others() -> None:
    cards = [
        ChartSeries(
            "core", "celsius", "temperature", (0.0,), (70.0,), labels={"bdf": b, "gpu": "GPU-" + b, "sensor": "core"}
        )
        for b in ("0000:1a:00.0", "0000:1b:00.0")
    ]
    [chart] = lay_out(*cards).charts
    assert [line.label for line in chart.lines] == ["core (bdf=0000:1a:00.0)", "core (bdf=0000:1b:00.0)"]
    [chart] = lay_out(cards[0]).charts
    assert chart.lines[0].label == "core"
