"""A histogram of durations that merges exactly: fixed logarithmic buckets, relative error of at most 1 %.

The bucket layout never changes, so that histograms of any window, stage, worker or run can be added. Count, sum,
minimum and maximum are exact integers of nanoseconds, which makes merging associative to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

ALPHA = 0.005
"""A bucket spans 1 %: no percentile is off by more, and within a bucket it is interpolated."""
_GAMMA = (1 + ALPHA) / (1 - ALPHA)
_PER_LOG = 1 / math.log(_GAMMA)
_FLOOR_NS = 1000
_SHIFT = 1 - math.floor(math.log(_FLOOR_NS) * _PER_LOG)
BUCKETS = 2600
"""Bucket 0 holds what is below 1 us (tokens that came in one read); the last holds everything above about 53 h."""
_LAST = BUCKETS - 1
_VERSION = 1


def bucket(value_ns: int) -> int:
    """The bucket of a duration."""
    if value_ns < _FLOOR_NS:
        return 0
    index = int(math.log(value_ns) * _PER_LOG) + _SHIFT
    return index if index < _LAST else _LAST


def bucket_edge_ns(index: int) -> float:
    """The lower edge of a bucket; its upper edge is that of the next."""
    return math.exp((index - _SHIFT) / _PER_LOG) if index > 0 else 0.0


def bucket_shift(ratio: float) -> int:
    """How many buckets lower a duration lands when it is divided by ``ratio`` (several tokens in one chunk)."""
    return round(math.log(ratio) * _PER_LOG)


@dataclass(frozen=True, slots=True)
class Percentiles:
    """A histogram in figures, in seconds. All but ``count`` are None when nothing was recorded."""

    count: int
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None
    mean: float | None = None
    min: float | None = None


class Histogram:
    """Durations in nanoseconds. Not safe for threads."""

    __slots__ = ("count", "counts", "max_ns", "min_ns", "sum_ns")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.count = 0
        self.sum_ns = 0
        self.min_ns: int | None = None
        self.max_ns: int | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return self.encode() == other.encode()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Histogram(count={self.count}, min_ns={self.min_ns}, max_ns={self.max_ns})"

    def record(self, value_ns: int, times: int = 1) -> None:
        """Add a duration; a negative one (never seen from a monotonic clock) counts as 0."""
        if value_ns < 0:
            value_ns = 0
        counts = self.counts
        index = bucket(value_ns)
        counts[index] = counts.get(index, 0) + times
        self.count += times
        self.sum_ns += value_ns * times
        if self.min_ns is None or value_ns < self.min_ns:
            self.min_ns = value_ns
        if self.max_ns is None or value_ns > self.max_ns:
            self.max_ns = value_ns

    def merge(self, other: Histogram) -> None:
        """Add all of another histogram to this one."""
        counts = self.counts
        for index, times in other.counts.items():
            counts[index] = counts.get(index, 0) + times
        self.count += other.count
        self.sum_ns += other.sum_ns
        if other.min_ns is not None:
            self.min_ns = other.min_ns if self.min_ns is None else min(self.min_ns, other.min_ns)
        if other.max_ns is not None:
            self.max_ns = other.max_ns if self.max_ns is None else max(self.max_ns, other.max_ns)

    @classmethod
    def merged(cls, parts: Iterable[Histogram]) -> Histogram:
        whole = cls()
        for part in parts:
            whole.merge(part)
        return whole

    def quantile_s(self, q: float) -> float | None:
        """The ``q`` quantile (0 to 1) in seconds by nearest rank, within 1 %; None when nothing was recorded."""
        if not self.count or self.min_ns is None or self.max_ns is None:
            return None
        rank = max(1, math.ceil(q * self.count))
        if rank >= self.count:
            return self.max_ns / 1e9
        seen = 0
        for index in sorted(self.counts):
            times = self.counts[index]
            seen += times
            if seen >= rank:
                low, high = bucket_edge_ns(index), bucket_edge_ns(index + 1)
                value = low + (high - low) * (rank - seen + times - 0.5) / times
                return min(max(value, self.min_ns), self.max_ns) / 1e9
        return self.max_ns / 1e9

    def share_above(self, value_ns: int) -> float:
        """The share of what was recorded that lies in buckets above that of ``value_ns``; 0 when empty."""
        if not self.count:
            return 0.0
        edge = bucket(value_ns)
        return sum(times for index, times in self.counts.items() if index > edge) / self.count

    def percentiles(self) -> Percentiles:
        if not self.count or self.min_ns is None or self.max_ns is None:
            return Percentiles(0)
        return Percentiles(
            self.count,
            p50=self.quantile_s(0.50), p90=self.quantile_s(0.90), p95=self.quantile_s(0.95), p99=self.quantile_s(0.99),
            max=self.max_ns / 1e9, mean=self.sum_ns / self.count / 1e9, min=self.min_ns / 1e9,
        )  # fmt: skip

    def encode(self) -> bytes:
        """Sparse bytes: a version, then varints of count, sum, min, max and (bucket step, times) pairs."""
        out = bytearray((_VERSION,))
        _put(out, self.count)
        if self.count:
            _put(out, self.sum_ns)
            _put(out, self.min_ns or 0)
            _put(out, self.max_ns or 0)
        last = 0
        for index in sorted(self.counts):
            _put(out, index - last)
            _put(out, self.counts[index])
            last = index
        return bytes(out)

    @classmethod
    def decode(cls, raw: bytes) -> Histogram:
        """Raises ValueError when the bytes are no histogram of this layout."""
        if not raw or raw[0] != _VERSION:
            raise ValueError("not an encoded histogram of version 1")
        whole, numbers = cls(), _numbers(raw)
        whole.count = next(numbers, 0)
        if whole.count:
            try:
                whole.sum_ns, whole.min_ns, whole.max_ns = next(numbers), next(numbers), next(numbers)
            except StopIteration:
                raise ValueError("the encoded histogram is cut off") from None
        index, seen = 0, 0
        for step in numbers:
            times = next(numbers, None)
            if times is None:
                raise ValueError("the encoded histogram is cut off")
            index += step
            whole.counts[index] = times
            seen += times
        if seen != whole.count or index >= BUCKETS:
            raise ValueError("the encoded histogram does not add up")
        return whole


def _put(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _numbers(raw: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in memoryview(raw)[1:]:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0
    if shift:
        raise ValueError("the encoded histogram is cut off")
