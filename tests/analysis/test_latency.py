from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from soakd.analysis.latency import LatencyQuestion, Trend, coincidences, decode_retention, judge_latency
from soakd.analysis.series import Floats
from soakd.model import Event

Draw = Callable[..., Floats]
X = np.arange(15.0, 7200.0, 30.0)
START_NS = 1_700_000_000_000_000_000


def windows(noise: Draw, seed: int, sigma: float = 0.1) -> Floats:
    return np.asarray(0.8 * np.exp(noise(len(X), seed, sigma, 0.5)))


def test_constant_load_and_constant_latency_change_nowhere(noise: Draw) -> None:
    found = [judge_latency(LatencyQuestion(X, windows(noise, s))) for s in range(20)]
    assert sum(len(j.changes) for j in found) <= 1
    assert sum(j.trend is Trend.WORSE for j in found) <= 1


def test_a_rise_of_a_quarter_an_hour_is_worse_and_a_trend(noise: Draw) -> None:
    found = [judge_latency(LatencyQuestion(X, windows(noise, s) * 1.25 ** (X / 3600))) for s in range(8)]
    assert sum(j.trend is Trend.WORSE for j in found) >= 5
    assert all(j.trend is Trend.WORSE or any(c.ratio > 1 for c in j.changes) for j in found)
    assert np.median([j.slope or 0.0 for j in found]) == pytest.approx(np.log(1.25), abs=0.08)


def test_falling_throughput_is_worse(noise: Draw) -> None:
    y = windows(noise, 1, 0.03) * 0.8 ** (X / 3600)
    assert judge_latency(LatencyQuestion(X, y, more_is_worse=False)).trend is Trend.WORSE
    assert judge_latency(LatencyQuestion(X, y)).trend is Trend.BETTER


def test_a_change_of_load_is_not_one_of_the_server(noise: Draw) -> None:
    load = np.where(X < 3600, 8.0, 16.0)
    y = windows(noise, 2, 0.05) * load / 8
    assert len(judge_latency(LatencyQuestion(X, y)).changes) == 1
    assert judge_latency(LatencyQuestion(X, y, load=load)).changes == ()


def test_a_change_is_named_with_what_happened_then(noise: Draw) -> None:
    y = windows(noise, 3) * np.where(X < 4000, 1.0, 2.0)
    judged = judge_latency(LatencyQuestion(X, y, name="E2E P95"))
    assert [round(c.ratio, 1) for c in judged.changes] == [2.0]
    restart = Event("server.restart", START_NS + 3960 * 10**9, "the server restarted")
    other = Event("gpu.found", START_NS + 100 * 10**9, "a card was found")
    (match,) = coincidences(judged, [other, restart], START_NS)
    assert match.events == (restart,)
    assert "E2E P95 doubled" in match.what
    assert "after the restart (the server restarted)" in match.what
    (alone,) = coincidences(judged, [other], START_NS)
    assert "no event" in alone.what


def test_one_stalled_window_is_no_change(noise: Draw) -> None:
    y = windows(noise, 4)
    y[100] *= 50
    assert judge_latency(LatencyQuestion(X, y)).changes == ()


@pytest.mark.parametrize("n", [0, 1, 11])
def test_few_windows_settle_nothing(n: int) -> None:
    found = judge_latency(LatencyQuestion(X[:n], np.ones(n)))
    assert (found.trend, found.slope) == (Trend.INCONCLUSIVE, None)


def test_retention_compares_disjoint_windows_of_the_same_kind() -> None:
    x = np.arange(40.0)
    kinds = ["short", "long"] * 20
    rate = np.where(np.arange(40) % 2 == 0, 50.0, 30.0) * np.where(x < 20, 1.0, 0.7)
    found = decode_retention(x, rate, kinds)
    assert found.ratio == pytest.approx(0.7)
    assert found.first is not None
    # long turns only at the end must not pass for a loss
    mixed = decode_retention(x, np.where(x < 30, 50.0, 30.0), ["a"] * 30 + ["b"] * 10)
    assert mixed.ratio is None
    assert "no kind of turn" in mixed.why


def test_retention_needs_two_disjoint_quarters() -> None:
    assert decode_retention(np.arange(7.0), np.ones(7)).ratio is None
    assert decode_retention(np.arange(8.0), np.ones(8)).ratio == pytest.approx(1.0)
