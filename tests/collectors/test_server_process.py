from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from soakd.clock import RealClock
from soakd.collectors.server_process import METRICS, Config, build
from soakd.demo.launch import DemoServer
from soakd.model import State, TargetInfo
from soakd.ports import CollectorContext, Roots
from tests.support.proc_tree import HandClock, add_process, context, events, roots, samples, states, values, write

LISTENING = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1
"""
ARGUMENTS = ("/usr/bin/vllm", "serve", "m", "--api-key", "sk-secret", "--port", "8000")
TARGET = TargetInfo("http://127.0.0.1:8000", "vllm", "m", pid=100, picked_by="it listens on port 8000")


def machine(proc: Path, pid: int = 100, start: int = 500) -> None:
    write(proc, {"stat": "btime 1700000000\n", "vmstat": "oom_kill 0\n", "net/tcp": LISTENING})
    add_process(proc, pid, "vllm", arguments=ARGUMENTS, anon_kib=100, swap_kib=20, files=5, start=start)


def remove(proc: Path, pid: int) -> None:
    for path in sorted((proc / str(pid)).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (proc / str(pid)).rmdir()


async def test_the_tree_is_summed_and_told_by_role(tmp_path: Path) -> None:
    found, clock = roots(tmp_path), HandClock()
    machine(found.proc)
    add_process(found.proc, 101, "VLLM::Worker_TP0", 100, anon_kib=300, files=9)
    add_process(found.proc, 102, "VLLM::Worker_TP1", 100, anon_kib=500, files=1)
    add_process(found.proc, 103, "sh", 101, anon_kib=1)
    add_process(found.proc, 900, "other", 1, anon_kib=9999)
    collector = build(Config(), context(found, clock, TARGET))
    items = await collector.collect()
    assert values(items, "server_process_anon_swap_bytes", role="total") == [(120 + 300 + 500 + 1) * 1024]
    assert values(items, "server_process_anon_swap_bytes", role="VLLM::Worker_TP") == [800 * 1024]
    assert values(items, "server_process_anon_swap_bytes", role="root") == [120 * 1024]
    assert values(items, "server_processes", role="total") == [4]
    assert values(items, "server_process_open_files", role="root") == [5]
    assert values(items, "server_process_open_files_limit") == [10]
    assert values(items, "server_process_open_files_ratio") == [0.9], "of the process nearest to its limit"
    assert values(items, "server_process_uss_bytes", role="root") == [104 * 1024]
    assert values(items, "server_process_start_time_seconds") == [1700000005]
    (event,) = events(items)
    assert event.kind == "server.process"
    assert "sk-secret" not in event.what
    assert dict(event.attrs)["picked_by"] == TARGET.picked_by
    await collector.close()


async def test_processor_time_keeps_what_ended_processes_used(tmp_path: Path) -> None:
    found, clock = roots(tmp_path), HandClock()
    machine(found.proc)
    add_process(found.proc, 101, "worker", 100, cpu=1000)
    collector = build(Config(), context(found, clock, TARGET))
    assert values(await collector.collect(), "server_process_cpu_seconds_total", role="total") == [0]
    add_process(found.proc, 101, "worker", 100, cpu=1250)
    assert values(await collector.collect(), "server_process_cpu_seconds_total", role="total") == [2.5]
    remove(found.proc, 101)
    assert values(await collector.collect(), "server_process_cpu_seconds_total", role="total") == [2.5]
    await collector.close()


async def test_a_restart_is_followed_and_an_oom_kill_is_named(tmp_path: Path) -> None:
    found, clock = roots(tmp_path), HandClock()
    machine(found.proc)
    collector = build(Config(), context(found, clock, TARGET))
    await collector.collect()
    remove(found.proc, 100)
    write(found.proc, {"vmstat": "oom_kill 1\n", "net/tcp": LISTENING.splitlines()[0] + "\n"})
    items = await collector.collect()
    (ended,) = events(items, "server.exit")
    assert dict(ended.attrs)["cause"] == "oom_kill"
    assert values(items, "server_process_up") == [0]
    assert samples(items, "server_process_rss_bytes")[0].state is State.LOST
    clock.pass_(30)
    machine(found.proc, pid=200, start=9000)
    (found.proc / "200/fd/0").unlink()
    (found.proc / "200/fd/0").symlink_to("socket:[4242]")
    items = await collector.collect()
    (restart,) = events(items, "server.restart")
    assert dict(restart.attrs) == {"cause": "oom_kill", "down_seconds": "30.0", "pid": "200"}
    assert values(items, "server_process_restarts_total") == [1]
    assert values(items, "server_process_up") == [1]
    await collector.close()


async def test_the_same_pid_with_another_start_is_another_process(tmp_path: Path) -> None:
    found = roots(tmp_path)
    machine(found.proc)
    collector = build(Config(), context(found, HandClock(), TARGET))
    await collector.collect()
    machine(found.proc, start=777)
    (found.proc / "100/fd/0").unlink()
    (found.proc / "100/fd/0").symlink_to("socket:[4242]")
    kinds = [e.kind for e in events(await collector.collect())]
    assert kinds == ["server.exit", "server.restart"]
    await collector.close()


async def test_another_server_is_not_taken_for_the_one_that_ended(tmp_path: Path) -> None:
    found = roots(tmp_path)
    machine(found.proc)
    collector = build(Config(), context(found, HandClock(), TARGET))
    await collector.collect()
    remove(found.proc, 100)
    write(found.proc, {"net/tcp": LISTENING.splitlines()[0] + "\n"})
    add_process(found.proc, 300, "vllm", arguments=("/usr/bin/vllm", "serve", "n", "--port", "9000"))
    items = await collector.collect()
    assert [e.kind for e in events(items)] == ["server.exit"]
    assert values(items, "server_process_up") == [0]
    await collector.close()


async def test_a_worker_that_ends_is_an_event_unless_it_was_short_lived(tmp_path: Path) -> None:
    found, clock = roots(tmp_path), HandClock()
    machine(found.proc)
    add_process(found.proc, 101, "engine", 100)
    collector = build(Config(), context(found, clock, TARGET))
    await collector.collect()
    clock.pass_(61)
    add_process(found.proc, 102, "nvcc", 100)
    await collector.collect()
    remove(found.proc, 101)
    remove(found.proc, 102)
    (event,) = events(await collector.collect())
    assert event.kind == "server.worker_exit"
    assert dict(event.labels) == {"role": "engine"}
    await collector.close()


async def test_a_process_whose_files_are_hidden_costs_those_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = roots(tmp_path)
    machine(found.proc)

    def hidden(proc: Path, pid: int) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("soakd.collectors.server_process.open_files", hidden)
    collector = build(Config(), context(found, HandClock(), TARGET))
    items = await collector.collect()
    refused = samples(items, "server_process_open_files")[0]
    assert refused.state is State.NO_PERMISSION
    assert "CAP_SYS_PTRACE" in refused.why
    assert values(items, "server_process_rss_bytes", role="total")[0] is not None
    await collector.close()


async def test_page_tables_are_walked_at_their_own_pace(tmp_path: Path) -> None:
    found, clock = roots(tmp_path), HandClock()
    machine(found.proc)
    collector = build(Config(smaps_every="60s"), context(found, clock, TARGET))
    counts = []
    for _ in range(4):
        counts.append(len(samples(await collector.collect(), "server_process_pss_bytes", role="total")))
        clock.pass_(30)
    assert counts == [1, 0, 1, 0]
    await collector.close()


@pytest.mark.parametrize("target", [None, TargetInfo("http://far:1", "vllm", "m", local=False)])
async def test_no_local_target_is_absent(tmp_path: Path, target: TargetInfo | None) -> None:
    items = await build(Config(), context(roots(tmp_path), HandClock(), target)).collect()
    assert len(items) == len(METRICS)
    assert states(items) == {State.ABSENT}


@pytest.mark.integration
async def test_a_real_server_killed_and_started_again(tmp_path: Path) -> None:
    async with DemoServer.start(tmp_path) as server:
        target = TargetInfo(server.url, "llamacpp", server.model, pid=server.pid)
        collector = build(Config(), CollectorContext(RealClock(), Roots(), None, target))
        items = await collector.collect()
        assert (values(items, "server_process_anon_swap_bytes", role="total")[0] or 0) > 2**20
        assert (values(items, "server_process_open_files", role="root")[0] or 0) > 3
        await server.kill()
        for _ in range(100):
            kinds = {e.kind: e for e in events(await collector.collect())}
            if kinds:
                break
            await asyncio.sleep(0.02)
        assert dict(kinds["server.exit"].attrs)["cause"] in ("external_kill", "unknown")
        await server.restart()
        items = await collector.collect()
        assert dict(events(items, "server.restart")[0].attrs)["pid"] == str(server.pid)
        await collector.close()
