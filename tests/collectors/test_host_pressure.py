from __future__ import annotations

from pathlib import Path

from soakd.collectors.host_pressure import Config, build, parse_pressure, stuck_driver_threads
from soakd.model import Severity, State, TargetInfo
from soakd.procfs import parse_stat
from tests.support.proc_tree import (
    HandClock,
    add_process,
    context,
    events,
    roots,
    samples,
    stat_line,
    values,
    write,
)

PSI = "some avg10=12.50 avg60=1.00 avg300=0.10 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
TARGET = TargetInfo("http://127.0.0.1:8000", "vllm", "m", pid=100)


async def test_pressure_kills_and_the_servers_group(tmp_path: Path) -> None:
    found = roots(tmp_path)
    add_process(found.proc, 100, "server")
    write(found.proc, {"pressure/memory": PSI, "vmstat": "oom_kill 3\n", "stat": "btime 1700000000\n",
                       "sys/kernel/random/boot_id": "one\n"})  # fmt: skip
    write(found.sys / "fs/cgroup/system.slice/llm.service", {
        "memory.events": "low 0\nhigh 2\nmax 5\noom 1\noom_kill 1\n", "memory.current": "4096\n", "memory.max": "max\n",
    })  # fmt: skip
    collector = build(Config(), context(found, HandClock(), TARGET))
    items = await collector.collect()
    assert values(items, "host_pressure_ratio", resource="memory", share="some") == [0.125]
    assert values(items, "host_pressure_stalled_seconds_total", resource="memory", share="some") == [2.5]
    assert samples(items, "host_pressure_ratio", resource="io")[0].state is State.UNSUPPORTED
    assert values(items, "host_oom_kills_total") == [3]
    assert values(items, "server_cgroup_memory_events_total", event="oom_kill") == [1]
    assert values(items, "server_cgroup_memory_bytes") == [4096]
    limit = samples(items, "server_cgroup_memory_limit_bytes")[0]
    assert (limit.state, limit.value) == (State.ABSENT, None)
    assert [e.kind for e in events(items)] == ["host.boot"]
    (found.proc / "100/cgroup").unlink()
    again = await collector.collect()
    assert values(again, "server_cgroup_memory_events_total", event="oom_kill") == [1], "its group outlives the server"
    await collector.close()


async def test_version_1_groups(tmp_path: Path) -> None:
    found = roots(tmp_path)
    add_process(found.proc, 100, "server")
    write(found.proc, {"100/cgroup": "4:cpu,memory:/box\n1:name=systemd:/\n"})
    write(found.sys / "fs/cgroup/memory/box", {
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", "memory.failcnt": "9\n",
        "memory.usage_in_bytes": "10\n", "memory.limit_in_bytes": "9223372036854771712\n",
    })  # fmt: skip
    collector = build(Config(), context(found, HandClock(), TARGET))
    items = await collector.collect()
    assert values(items, "server_cgroup_memory_events_total", event="oom_kill") == [2]
    assert values(items, "server_cgroup_memory_events_total", event="max") == [9]
    assert samples(items, "server_cgroup_memory_limit_bytes")[0].state is State.ABSENT
    await collector.close()


async def test_another_boot_id_is_a_reboot(tmp_path: Path) -> None:
    found = roots(tmp_path)
    write(found.proc, {"sys/kernel/random/boot_id": "two\n"})
    collector = build(Config(last_boot_id="one"), context(found, HandClock()))
    (event,) = events(await collector.collect())
    assert event.kind == "host.reboot"
    assert event.severity is Severity.CRITICAL
    assert dict(event.attrs) == {"boot_id": "two", "boot_id_before": "one"}
    assert not events(await collector.collect())
    await collector.close()


async def test_stuck_driver_threads_are_told_once_after_five_readings(tmp_path: Path) -> None:
    found = roots(tmp_path)
    add_process(found.proc, 7, "nvidia-modeset/kthread", state="D")
    add_process(found.proc, 8, "kworker/0:1", state="D")
    collector = build(Config(), context(found, HandClock()))
    seen = [await collector.collect() for _ in range(7)]
    assert values(seen[0], "host_driver_threads_blocked") == [1]
    assert [len(events(items, "host.driver_stuck")) for items in seen] == [0, 0, 0, 0, 1, 0, 0]
    add_process(found.proc, 7, "nvidia-modeset/kthread", state="S")
    assert values(await collector.collect(), "host_driver_threads_blocked") == [0]
    await collector.close()


def test_which_threads_are_the_drivers() -> None:
    names = ("nv_queue", "irq/87-nvidia", "UVM global queue", "nvidia-smi", "envoy", "bash")
    table = tuple(parse_stat(stat_line(n + 1, name, state="D")) for n, name in enumerate(names))
    assert stuck_driver_threads(table) == ("UVM global queue", "irq/87-nvidia", "nv_queue", "nvidia-smi")


def test_pressure_of_an_old_kernel_is_nothing() -> None:
    assert parse_pressure("") == []
    assert len(parse_pressure(PSI)) == 2
