from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from soakd.demo.launch import DemoServer
from soakd.load import sweep_report
from soakd.load.arrivals import Closed, Open
from soakd.load.driver import LoadDriver
from soakd.load.messages import Counts, Done, Histograms, Message, SelfCheck, StageTotals, Window
from soakd.load.prompts import ASSUMED, make_spec
from soakd.load.spec import LoadSpec, TargetSpec
from soakd.load.sweep import SweepLimits, SweepPlan, SweepState, judge_step, run_sweep, step_spec

BASE = LoadSpec(TargetSpec(("http://127.0.0.1:1",)), (), make_spec("mixture", {}, ASSUMED))
PLAN = SweepPlan(last=64, limits=SweepLimits(p95_e2e_s=0.5))
IDLE = SelfCheck(0.1, 0.0, 0.0, 0.0, 0.0, None, None)


def window(
    index: int, latency_s: float, load: float, failed: int = 0, late: str = "", in_flight: float | None = None
) -> Window:
    """Two seconds of a closed loop whose latencies lie within 10 % of ``latency_s``."""
    source = random.Random(f"{index}/{load}")
    completed = 0 if failed else max(1, round(2 * load / latency_s))
    figures = Histograms()
    for _ in range(completed):
        figures.e2e.record(int(latency_s * source.uniform(0.9, 1.1) * 1e9))
        figures.ttft_from_due.record(int(latency_s * 0.2e9))
    check = replace(IDLE, reasons=(late,) if late else ())
    counts = Counts(completed, completed, completed, failed, tokens_out=completed * 10)
    return Window(index, 0, 0, 2.0, "step", True, counts, figures, in_flight or load, load, check, (), 1)


def done() -> Done:
    total = StageTotals("total", True, 1.0, Counts(), Histograms(), None, None)
    return Done(total, (), (), IDLE, None, "", "", 1, None)


class FakeDriver:
    """A server whose latency depends on the load alone."""

    def __init__(self, curve: Callable[[float], float], log: list[float], **more: object) -> None:
        self._curve = curve
        self._log = log
        self._more = more
        self._spec = BASE
        self.stopped = False

    async def start(self, spec: LoadSpec) -> None:
        self._spec = spec

    async def messages(self) -> AsyncIterator[Message]:
        arrivals = self._spec.stages[0].arrivals
        load = float(arrivals.concurrency if isinstance(arrivals, Closed) else arrivals.curve[0][1])  # type: ignore[union-attr]
        self._log.append(load)
        for index in range(60):
            if self.stopped:
                break
            yield window(index, self._curve(load), load, **self._more)  # type: ignore[arg-type]
        yield done()

    async def stop(self, grace_s: float = 2.0) -> None:
        self.stopped = True

    async def close(self) -> None:
        self.stopped = True


async def swept(curve: Callable[[float], float], state: SweepState | None = None, **more: object) -> SweepState:
    log: list[float] = []

    async def saved(state: SweepState) -> None:
        assert SweepState.from_json(state.to_json()) == state

    state = await run_sweep(state or SweepState(PLAN), BASE, lambda: FakeDriver(curve, log, **more), saved)
    assert len(set(log)) == len(log) or any(s.client for s in state.steps)
    return state


def latency(load: float) -> float:
    return 0.3 * max(1.0, load / 12)


async def test_a_sweep_finds_the_knee_and_the_best_rate_within_the_limits() -> None:
    state = await swept(latency)
    assert state.knee.level == pytest.approx(12, rel=0.1)
    assert state.best is not None
    assert state.best.rate_per_s == pytest.approx(40, rel=0.1)
    assert state.best.e2e_p95 is not None
    assert state.best.e2e_p95.value <= 0.5
    assert [s.meets_limits for s in state.steps if s.load >= 32] == [False] * sum(s.load >= 32 for s in state.steps)


async def test_the_highest_load_within_the_limits_is_narrowed_down() -> None:
    state = await swept(lambda load: 0.05 * load**0.5, SweepState(replace(PLAN, last=256)))
    good = max(s.load for s in state.steps if s.meets_limits)
    bad = min(s.load for s in state.steps if s.meets_limits is False)
    assert bad - good <= max(1, 0.1 * good)


async def test_a_step_ends_when_it_knows_enough() -> None:
    state = await swept(latency)
    assert all(PLAN.min_step_s <= s.took_s < 40 for s in state.steps)
    assert all(s.steady for s in state.steps)


async def test_an_interrupted_sweep_goes_on_where_it_was() -> None:
    whole = await swept(latency)
    part = replace(whole, steps=whole.steps[:4])
    assert await swept(latency, SweepState.from_json(part.to_json())) == whole


async def test_a_server_that_fails_every_request_ends_the_sweep() -> None:
    state = await swept(latency, failed=9)
    assert len(state.steps) == 1
    assert state.stopped == "every request failed at 1"
    assert state.best is None


async def test_a_client_that_was_the_limit_judges_nothing_and_is_tried_twice() -> None:
    state = await swept(latency, late="a load worker used 97% of a core (bound 90%)")
    assert [s.load for s in state.steps] == [1, 1]
    assert [s.meets_limits for s in state.steps] == [None, None]
    assert "used 97% of a core (bound 90%) (in 60 of 60 windows)" in state.steps[0].why


