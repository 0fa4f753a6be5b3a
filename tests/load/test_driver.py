"""The whole load engine with real worker processes against servers on loopback."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import select
import signal
import sys
import time
from pathlib import Path

import pytest

from soakd.clock import FastClock
from soakd.errors import ConfigError, TargetError, WorkerError
from soakd.load.arrivals import Closed, Idle, Open, Trace, flat
from soakd.load.canary import CanaryPrompt, CanaryResult, CanarySpec
from soakd.load.driver import LoadDriver
from soakd.load.failure import ErrorClass
from soakd.load.messages import Done, LoadEvent, Message, Tick, Window
from soakd.load.prompts import make_spec
from soakd.load.records import decode
from soakd.load.spec import LoadSpec, Stage, TargetSpec, spec_to_json
from tests.support.fake_load import TOKEN
from tests.support.scripted_server import EVENT_STREAM, WHOLE, Asked, chunk, scripted

pytestmark = pytest.mark.integration
PROMPTS = make_spec("mixture", {}, context_tokens=512)


def load(url: str, *stages: Stage, **options: object) -> LoadSpec:
    base = LoadSpec(TargetSpec((url,), model="m"), stages, PROMPTS, window_s=1.0, workers=1)
    return dataclasses.replace(base, **options)  # type: ignore[arg-type]


async def paced(asked: Asked, writer: asyncio.StreamWriter) -> bool:
    """A whole answer after 50 ms."""
    await asyncio.sleep(0.05)
    writer.write(WHOLE)
    return True


async def collect(driver: LoadDriver, spec: LoadSpec) -> list[Message]:
    async with asyncio.timeout(40):
        await driver.start(spec)
        return [message async for message in driver.messages()]


def done_of(messages: list[Message]) -> Done:
    assert isinstance(messages[-1], Done)
    return messages[-1]


def kinds(messages: list[Message]) -> list[str]:
    return [m.kind for m in messages if isinstance(m, LoadEvent)]


async def test_two_workers_share_a_load_and_agree_with_the_server_to_the_request() -> None:
    async with scripted(paced) as seen:
        spec = load(
            seen.url,
            Stage("warm-up", Closed(6, stagger_s=0.2), 1.0, False),
            Stage("closed", Closed(6), 2.0),
            Stage("open", Open(flat(40.0), "constant"), 2.0),
            Stage("after", Idle(), 1.0, False),
            workers=2,
        )
        messages = await collect(LoadDriver(), spec)
    done, windows = done_of(messages), [m for m in messages if isinstance(m, Window)]
    counts = [stage.counts for stage in done.stages]
    assert sum(c.completed for c in counts) == len(seen.asked)
    assert counts[2].offered == counts[2].completed == 80
    assert done.total.counts.completed == counts[1].completed + 80
    assert done.total.counts.tokens_out == 2 * done.total.counts.completed
    assert done.total.histograms.ttft.count == done.total.counts.completed
    assert done.stages[1].concurrency == pytest.approx(6.0, rel=0.02)
    assert (done.incomplete, done.outages, done.workers) == ("", (), 2)
    assert sum(w.counts.completed for w in windows) == len(seen.asked)
    records = [record for w in windows for record in decode(w.records)]
    assert len(records) == len(seen.asked)
    assert {(r.error, r.worker) for r in records} == {(ErrorClass.NONE, 0), (ErrorClass.NONE, 1)}
    assert {w.workers for w in windows} == {2}
    assert [t.elapsed_s for t in messages if isinstance(t, Tick)][:5] == [1.0, 2.0, 3.0, 4.0, 5.0]


async def test_a_rehearsal_s_clock_runs_faster_than_its_load() -> None:
    async with scripted(paced) as seen:
        clock = FastClock.start(60.0)
        began = time.monotonic()
        spec = load(seen.url, Stage("hold", Open(flat(20.0), "constant"), 120.0), clock=clock)
        messages = await collect(LoadDriver(), spec)
        took = time.monotonic() - began
    windows = [m for m in messages if isinstance(m, Window)]
    assert len(seen.asked) == done_of(messages).total.counts.completed == 40
    assert took < 20
    assert windows[-1].end_ns - windows[0].start_ns >= 110e9
    assert windows[0].start_ns >= clock.wall_origin_ns


async def test_canaries_are_judged_on_the_way() -> None:
    async with scripted(paced) as seen:
        canary = CanarySpec((CanaryPrompt("a", "say x"),), interval_s=0.5, calibration_rounds=2)
        messages = await collect(LoadDriver(), load(seen.url, Stage("hold", Closed(2), 4.0), canary=canary))
    results = [m for m in messages if isinstance(m, CanaryResult)]
    assert len(results) >= 4
    assert {r.matched for r in results[2:]} == {True}
    summary = done_of(messages).canary
    assert summary is not None
    assert (summary.identical_ratio, summary.answers) == (1.0, len(results))


async def test_a_worker_that_is_killed_is_an_event_and_what_was_collected_stays() -> None:
    """inference-perf #817: all results lost when the load generator ran out of memory."""
    async with scripted(paced) as seen:
        driver = LoadDriver()
        await driver.start(load(seen.url, Stage("hold", Closed(4), 600.0), workers=2))
        messages: list[Message] = []
        async with asyncio.timeout(30):
            async for message in driver.messages():
                messages.append(message)
                if isinstance(message, Window) and message.index == 1:
                    os.kill(driver.worker_pids[1], signal.SIGKILL)
    done = done_of(messages)
    assert "load.worker_died" in kinds(messages)
    assert "worker 2 of 2 died: signal 9" in done.incomplete
    assert done.total.counts.completed > 20


