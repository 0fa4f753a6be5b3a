from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from soakd.analysis.blocks import MOST_BLOCKS, BlockBuilder, clean, summarise


def test_clean_sorts_drops_unknown_and_joins_equal_times() -> None:
    x, y, load = clean(
        np.array([3.0, 1.0, np.nan, 2.0, 2.0, 4.0]),
        np.array([30.0, 10.0, 5.0, 20.0, 22.0, np.nan]),
        np.array([3.0, 1.0, 0.0, 2.0, 4.0, 9.0]),
    )
    assert x.tolist() == [1.0, 2.0, 3.0]
    assert y.tolist() == [10.0, 21.0, 30.0]
    assert load is not None
    assert load.tolist() == [1.0, 3.0, 3.0]


def test_lengths_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="x has 2 readings"):
        clean(np.zeros(2), np.zeros(3))


def test_a_single_bad_low_reading_does_not_set_a_block_level() -> None:
    y = np.full(7200, 100.0)
    y[100] = 0.0
    assert summarise(np.arange(7200.0), y).low.min() == 100.0


def test_the_load_of_a_block_is_that_of_its_level() -> None:
    x = np.arange(7200.0)
    load = x % 7
    b = summarise(x, 10.0 * load, load)
    assert b.load is not None
    assert np.allclose(b.low, 10.0 * b.load)


@settings(max_examples=30, deadline=None)
@given(arrays(np.float64, st.integers(1, 3000), elements=st.floats(-1e6, 1e6)))
def test_a_builder_loses_no_reading_and_no_extreme(y: np.ndarray) -> None:
    builder = BlockBuilder()
    for i, value in enumerate(y):
        builder.add(float(i), float(value))
    b = builder.blocks()
    assert b.readings == len(y) == builder.taken
    assert len(b) <= MOST_BLOCKS
    assert b.high.max() == y.max()
    rises = np.diff(y, prepend=y[0])
    assert b.up.max() == rises.max()
    assert b.down.min() == rises.min()
    assert (np.diff(b.first_x) > 0).all()


def test_a_builder_says_what_whole_arrays_say_about_a_long_run() -> None:
    rng = np.random.default_rng(5)
    x, y = np.arange(50_000.0), np.cumsum(rng.standard_normal(50_000))
    builder = BlockBuilder()
    for a, v in zip(x, y, strict=True):
        builder.add(float(a), float(v))
    built, whole = builder.blocks(), summarise(x, y)
    assert np.corrcoef(np.interp(whole.x, built.x, built.low), whole.low)[0, 1] > 0.99
    assert built.up_x[built.up.argmax()] == whole.up_x[whole.up.argmax()]


def test_a_builder_refuses_what_goes_back_or_is_no_number() -> None:
    builder = BlockBuilder()
    for x, y in ((1.0, 1.0), (1.0, 2.0), (0.5, 3.0), (2.0, np.nan), (3.0, 4.0)):
        builder.add(x, y)
    assert builder.refused == 3
    assert builder.blocks().low.tolist() == [1.0, 4.0]


def test_coarser_blocks_keep_minima_and_jumps() -> None:
    y = np.random.default_rng(1).standard_normal(2400)
    y[1200:] += 50.0
    fine = summarise(np.arange(2400.0), y)
    coarse = fine.coarser(4)
    assert len(coarse) == len(fine) // 4
    assert coarse.low.min() == fine.low.min()
    assert coarse.up_x[coarse.up.argmax()] == 1200.0
