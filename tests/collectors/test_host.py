from __future__ import annotations

from pathlib import Path

import pytest

from soakd.collectors.host import METRICS, Config, CpuTimes, build, parse_devices, parse_protocol
from soakd.model import State
from tests.support.proc_tree import HandClock, context, roots, samples, states, values, write

STAT = """cpu  100 0 50 800 50 0 0 0 0 0
cpu0 50 0 25 400 25 0 0 0 0 0
cpu1 50 0 25 400 25 0 0 0 0 0
ctxt 12345
btime 1700000000
procs_blocked 2
"""
NET = """Inter-|   Receive                            |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo: 1 1 9 9 0 0 0 0 1 1 9 9 0 0 0 0
  eth0: 1000 10 3 4 0 0 0 0 2000 20 5 6 0 0 0 0
veth12: 1 1 9 9 0 0 0 0 1 1 9 9 0 0 0 0
"""


def machine(proc: Path) -> None:
    write(proc, {
        "stat": STAT,
        "meminfo": "MemTotal: 1000 kB\nMemAvailable: 600 kB\nMemFree: 100 kB\nCached: 5 kB\nSUnreclaim: 7 kB\n"
                   "SwapTotal: 50 kB\nSwapFree: 20 kB\nHugePages_Total: 8\nHugePages_Free: 3\nHugepagesize: 2048 kB\n",
        "loadavg": "0.50 1.25 2.00 1/100 4711\n",
        "vmstat": "pswpin 2\npswpout 3\noom_kill 0\n",
        "sys/fs/file-nr": "1024\t0\t9000\n",
        "net/dev": NET,
        "net/snmp": "Tcp: RtoMin RetransSegs\nTcp: 200 17\n",
        "net/netstat": "TcpExt: ListenOverflows ListenDrops\nTcpExt: 4 5\n",
    })  # fmt: skip


async def test_reads_a_machine(tmp_path: Path) -> None:
    found = roots(tmp_path)
    machine(found.proc)
    (found.dev / "shm").mkdir()
    collector = build(Config(disks=(tmp_path,)), context(found, HandClock()))
    items = await collector.collect()
    assert values(items, "host_memory_available_bytes") == [600 * 1024]
    assert values(items, "host_swap_used_bytes") == [30 * 1024]
    assert values(items, "host_huge_pages") == [8]
    assert values(items, "host_load_average", window="5m") == [1.25]
    assert values(items, "host_cpus") == [2]
    assert values(items, "host_processes_blocked") == [2]
    assert values(items, "host_open_files_limit") == [9000]
    assert values(items, "host_network_errors_total", device="eth0", direction="transmit") == [5]
    assert values(items, "host_network_dropped_total", device="eth0", direction="receive") == [4]
    assert not samples(items, "host_network_errors_total", device="lo")
    assert values(items, "host_tcp_retransmits_total") == [17]
    assert values(items, "host_tcp_listen_overflows_total") == [4]
    assert values(items, "host_swap_transfer_bytes_total", direction="out")[0] == 3 * 4096
    assert samples(items, "host_disk_free_bytes")[0].state is State.OK
    assert {i.metric for i in items} == set(METRICS)
    await collector.close()


async def test_the_busy_share_needs_two_readings(tmp_path: Path) -> None:
    found = roots(tmp_path)
    machine(found.proc)
    collector = build(Config(), context(found, HandClock()))
    first = samples(await collector.collect(), "host_cpu_busy_ratio")[0]
    assert first.state is State.ABSENT
    write(found.proc, {"stat": STAT.replace("cpu  100 0 50 800 50", "cpu  150 0 75 850 75")})
    assert values(await collector.collect(), "host_cpu_busy_ratio") == [0.5]
    await collector.close()


async def test_one_missing_file_costs_its_own_metrics_only(tmp_path: Path) -> None:
    found = roots(tmp_path)
    machine(found.proc)
    (found.proc / "meminfo").unlink()
    write(found.proc, {"loadavg": "garbage\n"})
    collector = build(Config(), context(found, HandClock()))
    items = await collector.collect()
    assert samples(items, "host_memory_total_bytes")[0].state is State.ABSENT
    assert samples(items, "host_load_average")[0].value is None
    assert values(items, "host_context_switches_total") == [12345]
    await collector.close()


async def test_an_empty_tree_is_unknown_and_never_zero(tmp_path: Path) -> None:
    collector = build(Config(disks=(tmp_path / "none",)), context(roots(tmp_path), HandClock()))
    items = await collector.collect()
    assert states(items) == {State.ABSENT}
    assert all(i.value is None and i.why for i in items)
    await collector.close()


def test_iowait_is_not_busy() -> None:
    before, after = CpuTimes((0, 0, 0, 0, 0, 0, 0, 0)), CpuTimes((10, 0, 10, 60, 20, 0, 0, 0))
    assert after.busy_since(before) == pytest.approx(0.2)
    assert before.busy_since(before) is None


def test_parsers_take_short_and_odd_input() -> None:
    assert parse_devices("") == []
    assert parse_devices("a\nb\n eth0: 1 2\n") == []
    assert parse_protocol("Tcp: A B\n", "Tcp") == {}
