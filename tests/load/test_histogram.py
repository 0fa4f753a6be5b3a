from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.load.histogram import BUCKETS, Histogram, bucket, bucket_edge_ns, bucket_shift
from soakd.load.meter import absorb_gaps

DURATIONS = st.integers(0, 10**14)


def of(values: list[int]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram


@given(st.lists(st.integers(2000, 10**14), min_size=1, max_size=200), st.floats(0.01, 1.0))
def test_a_quantile_is_within_one_percent_of_the_value_at_its_rank(values: list[int], q: float) -> None:
    exact = sorted(values)[max(1, math.ceil(q * len(values))) - 1] / 1e9
    assert of(values).quantile_s(q) == pytest.approx(exact, rel=0.0101)


@given(st.lists(DURATIONS, max_size=60))
def test_count_sum_minimum_and_maximum_are_exact(values: list[int]) -> None:
    histogram = of(values)
    assert (histogram.count, histogram.sum_ns) == (len(values), sum(values))
    assert (histogram.min_ns, histogram.max_ns) == ((min(values), max(values)) if values else (None, None))


@given(st.lists(DURATIONS, max_size=30), st.lists(DURATIONS, max_size=30), st.lists(DURATIONS, max_size=30))
def test_merging_is_exact_in_any_order(a: list[int], b: list[int], c: list[int]) -> None:
    left = Histogram.merged([Histogram.merged([of(a), of(b)]), of(c)])
    right = Histogram.merged([of(c), Histogram.merged([of(b), of(a)])])
    assert left == right == of(a + b + c)


@given(st.lists(DURATIONS, max_size=60))
def test_bytes_round_trip(values: list[int]) -> None:
    histogram = of(values)
    assert Histogram.decode(histogram.encode()).percentiles() == histogram.percentiles()


@given(DURATIONS)
def test_a_value_lies_between_the_edges_of_its_bucket(value: int) -> None:
    index = bucket(value)
    assert 0 <= index < BUCKETS
    if 0 < index < BUCKETS - 1:
        assert bucket_edge_ns(index) * (1 - 1e-9) <= value <= bucket_edge_ns(index + 1) * (1 + 1e-9)


def test_buckets_never_go_down() -> None:
    numbers = [bucket(int(1.003**n)) for n in range(1, 11_000)]
    assert numbers == sorted(numbers)


def test_percentiles_are_exact_at_the_ends_and_unknown_when_empty() -> None:
    assert of([]).percentiles().p50 is None
    assert of([]).percentiles().count == 0
    assert of([123_456_789]).quantile_s(0.5) == 0.123456789
    assert of([5_000_000, 7_000_000]).quantile_s(1.0) == 0.007


def test_percentiles_of_an_even_spread_are_close() -> None:
    histogram = of([n * 1000 for n in range(1000, 101_000)])
    for q in (0.5, 0.9, 0.95, 0.99):
        assert histogram.quantile_s(q) == pytest.approx((1000 + q * 100_000) / 1e6, rel=0.0005)


def test_share_above() -> None:
    assert of([1_000_000] * 3 + [50_000_000]).share_above(10_000_000) == 0.25
    assert of([]).share_above(1) == 0.0


@pytest.mark.parametrize("raw", [b"", b"\x07", b"\x01\x05", b"\x01\x01\x80", of([5, 5000]).encode()[:-1]])
def test_what_is_no_histogram_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):
        Histogram.decode(raw)


def test_a_sparse_histogram_is_small() -> None:
    assert len(of([n * 1_000_000 for n in range(1, 1000)]).encode()) < 2000


@given(st.lists(st.integers(2_000_000, 10**9), min_size=1, max_size=50), st.integers(2, 5))
def test_gaps_of_several_tokens_count_as_that_many_shorter_ones(gaps: list[int], tokens: int) -> None:
    by_bucket: dict[int, int] = {}
    for gap in gaps:
        by_bucket[bucket(gap)] = by_bucket.get(bucket(gap), 0) + 1
    itl = Histogram()
    absorb_gaps(itl, by_bucket, sum(gaps), min(gaps), max(gaps), len(gaps) * tokens)
    if len(gaps) * tokens > len(gaps) + 1:
        assert itl.count == sum(itl.counts.values()) == len(gaps) * tokens
        assert itl.quantile_s(0.5) == pytest.approx(sorted(gaps)[(len(gaps) - 1) // 2] / tokens / 1e9, rel=0.03)
    assert itl.sum_ns == sum(gaps)


def test_one_token_more_than_chunks_is_the_end_token_and_changes_nothing() -> None:
    itl = Histogram()
    absorb_gaps(itl, {bucket(10_000_000): 63}, 630_000_000, 10_000_000, 10_000_000, 64)
    assert itl.count == 63
    assert itl.quantile_s(0.5) == 0.010


def test_dividing_a_duration_shifts_its_bucket() -> None:
    assert bucket(30_000_000) - bucket_shift(3) == pytest.approx(bucket(10_000_000), abs=1)