async def test_a_worker_that_hangs_is_killed_and_the_load_ends() -> None:
    async with scripted(paced) as seen:
        driver = LoadDriver(silent_s=3.0)
        await driver.start(load(seen.url, Stage("hold", Closed(2), 600.0), workers=2))
        messages: list[Message] = []
        async with asyncio.timeout(30):
            async for message in driver.messages():
                messages.append(message)
                if isinstance(message, Tick) and message.elapsed_s == 1.0:
                    os.kill(driver.worker_pids[0], signal.SIGSTOP)
    assert "worker 1 of 2 died: signal 9" in done_of(messages).incomplete


async def test_a_stop_ends_in_seconds_with_its_done() -> None:
    async def endless(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        for _ in range(10_000):
            writer.write(EVENT_STREAM + chunk(TOKEN) if _ == 0 else chunk(TOKEN))
            await writer.drain()
            await asyncio.sleep(0.02)
        return False

    async with scripted(endless) as seen:
        driver = LoadDriver()
        await driver.start(load(seen.url, Stage("hold", Closed(4), 600.0)))
        messages: list[Message] = []
        began = 0.0
        async with asyncio.timeout(30):
            async for message in driver.messages():
                messages.append(message)
                if isinstance(message, Tick) and message.elapsed_s == 1.0:
                    began = time.monotonic()
                    await driver.stop(0.5)
        took = time.monotonic() - began
    done = done_of(messages)
    assert took < 5
    assert (done.incomplete, done.total.counts.cancelled, done.total.counts.failed) == (
        "it was stopped before its end", 4, 0,
    )  # fmt: skip


async def test_a_stop_that_comes_before_the_workers_are_ready_is_not_lost() -> None:
    async with scripted(paced) as seen:
        driver = LoadDriver()
        spec = load(seen.url, Stage("hold", Closed(4), 600.0))
        starting = asyncio.create_task(driver.start(spec))
        await driver.stop(0.5)
        async with asyncio.timeout(30):
            await starting
            messages = [message async for message in driver.messages()]
    done = done_of(messages)
    assert (done.incomplete, driver.worker_pids) == ("it was stopped before its end", ())


async def test_an_outage_is_followed_to_the_first_success() -> None:
    gone = False

    async def mortal(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        if gone:
            writer.transport.abort()
            return False
        return await paced(asked, writer)

    async with scripted(mortal) as seen:
        driver = LoadDriver()
        await driver.start(load(seen.url, Stage("hold", Closed(4), 10.0)))
        messages: list[Message] = []
        async with asyncio.timeout(40):
            async for message in driver.messages():
                messages.append(message)
                if isinstance(message, Tick):
                    gone = 4.0 <= message.elapsed_s < 7.0
    done = done_of(messages)
    (outage,) = done.outages
    assert outage.first_success_ns is not None
    assert outage.start_ns < outage.first_success_ns
    assert outage.requests_lost == done.total.counts.failed > 4
    found = kinds(messages)
    # whether P95 is back within 10 % depends on how busy this machine is: the tracker's own tests judge that
    assert [k for k in found if k in ("load.outage", "load.first_success")] == ["load.outage", "load.first_success"]
    assert "load.backoff" in found
    assert done.total.histograms.ttft.count == done.total.counts.completed


async def test_a_target_that_was_never_there_ends_with_its_errors() -> None:
    messages = await collect(LoadDriver(), load("http://127.0.0.1:9", Stage("hold", Closed(2), 3.0)))
    done = done_of(messages)
    assert done.total.counts.completed == 0
    assert {name for name, _ in done.total.counts.errors} == {"connect"}
    assert done.outages[0].first_success_ns is None


@pytest.mark.parametrize("command", [("/no/such/program",), (sys.executable, "-c", "raise SystemExit('bad luck')")])
async def test_a_worker_that_does_not_start_is_a_clear_error(command: tuple[str, ...]) -> None:
    with pytest.raises(WorkerError, match="load worker"):
        await LoadDriver(command).start(load("http://127.0.0.1:9", Stage("hold", Closed(1), 1.0)))


async def test_a_target_that_can_not_be_addressed_is_a_clear_error() -> None:
    stage = Stage("hold", Closed(1), 1.0)
    with pytest.raises(ConfigError, match="url"):
        await LoadDriver().start(load("nowhere", stage))
    with pytest.raises(TargetError, match="unknown kind"):
        await LoadDriver().start(load("http://h", stage, target=TargetSpec(("http://h",), adapter="telnet")))
    with pytest.raises(WorkerError, match="ca_file"):
        await LoadDriver().start(
            load("https://h", stage, target=TargetSpec(("https://h",), ca_file="/no/such.pem"))
        )  # fmt: skip


async def test_a_trace_that_can_not_be_read_ends_the_load_with_its_name(tmp_path: Path) -> None:
    async with scripted(paced) as seen:
        messages = await collect(LoadDriver(), load(seen.url, Stage("t", Trace(str(tmp_path / "gone.jsonl")), 2.0)))
    assert "gone.jsonl" in done_of(messages).incomplete


OWNER = """
import asyncio, sys
from soakd.load.driver import LoadDriver
from soakd.load.spec import spec_from_json
async def main():
    driver = LoadDriver()
    await driver.start(spec_from_json(sys.stdin.buffer.read()))
    print(*driver.worker_pids, flush=True)
    async for _ in driver.messages():
        pass
asyncio.run(main())
"""


async def test_workers_die_with_their_owner() -> None:
    async with scripted(paced) as seen:
        owner = await asyncio.create_subprocess_exec(
            sys.executable, "-c", OWNER, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert owner.stdin is not None
        assert owner.stdout is not None
        owner.stdin.write(spec_to_json(load(seen.url, Stage("hold", Closed(2), 600.0), workers=2)))
        owner.stdin.close()
        pids = [int(pid) for pid in (await asyncio.wait_for(owner.stdout.readline(), 20)).split()]
        assert len(pids) == 2
        owner.kill()
        await owner.wait()
        for pid in pids:
            await asyncio.wait_for(asyncio.to_thread(_wait_until_gone, pid), 5)


def _wait_until_gone(pid: int) -> None:
    """A process that is no child of ours is waited for through a pidfd, which is readable once it has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([handle], [], [], 4.0)[0], f"worker {pid} outlived its owner"
    finally:
        os.close(handle)
