"""Putting the workers' parts together: windows, ticks and totals. No I/O, no clock; a worker may die at any time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from soakd.load.arrivals import Closed
from soakd.load.histogram import Histogram
from soakd.load.messages import (
    Counts,
    Histograms,
    ReplicaCounts,
    SelfCheck,
    StageTotals,
    Tick,
    Window,
    merge_counts,
    merge_replicas,
)
from soakd.load.reports import Tally, TickPart, WindowPart, unpack_histograms
from soakd.load.selfcheck import Figures, TimeOutOfBounds, assess
from soakd.load.spec import LoadSpec

_TICK_SKEW = 2
"""A tick is told without workers that are more than this many seconds behind."""


@dataclass(slots=True)
class _Stage:
    """What a stage came to so far."""

    counts: Counts = field(default_factory=Counts)
    histograms: Histograms = field(default_factory=Histograms)
    real_s: float = 0.0
    in_flight_s: float = 0.0
    replicas: list[ReplicaCounts] = field(default_factory=list)


class Merger:
    """One for a load. Give it each worker's reports in order, and `drop` one that ended or died."""

    def __init__(self, spec: LoadSpec, workers: int) -> None:
        self._spec = spec
        self._alive = set(range(workers))
        self._workers = workers
        self._parts: dict[int, dict[int, WindowPart]] = {}
        self._reached = dict.fromkeys(range(workers), -1)
        urls = spec.target.urls
        self._stages = [
            _Stage(replicas=[ReplicaCounts(url, 0, 0, 0, Histogram()) for url in urls]) for _ in spec.stages
        ]
        self._out = TimeOutOfBounds()
        self._worst = SelfCheck(None, None, None, None, None, None, None)
        self._so_far = Counts()
        self._ticks: dict[int, TickPart] = {}
        self._tick_second = -1
        self._completed = 0
        self._running_stage = -1
        self._ttft = Histogram()
        self._e2e = Histogram()

    def add_window(self, worker: int, part: WindowPart) -> list[Window]:
        """The windows that are complete with this part, in order."""
        self._parts.setdefault(part.index, {})[worker] = part
        self._reached[worker] = part.index
        return self._ready()

    def drop(self, worker: int) -> list[Window]:
        """The worker has nothing more to say: windows that waited for it alone."""
        self._alive.discard(worker)
        return self._ready()

    def _ready(self) -> list[Window]:
        upto = min((self._reached[worker] for worker in self._alive), default=1 << 62)
        return [self._window(self._parts.pop(index)) for index in sorted(self._parts) if index <= upto]

    def _window(self, parts: dict[int, WindowPart]) -> Window:
        ordered = [parts[worker] for worker in sorted(parts)]
        first = ordered[0]
        real_s = max(part.real_s for part in ordered)
        histograms = Histograms()
        counts: list[Counts] = []
        for part in ordered:
            for tally in part.tallies:
                unpacked = unpack_histograms(tally.histograms)
                histograms.merge(unpacked)
                counts.append(tally.counts)
                stage = self._stages[tally.stage]
                stage.counts = merge_counts([stage.counts, tally.counts])
                stage.histograms.merge(unpacked)
                stage.replicas = [merge_replicas(pair) for pair in zip(stage.replicas, self._told(tally), strict=True)]
        in_flight_s = sum(part.in_flight_s for part in ordered)
        self._so_far = merge_counts([self._so_far, *counts])
        asked = _sum_known([part.asked for part in ordered])
        stage_spec = self._spec.stages[first.stage]
        check = self._check(ordered, histograms, real_s, asked)
        if not first.draining:
            totals = self._stages[first.stage]
            totals.real_s += real_s
            totals.in_flight_s += in_flight_s
            if stage_spec.measured:
                self._out.add(real_s, check.reasons)
                self._worst = _worse(self._worst, check)
        return Window(
            index=first.index,
            start_ns=min(part.start_ns for part in ordered),
            end_ns=max(part.end_ns for part in ordered),
            real_s=real_s,
            stage=stage_spec.name,
            measured=stage_spec.measured and not first.draining,
            counts=merge_counts(counts),
            histograms=histograms,
            concurrency=in_flight_s / real_s if real_s else 0.0,
            concurrency_asked=None if asked is None else float(asked),
            self_check=check,
            replicas=self._replicas(ordered),
            workers=len(ordered),
            records=b"".join(part.records for part in ordered),
            records_dropped=sum(part.records_dropped for part in ordered),
            so_far=self._so_far,
        )

    def _check(self, parts: Sequence[WindowPart], whole: Histograms, real_s: float, asked: int | None) -> SelfCheck:
        arrivals = self._spec.stages[parts[0].stage].arrivals
        return assess(
            Figures(
                cpu_shares=tuple(part.cpu_s / part.real_s for part in parts if part.real_s > 0),
                loop_lag=whole.loop_lag,
                send_lag=whole.send_lag,
                ttft=whole.ttft_from_due,
                reads=sum(part.reads for part in parts),
                coalesced=sum(part.coalesced for part in parts),
                asked=None if parts[0].draining else asked,
                in_flight=sum(part.in_flight_s for part in parts) / real_s if real_s else 0.0,
                waiting=sum(part.waiting_s for part in parts) / real_s if real_s else 0.0,
                open_loop=not isinstance(arrivals, Closed),
            )
        )

    def _replicas(self, parts: Sequence[WindowPart]) -> tuple[ReplicaCounts, ...]:
        nothing = [ReplicaCounts(url, 0, 0, 0, Histogram()) for url in self._spec.target.urls]
        told = [nothing, *(self._told(tally) for part in parts for tally in part.tallies)]
        return tuple(merge_replicas(shares) for shares in zip(*told, strict=True))

    def _told(self, tally: Tally) -> list[ReplicaCounts]:
        """A tally's shares of the replicas."""
        return [
            ReplicaCounts(url, t.completed, t.failed, t.tokens_out, Histogram.decode(t.ttft), Histogram.decode(t.e2e))
            for url, t in zip(self._spec.target.urls, tally.replicas, strict=True)
        ]

    def add_tick(self, worker: int, part: TickPart, at_ns: int, elapsed_s: float) -> Tick | None:
        """A tick once every live worker has told of a second, or one is far ahead of the others."""
        self._ticks[worker] = part
        if part.stage > self._running_stage:
            self._running_stage = part.stage
            self._ttft, self._e2e = Histogram(), Histogram()
        self._ttft.merge(Histogram.decode(part.ttft))
        for replica in part.replicas:
            self._e2e.merge(Histogram.decode(replica.e2e))
        seconds = [self._ticks[w].second if w in self._ticks else -1 for w in self._alive] or [part.second]
        second = max(min(seconds), part.second - _TICK_SKEW)
        if second <= self._tick_second:
            return None
        passed, self._tick_second = second - self._tick_second, second
        parts = list(self._ticks.values())
        completed = sum(p.completed for p in parts)
        rate, self._completed = (completed - self._completed) / passed, completed
        stage = self._spec.stages[self._running_stage]
        return Tick(
            at_ns=at_ns,
            elapsed_s=elapsed_s,
            duration_s=self._spec.duration_s,
            stage=stage.name,
            measured=stage.measured,
            offered=sum(p.offered for p in parts),
            started=sum(p.started for p in parts),
            completed=completed,
            failed=sum(p.failed for p in parts),
            dropped=sum(p.dropped for p in parts),
            tokens_out=sum(p.tokens_out for p in parts),
            in_flight=sum(p.in_flight for w, p in self._ticks.items() if w in self._alive),
            rate_per_s=rate,
            ttft_p95_s=self._ttft.quantile_s(0.95),
            e2e_p95_s=self._e2e.quantile_s(0.95),
            loop_lag_max_s=max(p.loop_lag_max_s for p in parts),
        )

    def stages(self) -> tuple[StageTotals, ...]:
        return tuple(
            self._totals(spec.name, spec.measured, [number]) for number, spec in enumerate(self._spec.stages)
        )  # fmt: skip

    def total(self) -> StageTotals:
        """All measured stages."""
        return self._totals("measured", True, [n for n, spec in enumerate(self._spec.stages) if spec.measured])

    def replicas(self) -> tuple[ReplicaCounts, ...]:
        """Each replica's share of all measured stages."""
        measured = [stage for stage, spec in zip(self._stages, self._spec.stages, strict=True) if spec.measured]
        return tuple(merge_replicas(shares) for shares in zip(*(stage.replicas for stage in measured), strict=True))

    def bottleneck(self) -> str:
        return self._out.verdict()

    def self_check(self) -> SelfCheck:
        """The generator's own figures over the measured part: percentiles of all of it, the worst share of a core."""
        total = self.total()
        lag, late = total.histograms.loop_lag, total.histograms.send_lag
        return SelfCheck(
            self._worst.cpu_share, lag.quantile_s(0.99), lag.percentiles().max, late.quantile_s(0.99),
            self._worst.coalesced_share, total.concurrency_asked, total.concurrency, self._worst.reasons,
        )  # fmt: skip

    def _totals(self, name: str, measured: bool, numbers: Sequence[int]) -> StageTotals:
        chosen = [self._stages[number] for number in numbers]
        histograms = Histograms()
        for stage in chosen:
            histograms.merge(stage.histograms)
        real_s = sum(stage.real_s for stage in chosen)
        achieved = sum(stage.in_flight_s for stage in chosen) / real_s if real_s else None
        return StageTotals(
            name, measured, real_s, merge_counts([stage.counts for stage in chosen]), histograms, achieved,
            self._asked(numbers),
        )  # fmt: skip

    def _asked(self, numbers: Sequence[int]) -> float | None:
        """The time-weighted concurrency asked; None unless all of the stages are closed loops."""
        asked = weight = 0.0
        for number in numbers:
            arrivals = self._spec.stages[number].arrivals
            if not isinstance(arrivals, Closed):
                return None
            seconds = self._stages[number].real_s or 1e-9
            asked += arrivals.concurrency * seconds
            weight += seconds
        return asked / weight if weight else None


def _sum_known(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _worse(one: SelfCheck, other: SelfCheck) -> SelfCheck:
    """The check with the busier core, with the reasons of whichever has more."""
    busier = max((one, other), key=lambda check: check.cpu_share or 0.0)
    reasons = max((one.reasons, other.reasons), key=len)
    return SelfCheck(
        busier.cpu_share, busier.loop_lag_p99_s, busier.loop_lag_max_s, busier.send_lag_p99_s,
        max((c for c in (one.coalesced_share, other.coalesced_share) if c is not None), default=None),
        busier.concurrency_asked, busier.concurrency_achieved, reasons,
    )  # fmt: skip
