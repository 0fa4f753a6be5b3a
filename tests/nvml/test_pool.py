"""The pool over real worker processes that play recordings: hangs, losses, returns, deaths, hot-plug."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from soakd.clock import RealClock
from soakd.model import Event, State
from soakd.nvml.card import Card, Limits
from soakd.nvml.device import CardId
from soakd.nvml.pool import GpuPool
from soakd.ports import GpuReply
from tests.support.gpus import FIXTURES

QUICK = Limits(
    fast_s=0.3, slow_s=0.5, start_s=10, fast_share_s=0.0, slow_share_s=0.0, backoff_first_s=0.02, backoff_last_s=0.05,
    max_replacements=2, discover_s=3600,
)  # fmt: skip
OK_ANSWERS = {"memory": [0, {"version": 2, "total": 8, "reserved": 1, "used": 2, "free": 5}]}


def card(folder: Path, n: int, *faults: str, migs: Sequence[str] = (), index: int | None = None) -> Path:
    """A recording of card ``n`` whose frames have these faults (empty for a good frame)."""
    units = dict.fromkeys(("", *migs), OK_ANSWERS)
    data = {
        "schema": "soakd.recording/1",
        "by_hand": True,
        "card": {"uuid": f"GPU-{n}", "bdf": f"0000:0{n}:00.0", "serial": f"{n}", "name": "Test card",
                 "ordinal": n if index is None else index, "migs": list(migs)},
        "frames": [{"fast": units, "slow": units, "fault": fault} for fault in faults or ("",)],
    }  # fmt: skip
    path = folder / f"card-{n}"
    path.mkdir(parents=True, exist_ok=True)
    (path / "recording.json").write_text(json.dumps(data))
    return path


@asynccontextmanager
async def pool_of(*paths: Path, limits: Limits = QUICK, **more: Any) -> AsyncIterator[GpuPool]:
    command = (sys.executable, "-m", "soakd.nvml.replay", *(str(p) for p in paths))
    pool = GpuPool(RealClock(), command, limits, **more)
    try:
        yield pool
    finally:
        await pool.close()


def states(replies: Sequence[GpuReply]) -> dict[str, State]:
    return {reply.gpu.mig or reply.gpu.uuid: reply.state for reply in replies}


async def until(pool: GpuPool, done: Callable[[Sequence[GpuReply]], bool], events: list[Event]) -> Sequence[GpuReply]:
    """Ask until ``done``: a replacement takes as long as a process needs to start."""
    async with asyncio.timeout(20):
        while True:
            replies = await pool.ask("fast")
            events += await pool.take_events()
            if done(replies):
                return replies
            await asyncio.sleep(0.01)


async def test_every_card_answers_with_its_identity() -> None:
    async with pool_of(FIXTURES / "h200", FIXTURES / "v100") as pool:
        replies = await pool.ask("fast")
        assert [(r.gpu.name, r.gpu.bdf, r.state) for r in replies] == [
            ("NVIDIA H200", "0000:00:06.0", State.OK),
            ("Tesla V100-PCIE-32GB", "0000:b1:00.0", State.OK),
        ]
        assert replies[0].answers["temperature_gpu"].value == 40
        assert [e.kind for e in await pool.take_events()] == ["gpu.found", "gpu.found"]


async def test_a_hung_card_is_a_timeout_and_costs_the_others_nothing(tmp_path: Path) -> None:
    async with pool_of(card(tmp_path, 1), card(tmp_path, 2, "hang")) as pool:
        await pool.start()
        replies = await pool.ask("fast")
        assert states(replies) == {"GPU-1": State.OK, "GPU-2": State.TIMEOUT}
        assert replies[1].answers == {}
        told = [e for e in await pool.take_events() if e.kind == "gpu.unresponsive"]
        assert len(told) == 1
        assert "nvmlDeviceGetFieldValues" in told[0].what
        assert dict(told[0].labels)["gpu"] == "GPU-2"


async def test_a_worker_that_hangs_is_ended(tmp_path: Path) -> None:
    limits = Limits(fast_s=0.3, start_s=10, fast_share_s=0.0, backoff_first_s=30, discover_s=3600)
    async with pool_of(card(tmp_path, 1, "hang"), limits=limits) as pool:
        await pool.start()
        (pid,) = pool.workers
        await pool.ask("fast")
        await until(pool, lambda _: not os.path.exists(f"/proc/{pid}"), [])


async def test_the_loop_goes_on_while_a_card_hangs(tmp_path: Path) -> None:
    async with pool_of(card(tmp_path, 1, "hang")) as pool:
        await pool.start()
        asking = asyncio.create_task(pool.ask("fast"))
        turns = 0
        while not asking.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 10


async def test_replacements_are_capped_and_nothing_leaks(tmp_path: Path) -> None:
    async with pool_of(card(tmp_path, 1, "hang")) as pool:
        await pool.start()
        events: list[Event] = []
        await until(pool, lambda _: sum(e.kind == "gpu.unresponsive" for e in events) == 3, events)
        files = len(os.listdir("/proc/self/fd"))
        for _ in range(50):
            (reply,) = await pool.ask("fast")
            assert reply.state is State.TIMEOUT
            assert "not replaced any more" in reply.why
        assert sum(e.kind == "gpu.unresponsive" for e in events) == 3
        assert await pool.take_events() == ()
        assert pool.workers == ()
        assert len(os.listdir("/proc/self/fd")) <= files


async def test_nothing_read_before_a_hang_is_served_after_it(tmp_path: Path) -> None:
    limits = Limits(fast_s=0.3, start_s=10, fast_share_s=0.0, slow_share_s=3600.0, backoff_first_s=30, discover_s=3600)
    async with pool_of(card(tmp_path, 1, "", "hang"), limits=limits) as pool:
        assert states(await pool.ask("fast")) == {"GPU-1": State.OK}
        assert states(await pool.ask("slow")) == {"GPU-1": State.OK}
        assert states(await pool.ask("fast")) == {"GPU-1": State.TIMEOUT}
        assert states(await pool.ask("slow")) == {"GPU-1": State.TIMEOUT}


async def test_a_lost_card_stays_as_lost_and_its_return_is_seen(tmp_path: Path) -> None:
    limits = Limits(fast_s=2, start_s=10, fast_share_s=0.0, backoff_first_s=30, discover_s=3600)
    async with pool_of(card(tmp_path, 1, "", "lost", "lost", ""), card(tmp_path, 2), limits=limits) as pool:
        seen = [states(await pool.ask("fast")) for _ in range(4)]
        assert [s["GPU-1"] for s in seen] == [State.OK, State.LOST, State.LOST, State.OK]
        assert {s["GPU-2"] for s in seen} == {State.OK}
        kinds = [e.kind for e in await pool.take_events()]
        assert kinds == ["gpu.found", "gpu.found", "gpu.lost", "gpu.returned"]


async def test_a_card_that_comes_back_to_a_new_worker_is_found(tmp_path: Path) -> None:
    """NVML gives a lost card back only to a process that starts anew."""
    path = card(tmp_path, 1, "", "lost")
    events: list[Event] = []
    async with pool_of(path) as pool:
        await until(pool, lambda r: r[0].state is State.LOST, events)
        card(tmp_path, 1, "", "")
        await until(pool, lambda r: r[0].state is State.OK, events)
    assert [e.kind for e in events] == ["gpu.found", "gpu.lost", "gpu.returned"]


async def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    path = card(tmp_path, 1, "", "exit")
    events: list[Event] = []
    async with pool_of(path) as pool:
        assert states(await pool.ask("fast")) == {"GPU-1": State.OK}
        card(tmp_path, 1, "", "")
        assert states(await pool.ask("fast")) == {"GPU-1": State.TIMEOUT}
        await until(pool, lambda r: r[0].state is State.OK, events)
    assert [e.kind for e in events] == ["gpu.found", "gpu.worker_died", "gpu.responsive"]
    assert "exit code 3" in events[1].what


async def test_a_new_card_is_found_and_one_that_drops_does_not_shift_the_others(tmp_path: Path) -> None:
    first, second = card(tmp_path, 1), card(tmp_path, 2)
    plugged: set[int] = set()
    limits = Limits(fast_s=2, start_s=10, fast_share_s=0.0, backoff_first_s=0.02, backoff_last_s=0.05, discover_s=0.0)
    card(tmp_path, 2, "lost")  # not listed yet
    events: list[Event] = []
    async with pool_of(first, second, limits=limits, fingerprint=lambda: frozenset(plugged)) as pool:
        assert states(await pool.ask("fast")) == {"GPU-1": State.OK}
        card(tmp_path, 2, index=1)
        plugged.add(2)
        await until(pool, lambda r: len(r) == 2 and r[1].state is State.OK, events)
        # the first card drops, so that the second one is now index 0
        card(tmp_path, 1, "lost")
        card(tmp_path, 2, index=0)
        os.kill(pool.workers[0], 9)
        plugged.add(3)
        replies = await until(pool, lambda r: r[0].state is State.LOST and r[1].gpu.index == 0, events)
        assert [r.gpu.uuid for r in replies] == ["GPU-1", "GPU-2"]
        assert dict(replies[1].gpu.labels) == {"gpu": "GPU-2", "bdf": "0000:02:00.0"}
        assert replies[1].state is State.OK


async def test_mig_instances_are_cards_of_their_own(tmp_path: Path) -> None:
    async with pool_of(card(tmp_path, 1, "", "lost", migs=["MIG-a", "MIG-b"])) as pool:
        assert states(await pool.ask("fast")) == dict.fromkeys(("GPU-1", "MIG-a", "MIG-b"), State.OK)
        assert states(await pool.ask("fast")) == dict.fromkeys(("GPU-1", "MIG-a", "MIG-b"), State.LOST)


def test_mig_instances_that_are_made_anew_again_and_again_stay_bounded() -> None:
    found = Card(CardId("GPU-1", "0000:01:00.0", "1", "Test card", 0), (), RealClock(), QUICK, lambda event: None)
    for n in range(40):
        replies = found.replies_from({"": OK_ANSWERS, f"MIG-{n}": OK_ANSWERS}, n)
        assert states(replies)[f"MIG-{n}"] is State.OK
        assert len(replies) <= 17


async def test_release_lets_go_of_every_handle_and_acquire_takes_them_back(tmp_path: Path) -> None:
    async with pool_of(card(tmp_path, 1)) as pool:
        await pool.ask("fast")
        (pid,) = pool.workers
        await pool.release()
        assert not os.path.exists(f"/proc/{pid}")  # noqa: ASYNC240
        replies = await pool.ask("fast")
        assert replies[0].state is State.ABSENT
        assert "released" in replies[0].why
        await pool.acquire()
        assert states(await pool.ask("fast")) == {"GPU-1": State.OK}
        assert [e.kind for e in await pool.take_events()] == ["gpu.found", "gpu.released", "gpu.acquired"]


async def test_no_gpu_is_said_once() -> None:
    command = (sys.executable, "-c", 'print(\'{"failed": 12, "why": "NVML Shared Library Not Found"}\')')
    pool = GpuPool(RealClock(), command, Limits(discover_s=0.0, fast_share_s=0.0))
    for _ in range(3):
        assert await pool.ask("fast") == ()
    await pool.close()
    assert pool.why_none == "no GPU found: NVML Shared Library Not Found"
    assert [e.kind for e in await pool.take_events()] == ["gpu.none"]


@pytest.mark.parametrize("code", ["import sys; sys.exit('boom')", "print('[]')", "import time; time.sleep(60)"])
async def test_a_listing_that_fails_or_hangs_is_no_gpu_found(code: str) -> None:
    pool = GpuPool(RealClock(), (sys.executable, "-c", code), Limits(start_s=1.0))
    assert await pool.ask("fast") == ()
    assert pool.why_none.startswith("no GPU found: ")
    await pool.close()


async def test_many_who_ask_at_once_cost_one_read(tmp_path: Path) -> None:
    async with pool_of(card(tmp_path, 1, "", "lost")) as pool:
        await pool.start()
        replies = await asyncio.gather(*(pool.ask("fast") for _ in range(5)))
        assert {r[0].state for r in replies} == {State.OK}


async def test_who_stops_waiting_does_not_stop_the_others(tmp_path: Path) -> None:
    async with pool_of(card(tmp_path, 1)) as pool:
        await pool.start()
        first, second = (asyncio.create_task(pool.ask("fast")) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert states(await second) == {"GPU-1": State.OK}


async def test_the_probe_says_of_each_query_whether_it_works() -> None:
    async with pool_of(FIXTURES / "h200") as pool:
        (probe,) = await pool.probe()
        assert probe.queries["temperature_gpu"].state is State.OK
        assert probe.queries["retired_pages_pending"].state is State.UNSUPPORTED
        assert probe.queries["DEV_POWER_MIN_LIMIT"].state is State.ABSENT
        assert probe.queries["utilization"].us == 3372


async def test_xids_are_events_with_class_and_advice() -> None:
    events: list[Event] = []

    def both(_: Sequence[GpuReply]) -> bool:
        return sum(e.kind == "xid" for e in events) == 2

    async with pool_of(FIXTURES / "a100") as pool:
        await until(pool, both, events)
    attrs = dict(next(e for e in events if e.kind == "xid").attrs)
    assert (attrs["xid"], attrs["class"]) == ("94", "application")
    assert attrs["advice"]


async def _run(*arguments: str, feed: Callable[[asyncio.subprocess.Process], Awaitable[None]]) -> int:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "soakd.nvml.replay", *arguments,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    await feed(process)
    assert process.stdin is not None
    process.stdin.close()
    async with asyncio.timeout(10):
        await process.communicate()
    assert process.returncode is not None
    return process.returncode


async def test_a_hung_worker_ends_when_its_parent_does(tmp_path: Path) -> None:
    async def ask_and_leave(process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"id": 1, "do": "fast"}\n')
        await process.stdout.readline()

    assert await _run(str(card(tmp_path, 1, "hang")), "serve", "GPU-1", feed=ask_and_leave) == 0


async def test_a_worker_survives_nonsense(tmp_path: Path) -> None:
    replies: list[dict[str, Any]] = []

    async def talk(process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'nonsense\n[]\n{"id": 1, "do": "dance"}\n{"id": 2, "do": "slow"}\n')
        for _ in range(3):
            replies.append(json.loads(await process.stdout.readline()))

    assert await _run(str(card(tmp_path, 1)), "serve", "GPU-1", feed=talk) == 0
    assert replies[0]["card"]["uuid"] == "GPU-1"
    assert "dance" in replies[1]["why"]
    assert replies[2]["units"][""]["memory"][0] == 0


async def test_the_cards_are_listed_again_only_when_something_changed(tmp_path: Path) -> None:
    """Listing starts the driver's library anew: too dear for once a minute."""
    path, counter = card(tmp_path, 1), tmp_path / "count"
    script = f'echo x >> {counter}; exec {sys.executable} -m soakd.nvml.replay {path} "$@"'
    seen = ["same"]
    limits = Limits(fast_s=2, start_s=10, fast_share_s=0.0, discover_s=0.0)
    pool = GpuPool(RealClock(), ("sh", "-c", script, "sh"), limits, fingerprint=lambda: seen[0])
    for _ in range(5):
        await pool.ask("fast")
    started = counter.read_text().count("x")
    seen[0] = "another"
    await pool.ask("fast")
    await pool.acquire()  # looks anew, and leaves a worker that is well alone
    assert started == 2, "one listing and one worker"
    assert counter.read_text().count("x") in (3, 4)
    await pool.close()
