from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.journal.codec import Rows
from soakd.journal.rollup import Steps, decode_steps, encode_steps, gains, increases, merge, roll


def rows(readings: list[tuple[int, float | None]]) -> Rows:
    return Rows(
        np.zeros(len(readings), np.int64),
        np.array([at for at, _ in readings], np.int64),
        np.array([0 if v is not None else 4 for _, v in readings], np.uint8),
        np.array([math.nan if v is None else v for _, v in readings], np.float64),
    )


def test_a_step_keeps_what_a_chart_needs() -> None:
    steps = roll(rows([(0, 5.0), (10, 1.0), (59, 3.0), (60, 7.0), (61, None), (130, None)]), 60)
    assert steps.start_ns.tolist() == [0, 60, 120]
    assert steps.count.tolist() == [3, 1, 0]
    assert steps.unknown.tolist() == [0, 1, 1]
    assert steps.minimum[:2].tolist() == [1.0, 7.0]
    assert steps.maximum[:2].tolist() == [5.0, 7.0]
    assert steps.total[:2].tolist() == [9.0, 7.0]
    assert (steps.first[0], steps.last[0]) == (5.0, 3.0)
    assert math.isnan(steps.last[2])


@pytest.mark.parametrize(
    ("values", "wraps_at", "gained"),
    [
        ([1, 3, 6], None, 5.0),
        ([10, 12, 2, 5], None, 7.0),
        ([2**32 - 5, 3], 2**32, 8.0),
        ([100, 3], 2**32, 3.0),
        ([7], None, 0.0),
    ],
)
def test_a_decrease_starts_an_epoch_and_a_wrap_does_not(values: list[int], wraps_at: int | None, gained: float) -> None:
    assert gains(np.array(values, np.float64), wraps_at).sum() == gained


READINGS = st.lists(
    st.tuples(st.integers(0, 5000), st.one_of(st.none(), st.integers(0, 1000).map(float))), max_size=80
).map(lambda found: sorted(found, key=lambda reading: reading[0]))


@given(READINGS, st.lists(st.integers(0, 5000), max_size=3))
def test_cutting_anywhere_and_merging_changes_nothing(
    readings: list[tuple[int, float | None]], cuts: list[int]
) -> None:
    edges = [0, *sorted(cuts), 10**6]
    pieces = [[r for r in readings if low <= r[0] < high] for low, high in itertools.pairwise(edges) if low < high]
    fine = [roll(rows(piece), 60) for piece in pieces if piece]
    same(merge(fine, 600), roll(rows(readings), 600))


def test_the_increase_between_steps_is_not_lost() -> None:
    steps = roll(rows([(0, 1.0), (30, 2.0), (60, 5.0), (200, 6.0), (210, 2.0)]), 60)
    assert increases(steps, None).tolist() == [1.0, 3.0, 3.0]


@given(READINGS.filter(bool))
def test_steps_survive_packing(readings: list[tuple[int, float | None]]) -> None:
    steps = roll(rows(readings), 60)
    same(decode_steps(encode_steps(steps), len(steps)), steps)


def same(one: Steps, other: Steps) -> None:
    for name in ("start_ns", "count", "unknown", "minimum", "maximum", "total", "first", "last", "gain"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
