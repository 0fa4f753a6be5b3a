from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from soakd.journal.codec import Packer, Rows, Unpacker, decode_rows, encode_rows

TIMES = st.integers(-(2**61), 2**61)


@given(
    st.lists(
        st.tuples(st.integers(0, 2**43), TIMES, st.integers(0, 5), st.floats(allow_nan=False)), min_size=1, max_size=300
    )
)
def test_every_bit_comes_back(readings: list[tuple[int, int, int, float]]) -> None:
    commits, at_ns, states, values = zip(*readings, strict=True)
    rows = Rows(
        np.array(commits, np.int64),
        np.array(at_ns, np.int64),
        np.array(states, np.uint8),
        np.array([v if s == 0 else math.nan for v, s in zip(values, states, strict=True)]),
    )
    back = decode_rows(encode_rows(rows), len(rows))
    assert (back.commits == rows.commits).all()
    assert (back.at_ns == rows.at_ns).all()
    assert (back.states == rows.states).all()
    assert back.values[rows.states == 0].tobytes() == rows.values[rows.states == 0].tobytes()
    assert np.isnan(back.values[rows.states != 0]).all()


@given(hnp.arrays(np.float64, st.integers(1, 100), elements=st.floats(width=64)))
def test_floats_of_any_kind_keep_their_bits(values: np.typing.NDArray[np.float64]) -> None:
    packer = Packer()
    packer.floats(values)
    assert Unpacker(packer.done()).floats(len(values)).tobytes() == values.tobytes()


@pytest.mark.parametrize("value", [-0.0, math.inf, 2.0**53, 2.0**60, 5e-324, 0.1 + 0.2, 1e300])
def test_awkward_values_keep_their_bits(value: float) -> None:
    packer = Packer()
    packer.floats(np.array([0.0, value, 1.0]))
    assert Unpacker(packer.done()).floats(3).tobytes() == np.array([0.0, value, 1.0]).tobytes()


@given(st.lists(st.integers(0, 10**7), min_size=2, max_size=300))
def test_milliwatts_given_as_watts_pack_as_whole_numbers(milliwatts: list[int]) -> None:
    watts, whole = Packer(), Packer()
    watts.floats(np.array([m / 1000 for m in milliwatts]))
    whole.whole(np.array(milliwatts, np.int64))
    assert len(watts.done()) <= len(whole.done()) + 8


def test_a_steady_series_costs_next_to_nothing() -> None:
    n = 512
    rows = Rows(
        np.arange(n, dtype=np.int64), np.arange(n, dtype=np.int64) * 10**9, np.zeros(n, np.uint8), np.full(n, 62.0)
    )
    assert len(encode_rows(rows)) < 120


@pytest.mark.parametrize("damaged", [b"", b"\x07abc", b"\x01abc"])
def test_damage_is_named(damaged: bytes) -> None:
    with pytest.raises(ValueError, match="damaged"):
        decode_rows(damaged, 3)
