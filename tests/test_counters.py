"""Change of counters over restarts and wraps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.counters import Increase, increase
from soakd.journal.rollup import gains


def test_the_first_reading_is_never_an_increase() -> None:
    # PCIe error counters of a card start above zero
    assert increase([874]) == 0
    assert increase([874, 874, 875]) == 1


def test_a_restart_is_not_a_burst() -> None:
    # driver reload: 1,000 becomes 3; the absolute difference of 997 would read as a burst of errors
    assert increase([1000, 1000, 3, 3, 4]) == 4


def test_a_narrow_counter_wraps() -> None:
    assert increase([2**32 - 100, 50, 60], wraps_at=2**32) == 160


def test_epochs_are_counted() -> None:
    counter = Increase()
    for reading in (5, 7, 0, 1, 0):
        counter.add(reading)
    assert (counter.total, counter.epochs) == (3, 3)


@given(st.lists(st.lists(st.integers(0, 1000), min_size=1, max_size=6), min_size=1, max_size=6))
def test_the_sum_over_epochs_is_what_was_counted(steps: list[list[int]]) -> None:
    """Each epoch counts up from zero; the truth is everything counted after the first reading.

    An epoch whose first reading is not below the last one can't be told from growth, so it is made to be.
    """
    readings: list[int] = []
    truth = 0
    for epoch in steps:
        level = 0
        for n, step in enumerate(epoch):
            level += step if readings and n else 0
            truth += step if readings and n else 0
            readings.append(level)
    assert increase(readings) == truth


@given(st.lists(st.integers(0, 2**31 - 1), max_size=50))
def test_a_counter_that_gains_less_than_half_its_width_between_readings_is_followed_through_wraps(
    steps: list[int],
) -> None:
    level, readings = 0, [0]
    for step in steps:
        level = (level + step) % 2**32
        readings.append(level)
    assert increase(readings, wraps_at=2**32) == sum(steps)


@pytest.mark.parametrize(
    ("before", "after", "gain"),
    [
        (1000, 3, 3),  # a driver reload early in the life of a narrow counter: 4 GiB of traffic would be invented
        (2**32 - 100, 2**32 - 200, 2**32 - 200),  # fell, but not to the lower half
        (2**31 + 1, 5, 2**31 + 4),
    ],
)
def test_a_decrease_that_is_no_wrap_starts_a_new_epoch(before: int, after: int, gain: int) -> None:
    counter = Increase(2**32)
    counter.add(before)
    assert counter.add(after) == gain
    assert counter.epochs == (1 if gain > 2**31 and after < 2**31 else 2)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=2, max_size=30), st.sampled_from([None, 2**32]))
def test_rules_and_roll_ups_count_alike(readings: list[int], wraps_at: int | None) -> None:
    counter = Increase(wraps_at)
    one_by_one = [counter.add(value) for value in readings][1:]
    assert one_by_one == gains(np.asarray(readings, np.float64), wraps_at).tolist()
