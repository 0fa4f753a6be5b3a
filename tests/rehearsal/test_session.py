"""A whole rehearsal with its real processes: everything answers, dies and comes back as the scenario says."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import aiohttp
import psutil
import pytest

from soakd.errors import SoakdError
from soakd.model import State
from soakd.nvml.pool import GpuPool
from soakd.rehearsal.session import Rehearsal

pytestmark = pytest.mark.integration

PARENT = """
import asyncio, sys
from pathlib import Path
from soakd.rehearsal.session import Rehearsal
async def main():
    async with Rehearsal.start("healthy", directory=Path(sys.argv[1])) as rehearsal:
        print(rehearsal.pid, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


async def ask(session: aiohttp.ClientSession, rehearsal: Rehearsal) -> bool:
    body = {"model": rehearsal.model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}
    try:
        async with session.post(f"{rehearsal.url}/v1/chat/completions", json=body) as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False


async def test_cards_answer_through_the_pool_with_the_targets_process_on_them(tmp_path: Path) -> None:
    async with Rehearsal.start("healthy", directory=tmp_path, cards=3) as rehearsal:
        pool = GpuPool(rehearsal.clock, rehearsal.nvml_command)
        try:
            fast, slow = await pool.ask("fast"), await pool.ask("slow")
        finally:
            await pool.close()
        assert [r.gpu for r in fast] == list(rehearsal.cards)
        assert all(r.state is State.OK for r in fast)
        assert all("SIMULATED" in r.gpu.name for r in fast)
        processes = [r.answers["compute_processes"].value for r in slow]
        assert [p[0]["pid"] for p in processes if isinstance(p, list)] == [rehearsal.pid] * 3
        assert (rehearsal.roots.sys / "bus/pci/devices" / fast[0].gpu.bdf / "aer_dev_fatal").exists()
        now = rehearsal.clock.wall_ns()
        assert all(abs(r.at_ns - now) < 600e9 for r in fast), "replies are stamped with simulated time"


async def test_load_makes_the_cards_work(tmp_path: Path) -> None:
    async with Rehearsal.start("healthy", directory=tmp_path) as rehearsal, aiohttp.ClientSession() as session:
        assert not rehearsal.device(0).at(rehearsal.stage.now_s()).gpu_percent
        assert await ask(session, rehearsal)
        assert rehearsal.device(0).at(rehearsal.stage.now_s()).gpu_percent > 50


async def test_a_lost_card_is_reported_with_its_xid(tmp_path: Path) -> None:
    async with Rehearsal.start("gpu-lost", directory=tmp_path, duration_s=2400, speed=300) as rehearsal:
        pool = GpuPool(rehearsal.clock, rehearsal.nvml_command)
        kinds: dict[str, str] = {}
        try:
            assert len(await pool.ask("fast")) == 2, "both cards must be known before one is lost"
            async with asyncio.timeout(60):
                while not {"xid", "gpu.lost"} <= kinds.keys():
                    await pool.ask("fast")
                    kinds |= {e.kind: f"{e.what} {dict(e.labels)}" for e in await pool.take_events()}
                    await asyncio.sleep(0.02)
            states = [r.state for r in await pool.ask("fast")]
        finally:
            await pool.close()
    lost = rehearsal.cards[1]
    assert states == [State.OK, State.LOST]
    assert "XID 79" in kinds["xid"]
    assert lost.uuid in kinds["xid"]
    assert lost.bdf in kinds["gpu.lost"]


async def test_a_crashed_server_comes_back_on_its_port_as_another_process(tmp_path: Path) -> None:
    async with (
        Rehearsal.start("server-crash", directory=tmp_path, duration_s=400, speed=400) as rehearsal,
        aiohttp.ClientSession() as session,
    ):
        first, url = rehearsal.pid, rehearsal.url
        seen: list[bool] = []
        async with asyncio.timeout(60):
            while seen[-1:] != [True] or False not in seen:
                seen.append(await ask(session, rehearsal))
                await asyncio.sleep(0.05)
        assert (rehearsal.url, rehearsal.pid is not None) == (url, True)
        assert rehearsal.pid != first
        downs = [c for c in rehearsal.activity.read().changes if c.pid is None]
        assert len(downs) == 1
        (expected,) = rehearsal.expects
        assert downs[0].at_s >= expected.from_s
        assert rehearsal.device(0).at(downs[0].at_s + 1).used_bytes < 16 * 2**20


async def test_nothing_is_left_behind(tmp_path: Path) -> None:
    async with Rehearsal.start("healthy", directory=tmp_path) as rehearsal:
        process = psutil.Process(rehearsal.pid)
    assert not process.is_running()


async def test_nothing_outlives_a_killed_parent(tmp_path: Path) -> None:
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, str(tmp_path), stdout=PIPE)
    assert parent.stdout is not None
    child = psutil.Process(int(await parent.stdout.readline()))
    parent.kill()
    await parent.wait()
    _, alive = await asyncio.to_thread(psutil.wait_procs, [child], 10)
    assert not alive


async def test_a_taken_port_is_a_clear_error(tmp_path: Path) -> None:
    async with Rehearsal.start("healthy", directory=tmp_path / "a") as first:
        with pytest.raises(SoakdError, match=f"can't listen.*port {first.target.port}"):
            async with Rehearsal.start("healthy", directory=tmp_path / "b", port=first.target.port):
                pass


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"duration_s": 0}, "duration"), ({"speed": 0}, "speed"), ({"cards": 9}, "2 to 4"), ({"scenario": "x"}, "one of")],
)
async def test_what_can_not_be_rehearsed_is_refused(tmp_path: Path, fields: dict[str, object], words: str) -> None:
    asked = {"scenario": "healthy", "directory": tmp_path, **fields}
    with pytest.raises(SoakdError, match=words):
        async with Rehearsal.start(**asked):  # type: ignore[arg-type]
            pass


def test_the_worker_lists_only_cards_that_are_there(tmp_path: Path) -> None:
    async def listed(scenario: str) -> list[str]:
        async with Rehearsal.start(scenario, directory=tmp_path / scenario, duration_s=1, speed=1000) as rehearsal:
            done = await asyncio.to_thread(
                subprocess.run, [*rehearsal.nvml_command, "list"], capture_output=True, check=True
            )
        return [card["bdf"] for card in json.loads(done.stdout)["cards"]]

    assert len(asyncio.run(listed("healthy"))) == 2
    assert asyncio.run(listed("gpu-lost")) == ["0000:1a:00.0"]
