"""Whether the load generator was the bottleneck: pure judgement of its own figures.

A slow server must not look like a slow client. Lateness is judged against the latencies that it would falsify, and
coalesced reads (which a server that writes in batches makes as well) only beside a busy core.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from soakd.load.histogram import Histogram
from soakd.load.messages import SelfCheck

CPU_SHARE = 0.90
"""Of one core: above it answers queue in the client."""
LATENESS = ((0.95, 0.10, 0.010), (0.99, 0.25, 0.025))
"""(quantile, share, floor in s): lateness at a quantile matters from that share of the TTFT at the same quantile on,
because so much may the figure be off by, and never below the floor."""
COALESCED_SHARE = 0.5
COALESCED_CPU_SHARE = 0.75
CONCURRENCY_RATIO = 0.98
TOLERATED_TIME = 0.10
"""The share of the measured time that may be out of bounds."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What one window of the generator's own figures is judged by. Shares of cores are one for each worker."""

    cpu_shares: tuple[float, ...]
    loop_lag: Histogram
    send_lag: Histogram
    ttft: Histogram
    reads: int
    coalesced: int
    asked: int | None
    in_flight: float
    waiting: float
    open_loop: bool


def assess(figures: Figures) -> SelfCheck:
    """The figures with the reasons for which the window is out of bounds."""
    cpu = max(figures.cpu_shares) if figures.cpu_shares else None
    lag, late = figures.loop_lag.quantile_s(0.99), figures.send_lag.quantile_s(0.99)
    coalesced = figures.coalesced / figures.reads if figures.reads else None
    reasons = []
    if cpu is not None and cpu > CPU_SHARE:
        reasons.append(f"a load worker used {cpu:.0%} of a core (bound {CPU_SHARE:.0%})")
    reasons += _lateness("its event loop was", figures.loop_lag, figures.ttft)
    if figures.open_loop:
        reasons += _lateness("it sent", figures.send_lag, figures.ttft)
    if coalesced is not None and cpu is not None and coalesced > COALESCED_SHARE and cpu > COALESCED_CPU_SHARE:
        reasons.append(f"{coalesced:.0%} of its reads brought several tokens at {cpu:.0%} of a core")
    achieved = figures.in_flight
    if figures.asked and achieved + figures.waiting < CONCURRENCY_RATIO * figures.asked:
        reasons.append(f"it kept {achieved:.1f} requests in flight of the {figures.asked} asked")
    asked = None if figures.asked is None else float(figures.asked)
    return SelfCheck(cpu, lag, figures.loop_lag.percentiles().max, late, coalesced, asked, achieved, tuple(reasons))


def _lateness(what: str, lag: Histogram, ttft: Histogram) -> list[str]:
    for q, share, floor in LATENESS:
        late, bound = lag.quantile_s(q), max(floor, share * (ttft.quantile_s(q) or 0.0))
        if late is not None and late > bound:
            return [f"{what} {late * 1e3:.0f} ms late at P{q * 100:.0f} (bound {bound * 1e3:.0f} ms)"]
    return []


def bottleneck(windows: Sequence[tuple[float, tuple[str, ...]]]) -> str:
    """The verdict over (real seconds, reasons) of the measured windows; empty when the generator kept up."""
    whole = sum(seconds for seconds, _ in windows)
    out = [(seconds, reasons) for seconds, reasons in windows if reasons]
    over = sum(seconds for seconds, _ in out)
    if not whole or over <= TOLERATED_TIME * whole:
        return ""
    worst = max(out, key=lambda window: window[0] * len(window[1]))
    return f"the load generator was the bottleneck in {over / whole:.0%} of the measured time: {'; '.join(worst[1])}"


class TimeOutOfBounds:
    """Sums what `bottleneck` needs without keeping every window."""

    __slots__ = ("_good_s", "_out_s", "_worst")

    def __init__(self) -> None:
        self._good_s = self._out_s = 0.0
        self._worst: tuple[float, tuple[str, ...]] = (0.0, ())

    def add(self, seconds: float, reasons: tuple[str, ...]) -> None:
        if not reasons:
            self._good_s += seconds
            return
        self._out_s += seconds
        if seconds * len(reasons) > self._worst[0] * len(self._worst[1]):
            self._worst = (seconds, reasons)

    def verdict(self) -> str:
        return bottleneck(((self._good_s, ()), (self._out_s, self._worst[1])))
