"""A sweep over concurrency or rate: each load until it is steady and P95 is known well enough, then the next one.

What is known after each step is a `SweepState`, which survives JSON: a sweep that was interrupted goes on from it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal, Protocol

import orjson

from soakd.load.arrivals import Closed, Open, flat
from soakd.load.histogram import Histogram
from soakd.load.knee import Interval, Knee, Level, find_knee, next_load, p95_interval, steady_from, widest_middle
from soakd.load.messages import Counts, Done, Message, Window, merge_counts
from soakd.load.spec import LoadSpec, Stage

Axis = Literal["concurrency", "rate"]
_LONGEST_STEPS = 64
_ACHIEVED = 0.95
_TRIES = 2


@dataclass(frozen=True, slots=True)
class SweepLimits:
    """What a load must meet to count as good; None is no limit. Seconds and a share of requests."""

    p95_e2e_s: float | None = None
    p95_ttft_s: float | None = None
    error_ratio: float | None = 0.01


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """Loads double from ``first`` up to ``last``, then close in on the knee to within ``resolution`` of it.

    A step ends when it has been steady for ``min_requests`` and P95 is known to within ``precision`` of itself, or
    after ``max_step_s``.
    """

    axis: Axis = "concurrency"
    first: float = 1
    last: float = 256
    resolution: float = 0.1
    min_requests: int = 100
    precision: float = 0.2
    min_step_s: float = 15.0
    max_step_s: float = 120.0
    window_s: float = 2.0
    limits: SweepLimits = SweepLimits()


@dataclass(frozen=True, slots=True)
class StepResult:
    """One load. Figures are of its steady part (of all of it when it never settled); seconds, requests a second.

    ``goodput_per_s`` counts completed requests within the latency limits; ``meets_limits`` is None when that can't be
    said; ``client`` says why the load generator itself was the limit, empty when it was not.
    """

    load: float
    steady: bool
    requests: int
    failed: int
    rate_per_s: float
    output_tokens_per_s: float
    e2e_p50_s: float | None
    e2e_p95: Interval | None
    ttft_p50_s: float | None
    ttft_p95: Interval | None
    concurrency: float
    goodput_per_s: float | None
    meets_limits: bool | None
    took_s: float
    client: str = ""
    why: str = ""

    @property
    def error_ratio(self) -> float | None:
        total = self.requests + self.failed
        return self.failed / total if total else None


@dataclass(frozen=True, slots=True)
class SweepState:
    """The plan and what was measured so far, in order of time."""

    plan: SweepPlan
    steps: tuple[StepResult, ...] = ()
    stopped: str = ""

    def to_json(self) -> bytes:
        return orjson.dumps(asdict(self))

    @classmethod
    def from_json(cls, raw: bytes | str) -> SweepState:
        """Raises ValueError when the text is not a saved sweep."""
        try:
            data = orjson.loads(raw)
            plan = SweepPlan(**{**data["plan"], "limits": SweepLimits(**data["plan"]["limits"])})
            return cls(plan, tuple(_step(s) for s in data["steps"]), data["stopped"])
        except (KeyError, TypeError, orjson.JSONDecodeError) as error:
            raise ValueError(f"not a saved sweep: {error}") from None

    @property
    def knee(self) -> Knee:
        return find_knee(_levels(self.steps))

    @property
    def best(self) -> StepResult | None:
        """The step with the highest rate that meets the limits; None when none does."""
        good = [s for s in self.steps if s.meets_limits]
        return max(good, key=lambda s: s.rate_per_s, default=None)

    def next_load(self) -> float | None:
        """What to measure next; None when the sweep is complete or a load was ended by its client or its target."""
        if self.stopped or len(self.steps) >= _LONGEST_STEPS:
            return None
        plan, levels = self.plan, _levels(self.steps)
        whole = plan.axis == "concurrency"
        last = min([plan.last, *(s.load for s in self.steps if self._given_up(s.load))])
        knee = find_knee(levels)
        wanted = next_load(levels, plan.first, last, whole=whole, knee=knee, resolution=plan.resolution)
        if wanted is None and (edge := self._limits_edge()) is not None:
            wanted = widest_middle([edge], whole, edge[0] * plan.resolution)
        known = any(s.load == wanted and not s.client for s in self.steps)
        return None if wanted is None or known or self._given_up(wanted) else wanted

    def _given_up(self, load: float) -> bool:
        """Whether the client was the limit at a load in each of two tries."""
        return sum(1 for s in self.steps if s.load == load and s.client) >= _TRIES

    def _limits_edge(self) -> tuple[float, float] | None:
        """The highest load that meets the limits and the lowest above it that does not."""
        good = max((s.load for s in self.steps if s.meets_limits), default=None)
        bad = min((s.load for s in self.steps if s.meets_limits is False and s.load > (good or 0)), default=None)
        return None if good is None or bad is None else (good, bad)


class Driver(Protocol):
    """What a sweep needs of `soakd.load.driver.LoadDriver`."""

    async def start(self, spec: LoadSpec) -> None: ...
    def messages(self) -> AsyncIterator[Message]: ...
    async def stop(self, grace_s: float = 2.0) -> None: ...
    async def close(self) -> None: ...


async def run_sweep(
    state: SweepState,
    base: LoadSpec,
    make_driver: Callable[[], Driver],
    on_step: Callable[[SweepState], Awaitable[None]],
) -> SweepState:
    """Measure until the sweep is complete; ``on_step`` is awaited after each load (to save it and to show it).

    ``base`` gives target, prompts and seed; its stages and canaries are not used. A load whose requests all fail ends
    the sweep. Raises what the driver raises when a load can't be started.
    """
    while (load := state.next_load()) is not None:
        step = await _measure(load, state.plan, base, make_driver())
        stopped = f"every request failed at {load:g}" if step.failed and not step.requests else ""
        state = replace(state, steps=(*state.steps, step), stopped=stopped)
        await on_step(state)
    return state


def step_spec(load: float, plan: SweepPlan, base: LoadSpec) -> LoadSpec:
    """The load of one step. Its seed is its own, so that no step finds the prompts of another in a cache."""
    arrivals = Closed(int(load), stagger_s=plan.window_s) if plan.axis == "concurrency" else Open(flat(load))
    stage = Stage(f"{plan.axis} {load:g}", arrivals, plan.max_step_s)
    seed = base.seed + 1 + int(load * 1000)
    return replace(base, stages=(stage,), canary=None, window_s=plan.window_s, seed=seed, records=False, drain_s=2.0)


async def _measure(load: float, plan: SweepPlan, base: LoadSpec, driver: Driver) -> StepResult:
    windows: list[Window] = []
    done: Done | None = None
    stopping = False
    await driver.start(step_spec(load, plan, base))
    try:
        async for message in driver.messages():
            if isinstance(message, Window) and not stopping:
                windows.append(message)
                if enough(windows, plan):
                    stopping = True
                    await driver.stop()
            elif isinstance(message, Done):
                done = message
    finally:
        await driver.close()
    return judge_step(load, windows, plan, "" if done else "the load ended early")


def enough(windows: Sequence[Window], plan: SweepPlan) -> bool:
    """Whether a step has been steady for long enough to know its P95."""
    took = sum(w.real_s for w in windows)
    windows = _clean(windows)
    start = _steady(windows)
    if took < plan.min_step_s or start is None:
        return False
    p95 = p95_interval([w.histograms.e2e for w in windows[start:]])
    if p95 is None or p95.count < plan.min_requests:
        return False
    return p95.relative_width is not None and p95.relative_width <= plan.precision


def judge_step(load: float, windows: Sequence[Window], plan: SweepPlan, broken: str = "") -> StepResult:
    """The figures of a step and whether it meets the limits. Windows in which the client was late are left out; when
    they are half of all, the client was the limit. Pure."""
    took_s = sum(w.real_s for w in windows)
    broken = broken or _client_limit(windows)
    windows = _clean(windows) or windows
    start = _steady(windows)
    used = windows[start or 0 :]
    real_s = sum(w.real_s for w in used)
    counts = merge_counts([w.counts for w in used])
    e2e = Histogram.merged(w.histograms.e2e for w in used)
    ttft = Histogram.merged(w.histograms.ttft_from_due for w in used)
    rate = counts.completed / real_s if real_s else 0.0
    concurrency = sum(w.concurrency * w.real_s for w in used) / real_s if real_s else 0.0
    client = broken or _starved(load, concurrency, plan, counts)
    e2e_p95 = p95_interval([w.histograms.e2e for w in used])
    ttft_p95 = p95_interval([w.histograms.ttft_from_due for w in used])
    step = StepResult(
        load=load,
        steady=start is not None,
        requests=counts.completed,
        failed=counts.failed + counts.dropped,
        rate_per_s=rate,
        output_tokens_per_s=counts.tokens_out / real_s if real_s else 0.0,
        e2e_p50_s=e2e.quantile_s(0.5),
        e2e_p95=e2e_p95,
        ttft_p50_s=ttft.quantile_s(0.5),
        ttft_p95=ttft_p95,
        concurrency=concurrency,
        goodput_per_s=rate * _within(e2e, ttft, plan.limits) if counts.completed else None,
        meets_limits=None,
        took_s=took_s,
        client=client,
    )
    meets, why = _judged(step, plan)
    return replace(step, meets_limits=meets, why=why)


def _clean(windows: Sequence[Window]) -> Sequence[Window]:
    return [w for w in windows if not w.self_check.reasons]


def _client_limit(windows: Sequence[Window]) -> str:
    late = [w for w in windows if w.self_check.reasons]
    if not windows or 2 * len(late) < len(windows):
        return ""
    return f"{late[-1].self_check.reasons[0]} (in {len(late)} of {len(windows)} windows)"


def _steady(windows: Sequence[Window]) -> int | None:
    rates = [w.counts.completed / w.real_s if w.real_s else 0.0 for w in windows]
    latencies = [w.histograms.e2e.quantile_s(0.5) or 0.0 for w in windows]
    return steady_from([rates, latencies])


def _starved(load: float, concurrency: float, plan: SweepPlan, counts: Counts) -> str:
    if plan.axis == "rate" or not counts.completed or concurrency >= load * _ACHIEVED:
        return ""
    return f"{concurrency:.1f} requests were in flight where {load:g} were asked"


def _within(e2e: Histogram, ttft: Histogram, limits: SweepLimits) -> float:
    """The share of completed requests within the latency limits (the stricter of the two, where there are two)."""
    shares = [1.0]
    if limits.p95_e2e_s is not None:
        shares.append(1 - e2e.share_above(int(limits.p95_e2e_s * 1e9)))
    if limits.p95_ttft_s is not None:
        shares.append(1 - ttft.share_above(int(limits.p95_ttft_s * 1e9)))
    return min(shares)


def _judged(step: StepResult, plan: SweepPlan) -> tuple[bool | None, str]:
    if step.client:
        return None, f"the load generator was the limit: {step.client}"
    if step.error_ratio is None:
        return None, "no request ended"
    limits = plan.limits
    if limits.error_ratio is not None and step.error_ratio > limits.error_ratio:
        return False, f"{step.error_ratio:.1%} of requests failed"
    if not step.steady:
        return False, f"not steady within {step.took_s:.0f} s: latency or rate still moves"
    unsure = ""
    for name, p95, limit in (("E2E", step.e2e_p95, limits.p95_e2e_s), ("TTFT", step.ttft_p95, limits.p95_ttft_s)):
        if limit is None or p95 is None:
            continue
        if p95.low > limit:
            return False, f"P95 of {name} is {p95.value:.3g} s, the limit {limit:g} s"
        if p95.high is None:
            unsure = f"{p95.count} requests, worth {p95.effective} independent ones, are too few for an interval of P95"
        elif p95.high > limit:
            unsure = f"P95 of {name} lies between {p95.low:.3g} and {p95.high:.3g} s, the limit {limit:g} s"
    return (None, unsure) if unsure else (True, "")


def _levels(steps: Sequence[StepResult]) -> list[Level]:
    return [Level(s.load, s.e2e_p95, s.steady, s.rate_per_s) for s in steps if not s.client]


def _step(data: dict[str, object]) -> StepResult:
    intervals = {n: Interval(**v) if isinstance(v := data[n], dict) else None for n in ("e2e_p95", "ttft_p95")}
    return StepResult(**{**data, **intervals})  # type: ignore[arg-type]
