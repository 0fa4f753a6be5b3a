"""Time in temperature bands and the swing of a window."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from soakd.nvml.bands import Band, BandClock, SwingWindow

SECOND = 10**9


def test_78_plus_minus_2() -> None:
    band = Band.around("b", 78, 2)
    assert [band.side(t) for t in (75.9, 76, 78, 80, 80.1)] == ["below", "in", "in", "in", "above"]


def test_time_is_counted_from_the_second_reading_on() -> None:
    clock = BandClock(Band.around("b", 78, 2), max_gap_s=30)
    for n, temperature in enumerate([70, 77, 78, 81]):
        clock.add(temperature, n * SECOND)
    assert clock.seconds == {"below": 0.0, "in": 2.0, "above": 1.0, "unknown": 0.0}


def test_a_gap_and_an_unknown_reading_are_unknown_time() -> None:
    clock = BandClock(Band.around("b", 78, 2), max_gap_s=30)
    clock.add(78, 0)
    clock.add(None, SECOND)
    clock.add(78, 100 * SECOND)
    assert clock.seconds["in"] == 0.0
    assert clock.seconds["unknown"] == 100.0


@given(st.lists(st.tuples(st.one_of(st.none(), st.floats(-50, 150)), st.integers(1, 60)), min_size=2, max_size=40))
def test_the_sides_add_up_to_the_time_that_passed(readings: list[tuple[float | None, int]]) -> None:
    clock = BandClock(Band.around("b", 78, 2), max_gap_s=30)
    now = 0
    for temperature, pause in readings:
        now += pause
        clock.add(temperature, now * SECOND)
    assert sum(clock.seconds.values()) == now - readings[0][1]


def test_the_window_forgets() -> None:
    window = SwingWindow(100)
    window.add(90, 0)
    assert window.add(80, 50 * SECOND).amplitude == 10
    swing = window.add(81, 101 * SECOND)
    assert (swing.low, swing.high, swing.amplitude) == (80, 81, 1)


def test_the_window_is_bounded() -> None:
    window = SwingWindow(100)
    for n in range(10_000):
        window.add(n % 7, n * SECOND)
    assert len(window._blocks) <= 10
