"""The daemon as a real process: starts, tells systemd, turns red for a reason, stops in time, survives kill -9."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from soakd.journal import JournalReader
from tests.support.daemons import NotifySocket, configured, daemon, outcome, replayed, soakd
from tests.support.small_disk import small_disk

pytestmark = pytest.mark.integration
SLOW = {name: {"interval": "1h"} for name in (
    "allocator", "clock_sync", "gpu_ecc", "gpu_memory", "gpu_power_clocks", "gpu_thermal", "host", "host_pressure",
    "kernel_log", "pcie_aer", "pcie_link", "pcie_power", "server_metrics", "server_process", "soakd", "xid",
)}  # fmt: skip


def watched(notify: NotifySocket, watchdog_s: float = 0.9) -> dict[str, str]:
    return {"NOTIFY_SOCKET": str(notify.path), "WATCHDOG_USEC": str(int(watchdog_s * 1e6))}


async def test_it_starts_healthy_and_ends_by_sigterm(tmp_path: Path) -> None:
    async with (
        NotifySocket.open(tmp_path / "notify") as notify,
        daemon(configured(tmp_path), watched(notify)) as running,
    ):
        await notify.until("READY=1")
        await notify.until("WATCHDOG=1")
        assert await notify.until("STATUS=") == "STATUS=watching"
        status, health = await running.get("/healthz")
        assert (status, health) == (200, {"healthy": True, "problems": []})
        began = time.monotonic()
        running.kill(signal.SIGTERM)
        assert await running.ended(10.0) == 0
        assert time.monotonic() - began < 10
        await notify.until("STOPPING=1")
    assert not (tmp_path / "data/daemon.json").exists()
    assert not [line for line in running.log if line.get("level") in ("error", "critical")]


async def test_stale_data_turns_it_red_and_the_watchdog_is_not_fed(tmp_path: Path) -> None:
    config = configured(
        tmp_path, web={"listen": "127.0.0.1:0", "stale_after": "1s"}, collectors={k: dict(v) for k, v in SLOW.items()}
    )
    async with NotifySocket.open(tmp_path / "notify") as notify, daemon(config, watched(notify)) as running:
        await notify.until("READY=1")
        await notify.until("STATUS=no reading for")
        status, health = await running.get("/healthz")
        assert status == 503
        assert health["problems"][0].startswith("no reading for")
        notify.told.clear()
        await notify.until("STATUS=")
        await notify.until("STATUS=")
        assert "WATCHDOG=1" not in notify.told
        assert (await running.get("/status"))[1]["health"]["hung"]


async def test_a_full_disk_turns_it_red_but_is_no_reason_to_start_it_anew(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        config = configured(tmp_path, data_dir=str(disk / "data"))
        async with NotifySocket.open(tmp_path / "notify") as notify, daemon(config, watched(notify)) as running:
            await notify.until("STATUS=watching")
            _fill(disk / "filler")
            await notify.until("STATUS=journal: the disk under the journal")
            assert (await running.get("/healthz"))[0] == 503
            await notify.until("WATCHDOG=1")
            (disk / "filler").unlink()
            await notify.until("STATUS=watching")
            running.kill(signal.SIGTERM)
            assert await running.ended(10.0) == 0


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return


async def test_after_kill_9_nothing_is_lost_but_the_last_second(tmp_path: Path) -> None:
    config = configured(tmp_path)
    environment = replayed("h200")
    async with daemon(config, environment) as first:
        await first.get("/status")
        workers = [os.pidfd_open(int(pid)) for pid in children(first.process.pid)]
        await asyncio.sleep(5)  # for there to be something to lose
        killed_ns = time.time_ns()
        first.kill(signal.SIGKILL)
        await first.ended(5.0)
    newest = sqlite3.connect(f"file:{tmp_path}/data/journal.sqlite?mode=ro", uri=True)
    (at_ns,) = newest.execute("SELECT max(at_ns) FROM hot").fetchone()
    newest.close()
    assert killed_ns - at_ns < 2.5e9, "readings of each second, committed twice a second"
    assert workers
    for worker in workers:
        ended, _, _ = await asyncio.to_thread(select.select, [worker], [], [], 5.0)
        assert ended, "an NVML worker outlives its daemon"
        os.close(worker)
    assert (tmp_path / "data/daemon.json").exists()
    code, _, err = await outcome(await soakd("gpu", "release", "-c", str(config)))
    assert code == 2
    assert "no daemon is running" in err
    async with daemon(config, environment) as second:
        assert (await second.get("/healthz"))[0] == 200
        second.kill(signal.SIGTERM)
        assert await second.ended(10.0) == 0
    with JournalReader(tmp_path / "data") as reader:
        temperatures = reader.series("gpu_temperature_celsius")
        assert temperatures
        assert len(reader.events(kind="host.boot")) == 1, "the second start knows the boot"


async def test_the_cards_are_let_go_of_and_taken_back(tmp_path: Path) -> None:
    config = configured(tmp_path)
    async with daemon(config, replayed("h200", copies=2)) as running:
        gpus = (await running.get("/status"))[1]["gpus"]
        assert [(g["bdf"], g["state"]) for g in gpus] == [(g["bdf"], "ok") for g in gpus]
        assert len({g["uuid"] for g in gpus}) == 2
        before = children(running.process.pid)
        code, _, err = await outcome(await soakd("gpu", "release", "-c", str(config)))
        assert code == 0, err
        assert {g["state"] for g in (await running.get("/status"))[1]["gpus"]} == {"absent"}
        assert not before & children(running.process.pid)
        status, refused = await running.post("/soaks", {"sets": {"target.url": "http://127.0.0.1:9"}})
        assert (status, refused["hint"]) == (409, "soakd gpu acquire")
        code, _, err = await outcome(await soakd("gpu", "acquire", "-c", str(config)))
        assert code == 0, err
        assert {g["state"] for g in (await running.get("/status"))[1]["gpus"]} == {"ok"}
        assert (await running.get("/healthz"))[0] == 200


def children(pid: int) -> set[str]:
    return set(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


async def test_a_second_daemon_on_the_same_data_is_refused(tmp_path: Path) -> None:
    config = configured(tmp_path)
    async with daemon(config) as running:
        code, _, err = await outcome(await soakd("daemon", "-c", str(config)))
        assert code == 2
        assert f"in use by process {running.process.pid}" in err
        assert (await running.get("/healthz"))[0] == 200
