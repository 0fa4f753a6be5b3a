"""Counting what ends in one window: the worker's mutable tally, one for each stage whose requests end in it."""

from __future__ import annotations

from soakd.load.failure import Finish
from soakd.load.histogram import Histogram, bucket_shift
from soakd.load.messages import Counts, Histograms


class ReplicaMeter:
    """One replica's share of a tally."""

    __slots__ = ("completed", "e2e", "failed", "tokens_out", "ttft")

    def __init__(self) -> None:
        self.completed = 0
        self.failed = 0
        self.tokens_out = 0
        self.ttft = Histogram()
        self.e2e = Histogram()


class Meter:
    """Requests are counted under the stage in which they were due, in the window in which the thing happened."""

    __slots__ = (
        "cached_tokens", "cancelled", "chunks", "coalesced_reads", "completed", "dropped", "errors", "failed",
        "finishes", "histograms", "offered", "reads", "reasoning_tokens", "replicas", "retried", "started", "tags",
        "tokens_in", "tokens_out", "usage_missing",
    )  # fmt: skip

    def __init__(self, replicas: int) -> None:
        self.offered = self.started = self.completed = self.failed = self.dropped = self.cancelled = 0
        self.retried = self.usage_missing = self.chunks = self.reads = self.coalesced_reads = 0
        self.tokens_in = self.tokens_out = self.cached_tokens = self.reasoning_tokens = 0
        self.errors: dict[str, int] = {}
        self.finishes: dict[str, int] = {}
        self.tags: dict[str, int] = {}
        self.histograms = Histograms()
        self.replicas = tuple(ReplicaMeter() for _ in range(replicas))

    def count_error(self, label: str) -> None:
        self.errors[label] = self.errors.get(label, 0) + 1

    def count_finish(self, finish: Finish) -> None:
        name = finish.name.lower()
        self.finishes[name] = self.finishes.get(name, 0) + 1

    def count_tag(self, tag: str) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1

    def counts(self) -> Counts:
        return Counts(
            offered=self.offered, started=self.started, completed=self.completed, failed=self.failed,
            dropped=self.dropped, cancelled=self.cancelled, retried=self.retried, usage_missing=self.usage_missing,
            tokens_in=self.tokens_in, tokens_out=self.tokens_out, cached_tokens=self.cached_tokens,
            reasoning_tokens=self.reasoning_tokens, chunks=self.chunks, errors=tuple(sorted(self.errors.items())),
            finishes=tuple(sorted(self.finishes.items())), tags=tuple(sorted(self.tags.items())),
        )  # fmt: skip


def absorb_gaps(
    into: Histogram, gaps: dict[int, int], total_ns: int, shortest_ns: int, longest_ns: int, tokens: int
) -> None:
    """Add one request's gaps between chunks as gaps per token.

    ``gaps`` counts by bucket, ``tokens`` is how many came after the first chunk. Where chunks carry several tokens,
    each gap counts as that many shorter ones: in logarithmic buckets dividing is a shift.
    """
    chunks = sum(gaps.values())
    if not chunks:
        return
    if tokens <= chunks + 1:
        for index, times in gaps.items():
            into.counts[index] = into.counts.get(index, 0) + times
        ratio, items = 1.0, chunks
    else:
        ratio, items = tokens / chunks, tokens
        shift = bucket_shift(ratio)
        seen = given = 0
        for index in sorted(gaps):
            seen += gaps[index]
            # shares are rounded cumulatively, so that they add up to the tokens exactly
            upto = seen * tokens // chunks
            target = max(0, index - shift)
            into.counts[target] = into.counts.get(target, 0) + upto - given
            given = upto
    into.count += items
    into.sum_ns += total_ns
    low, high = int(shortest_ns / ratio), int(longest_ns / ratio)
    into.min_ns = low if into.min_ns is None else min(into.min_ns, low)
    into.max_ns = high if into.max_ns is None else max(into.max_ns, high)
