from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.collectors.kernel_log import Config, KernelLogCollector, Repeats, build, classify, parse_record
from soakd.model import Severity, State
from tests.support.proc_tree import HandClock, context, events, roots, samples, values

AER = "pcieport 0000:00:01.0: AER: Corrected error message received from 0000:01:00.0"
OOM = "Out of memory: Killed process 4321 (python3) total-vm:99kB, anon-rss:88kB"
MCE = "mce: [Hardware Error]: Machine check events logged"
NVRM = "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0xffff:2477)"


def line(sequence: int, text: str, at_us: int = 1_000_000) -> bytes:
    return f"4,{sequence},{at_us},-;{text}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:01:00.0\n".encode()


def collector_over(tmp_path: Path, *lines: bytes, config: Config | None = None) -> KernelLogCollector:
    found = roots(tmp_path)
    (found.dev / "kmsg").write_bytes(b"".join(lines))
    return build(config or Config(from_start=True), context(found, HandClock()))


async def test_classes_become_events(tmp_path: Path) -> None:
    collector = collector_over(
        tmp_path, line(1, AER), line(2, OOM), line(3, MCE), line(4, NVRM), line(5, "usb 1-1: new device"),
        line(6, "INFO: task python3:99 blocked for more than 122 seconds."),
    )  # fmt: skip
    items = await collector.collect()
    assert [e.kind for e in events(items)] == [
        "kernel.pcie", "kernel.oom_kill", "kernel.mce", "kernel.nvrm", "kernel.hung_task",
    ]  # fmt: skip
    oom = events(items, "kernel.oom_kill")[0]
    assert oom.severity is Severity.CRITICAL
    assert dict(oom.attrs) == {"sequence": "2", "pid": "4321", "command": "python3"}
    assert dict(events(items, "kernel.nvrm")[0].labels) == {"bdf": "0000:01:00.0"}
    assert values(items, "kernel_log_messages_total", **{"class": "pcie"}) == [1]
    await collector.close()


async def test_the_time_is_that_of_the_message(tmp_path: Path) -> None:
    clock = HandClock()
    found = roots(tmp_path)
    at_us = clock.monotonic // 1000 - 5_000_000
    (found.dev / "kmsg").write_bytes(line(1, MCE, at_us))
    collector = build(Config(from_start=True), context(found, clock))
    assert events(await collector.collect())[0].at_ns == clock.wall - 5_000_000_000
    await collector.close()


async def test_repeats_are_counted_and_not_told_again(tmp_path: Path) -> None:
    storm = [line(n, AER, 1_000_000 + n) for n in range(1, 101)]
    other = line(101, AER.replace("0000:00:01.0", "0000:00:02.0"), 1_000_200)
    collector = collector_over(tmp_path, *storm, other)
    items = await collector.collect()
    assert len(events(items)) == 2, "another port with the same fault is another message"
    assert values(items, "kernel_log_messages_total", **{"class": "pcie"}) == [101]
    assert values(items, "kernel_log_events_dropped_total") == [99]
    await collector.close()


async def test_events_of_one_reading_are_bounded(tmp_path: Path) -> None:
    lines = [line(n, f"NVRM: fault {chr(97 + n)} of its own") for n in range(20)]
    collector = collector_over(tmp_path, *lines, config=Config(from_start=True, max_events=5))
    items = await collector.collect()
    assert len(events(items)) == 5
    assert values(items, "kernel_log_events_dropped_total") == [15]
    await collector.close()


async def test_gaps_in_the_sequence_are_lost_messages(tmp_path: Path) -> None:
    collector = collector_over(tmp_path, line(1, "a"), line(2, "b"), line(12, "c"))
    assert values(await collector.collect(), "kernel_log_lost_total") == [9]
    await collector.close()


async def test_old_messages_are_skipped_by_default(tmp_path: Path) -> None:
    collector = collector_over(tmp_path, line(1, OOM), config=Config())
    assert not events(await collector.collect())
    with (tmp_path / "dev/kmsg").open("ab") as file:
        file.write(line(2, MCE))
    assert [e.kind for e in events(await collector.collect())] == ["kernel.mce"]
    await collector.close()


async def test_no_permission_says_how_to_grant_just_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = collector_over(tmp_path)

    def refuse(self: KernelLogCollector) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(KernelLogCollector, "_open", refuse)
    items = await collector.collect()
    assert {s.state for s in samples(items, "kernel_log_lost_total")} == {State.NO_PERMISSION}
    assert "CAP_SYSLOG" in samples(items, "kernel_log_lost_total")[0].why


async def test_no_kmsg_is_absent(tmp_path: Path) -> None:
    collector = build(Config(), context(roots(tmp_path), HandClock()))
    assert samples(await collector.collect(), "kernel_log_lost_total")[0].state is State.ABSENT


def test_xid_lines_belong_to_another_collector() -> None:
    assert classify("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.") is None


def test_memory_of_repeats_is_bounded_and_the_window_ends() -> None:
    repeats = Repeats(60_000_000)
    for n in range(5000):
        repeats.is_new("x" * (n % 700 + 1), n)
    assert len(repeats.seen) <= 512
    assert repeats.is_new("boom 1", 10**9)
    assert not repeats.is_new("boom 2", 10**9 + 1)
    assert repeats.is_new("boom 3", 10**9 + 60_000_001)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_none(raw: bytes) -> None:
    record = parse_record(raw)
    assert record is None or record.sequence >= 0


@given(st.integers(0, 2**63), st.integers(0, 2**62), st.text(max_size=80))
def test_records_round_trip(sequence: int, at_us: int, text: str) -> None:
    one_line = text.replace("\n", " ")
    record = parse_record(f"6,{sequence},{at_us},c,caller=T1;{one_line}\n KEY=v\n".encode("utf-8", "replace"))
    assert record is not None
    assert (record.sequence, record.since_boot_us) == (sequence, at_us)
    assert record.text == one_line.encode("utf-8", "replace").decode()