def test_windows_in_which_the_client_was_late_are_left_out() -> None:
    windows = [window(i, 0.2 if i % 3 else 2.0, 4, late="" if i % 3 else "late") for i in range(30)]
    step = judge_step(4, windows, PLAN)
    assert step.client == ""
    assert step.e2e_p95 is not None
    assert step.e2e_p95.value < 0.25
    assert step.meets_limits is True


def test_concurrency_that_was_not_achieved_is_the_clients_limit() -> None:
    step = judge_step(64, [window(i, 0.2, 64, in_flight=38) for i in range(20)], PLAN)
    assert step.client == "38.0 requests were in flight where 64 were asked"
    assert step.meets_limits is None


def test_latency_that_still_rises_does_not_meet_the_limits() -> None:
    step = judge_step(4, [window(i, 0.1 + 0.01 * i, 4) for i in range(30)], PLAN)
    assert (step.steady, step.meets_limits) == (False, False)
    assert "still moves" in step.why


def test_an_interval_that_holds_the_limit_decides_nothing() -> None:
    windows = [window(i, 0.455, 4) for i in range(12)]
    assert judge_step(4, windows, replace(PLAN, limits=SweepLimits(p95_e2e_s=0.6))).meets_limits is True
    assert judge_step(4, windows, replace(PLAN, limits=SweepLimits(p95_e2e_s=0.4))).meets_limits is False
    step = judge_step(4, windows, replace(PLAN, limits=SweepLimits(p95_e2e_s=0.497)))
    assert step.meets_limits is None
    assert "lies between" in step.why


def test_goodput_counts_what_is_within_the_limit() -> None:
    windows = [window(i, 0.2 if i % 2 else 0.9, 4) for i in range(20)]
    step = judge_step(4, windows, PLAN)
    good = sum(w.counts.completed for w in windows if w.index % 2)
    assert step.goodput_per_s == pytest.approx(good / 40, rel=0.05)


def test_errors_beyond_their_share_fail_a_step() -> None:
    windows = [replace(w, counts=replace(w.counts, failed=1)) for w in (window(i, 0.2, 4) for i in range(12))]
    assert judge_step(4, windows, PLAN).why.endswith("of requests failed")


def test_steps_do_not_share_prompts_or_canaries() -> None:
    specs = [step_spec(load, PLAN, BASE) for load in (1, 2, 4)]
    assert len({s.seed for s in specs}) == 3
    assert isinstance(specs[0].stages[0].arrivals, Closed)
    rate = step_spec(2.5, replace(PLAN, axis="rate"), BASE).stages[0].arrivals
    assert isinstance(rate, Open)
    assert rate.curve[0][1] == 2.5


@pytest.mark.parametrize("raw", [b"", b"{}", b'{"plan": {}, "steps": []}', b"[]"])
def test_what_is_no_saved_sweep_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="not a saved sweep"):
        SweepState.from_json(raw)


async def test_a_sweep_is_told_in_words_and_as_a_table() -> None:
    state = await swept(latency)
    text = sweep_report.markdown(state)
    assert len(sweep_report.rows(state)) == len(state.steps)
    assert all(len(row) == len(sweep_report.HEADER) for row in sweep_report.rows(state))
    assert f"knee: concurrency {state.knee.level:g} (95 % interval" in text
    assert "highest rate within the limits: " in text
    ElementTree.fromstring(sweep_report.svg(state))
    assert "knee" in sweep_report.svg(state)


async def test_a_sweep_without_a_result_says_so() -> None:
    state = await swept(latency, failed=3)
    text = sweep_report.markdown(state)
    assert "no knee: fewer than three loads could be judged" in text
    assert "the sweep ended early: every request failed at 1" in text
    assert sweep_report.svg(state) == ""


@pytest.mark.integration
@pytest.mark.asyncio(loop_scope="session")
async def test_a_real_server_is_swept(llama_server: DemoServer) -> None:
    """Steps cut to a few seconds: that each is measured and counted, not where the knee is."""
    answers = {"answer": {"low": 32, "high": 32}, "bands": [{"share": 1, "low": 64, "high": 128}]}
    base = LoadSpec(
        TargetSpec((llama_server.url,), model=llama_server.model), (), make_spec("mixture", answers), workers=1
    )
    plan = SweepPlan(last=4, min_step_s=2, max_step_s=4, window_s=1)
    seen: list[float] = []

    async def note(state: SweepState) -> None:
        seen.append(state.steps[-1].load)

    state = await run_sweep(SweepState(plan), base, LoadDriver, note)
    assert seen[0] == 1
    assert seen == [s.load for s in state.steps]
    assert [s for s in state.steps if s.requests < 1 or s.failed] == []
    # never more than asked; how near to it depends on how busy the machine is in so short a step
    assert all(0.5 * s.load <= s.concurrency <= 1.05 * s.load for s in state.steps)
    assert SweepState.from_json(state.to_json()) == state
