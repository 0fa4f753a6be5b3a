"""The real pynvml on a library that is built here: field types, ids of another release, a hang, a loss, events."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from soakd.clock import RealClock
from soakd.model import Event, State
from soakd.nvml.card import Limits
from soakd.nvml.device import NOT_THERE, VERSION_MISMATCH
from soakd.nvml.pool import GpuPool
from soakd.ports import GpuReply

SOURCE = Path(__file__).parent / "fake_nvml/fake_nvml.c"
pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="the fake library is built with gcc")
LIMITS = Limits(
    fast_s=0.5, slow_s=2, start_s=10, fast_share_s=0.0, slow_share_s=0.0, backoff_first_s=0.02, backoff_last_s=0.05,
    max_replacements=1, discover_s=3600,
)  # fmt: skip


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nvml")
    target = str(folder / "libnvidia-ml.so.1")
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", target, str(SOURCE)], check=True, timeout=60)
    return folder


class FakeCard:
    """A pool of real workers on the fake library, and the file that changes the card."""

    def __init__(self, library: Path, control: Path) -> None:
        self._control = control
        control.write_text("")
        command = ("env", f"LD_LIBRARY_PATH={library}", f"FAKE_NVML_CONTROL={control}",
                   sys.executable, "-m", "soakd.nvml.worker")  # fmt: skip
        self.pool = GpuPool(RealClock(), command, LIMITS)
        self.events: list[Event] = []

    def becomes(self, words: str) -> None:
        self._control.write_text(words)

    async def ask(self, tier: str = "fast") -> GpuReply:
        (reply,) = await self.pool.ask(tier)
        self.events += await self.pool.take_events()
        return reply

    async def until(self, done: Callable[[GpuReply], bool]) -> GpuReply:
        async with asyncio.timeout(15):
            while not done(reply := await self.ask()):  # noqa: ASYNC110  # asking is what moves the pool
                await asyncio.sleep(0.02)
            return reply

    def kinds(self) -> list[str]:
        return [e.kind for e in self.events]


@asynccontextmanager
async def a_card(library: Path, folder: Path, words: str = "") -> AsyncIterator[FakeCard]:
    card = FakeCard(library, folder / "control")
    card.becomes(words)
    try:
        yield card
    finally:
        await card.pool.close()


async def test_every_type_of_answer_is_decoded(library: Path, tmp_path: Path) -> None:
    async with a_card(library, tmp_path) as card:
        reply = await card.ask()
        assert (reply.gpu.uuid, reply.gpu.bdf, reply.gpu.name) == ("GPU-fake", "0000:3b:00.0", "Fake card")
        told = {key: answer.value for key, answer in reply.answers.items() if answer.code == 0}
        assert told["memory"] == {"version": 2, "total": 1000, "reserved": 100, "used": 300, "free": 600}
        assert told["utilization"] == {"gpu": 97, "memory": 40}
        assert (told["temperature_gpu"], told["DEV_MEMORY_TEMP"], told["DEV_POWER_INSTANT"]) == (66, 71, 251000)
        assert told["DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN"] == 5_000_000_000
        assert told["throttle_reasons"] == 4, "the old name is not in this library; the new one is"
        assert reply.answers["clock_sm"].code == 13
        slow = await card.ask("slow")
        assert slow.answers["DEV_POWER_MIN_LIMIT"].code == NOT_THERE
        assert slow.answers["DEV_TEMPERATURE_SHUTDOWN_TLIMIT"].value == -8
        assert (slow.answers["DEV_TEMPERATURE_GPU_MAX_TLIMIT"].code, slow.answers["retired_pages_dbe"].value) == (0, 2)
        assert slow.answers["compute_processes"].value == [{"pid": 77, "used": 300}]
        assert slow.answers["graphics_processes"].code == 13, "pynvml raises another class of error for this one"
        assert slow.answers["ecc_mode"].value == {"current": 1, "pending": 0}
        assert slow.answers["violation_thermal"].value == {"referenceTime": 1, "violationTime": 5_000_000_000}


async def test_memory_falls_back_to_version_1(library: Path, tmp_path: Path) -> None:
    async with a_card(library, tmp_path, "v1") as card:
        value = (await card.ask()).answers["memory"].value
        assert value == {"version": 1, "total": 1000, "used": 400, "free": 600}


async def test_field_ids_of_another_driver_generation_are_not_asked(library: Path, tmp_path: Path) -> None:
    async with a_card(library, tmp_path, "old_driver") as card:
        answer = (await card.ask()).answers["DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN"]
        assert answer.code == VERSION_MISMATCH


async def test_what_needs_permission_says_so_and_costs_nothing_else(library: Path, tmp_path: Path) -> None:
    async with a_card(library, tmp_path, "denied") as card:
        slow = await card.ask("slow")
        assert (slow.state, slow.answers["compute_processes"].code, slow.answers["ecc_mode"].code) == (State.OK, 4, 0)


async def test_a_call_that_hangs_in_the_library_is_named(library: Path, tmp_path: Path) -> None:
    async with a_card(library, tmp_path) as card:
        assert (await card.ask()).state is State.OK
        card.becomes("hang")
        assert (await card.ask()).state is State.TIMEOUT
        assert "nvmlDeviceGetFieldValues" in next(e.what for e in card.events if e.kind == "gpu.unresponsive")
        card.becomes("")
        await card.until(lambda r: r.state is State.OK)
        assert card.kinds() == ["gpu.found", "gpu.unresponsive", "gpu.responsive"]


async def test_a_lost_card_returns_to_a_worker_that_starts_anew(library: Path, tmp_path: Path) -> None:
    async with a_card(library, tmp_path) as card:
        assert (await card.ask()).state is State.OK
        card.becomes("lost")
        reply = await card.ask()
        assert (reply.state, reply.gpu.uuid) == (State.LOST, "GPU-fake")
        card.becomes("")
        await card.until(lambda r: r.state is State.OK)
        assert card.kinds() == ["gpu.found", "gpu.lost", "gpu.returned"]


async def test_an_xid_event_reaches_the_pool(library: Path, tmp_path: Path) -> None:
    async with a_card(library, tmp_path) as card:
        await card.ask()
        card.becomes("xid")
        await card.until(lambda _: "xid" in card.kinds())
        attrs = dict(card.events[-1].attrs)
        assert (attrs["xid"], attrs["class"], attrs["source"]) == ("119", "reset", "nvml")


async def test_a_driver_without_a_card(library: Path, tmp_path: Path) -> None:
    async with a_card(library, tmp_path, "none") as card:
        assert await card.pool.ask("fast") == ()
        assert card.pool.why_none == "no GPU found: NVML lists none"


async def test_the_probe_covers_every_query(library: Path, tmp_path: Path) -> None:
    async with a_card(library, tmp_path) as card:
        (probe,) = await card.pool.probe()
        assert probe.queries["pstate"].state is State.OK
        assert probe.queries["clock_sm"].state is State.UNSUPPORTED
        assert len(probe.queries) > 100
