"""XIDs: each once, a second one visible, a source that can't be read said with what to grant."""

from __future__ import annotations

from pathlib import Path

import pytest

from soakd.collectors import xid
from soakd.model import State
from soakd.nvml.kmsg import KmsgReader
from soakd.nvml.xid_table import XidClass, describe
from tests.support.gpus import HandClock, events, machine, one, samples, value

A100 = "0000:41:00.0"
LINE = "3,{n},{n},-;NVRM: Xid (PCI:0000:41:00): {code}, pid=7, name=python3, detail\n"


def log(tmp_path: Path, *codes: int, first: int = 1) -> None:
    with (tmp_path / "dev/kmsg").open("a") as file:
        for n, code in enumerate(codes, first):
            file.write(LINE.format(n=n, code=code))


@pytest.fixture
def kmsg(tmp_path: Path) -> Path:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").touch()
    return tmp_path


async def test_one_xid_from_both_sources_counts_once_and_a_second_is_seen(kmsg: Path) -> None:
    clock = HandClock()
    ctx, source = machine(kmsg, clock, "a100")
    collector = xid.build(xid.Config(), ctx)
    assert value(await collector.collect(), "gpu_xid_errors_total", class_="application") == 0
    source.step()  # NVML tells of two XIDs 94
    log(kmsg, 94, 94)
    items = await collector.collect()
    assert len(events(items, "xid")) == 2
    assert value(items, "gpu_xid_errors_total", class_="application") == 2
    assert value(items, "gpu_xid_code_errors_total", xid="94") == 2
    clock.turn(1)
    quiet = await collector.collect()
    assert events(quiet) == []
    assert value(quiet, "gpu_xid_code_errors_total", xid="94") == 2
    await collector.close()


async def test_an_xid_of_the_kernel_log_alone_is_seen(kmsg: Path) -> None:
    ctx, _ = machine(kmsg, HandClock(), "a100")
    collector = xid.build(xid.Config(), ctx)
    log(kmsg, 79)
    items = await collector.collect()
    (event,) = events(items, "xid")
    attrs = dict(event.attrs)
    assert (attrs["xid"], attrs["class"], attrs["source"]) == ("79", "reboot", "kmsg")
    assert dict(event.labels)["gpu"].startswith("GPU-")
    assert value(items, "gpu_xid_errors_total", class_="reboot") == 1
    await collector.close()


async def test_messages_from_before_the_start_are_no_xids_of_this_run(kmsg: Path) -> None:
    log(kmsg, 79)
    ctx, _ = machine(kmsg, HandClock(), "a100")
    collector = xid.build(xid.Config(), ctx)
    assert events(await collector.collect(), "xid") == []
    await collector.close()


class DeniedLog(KmsgReader):
    """A kernel log of a host with dmesg_restrict, read without CAP_SYSLOG."""

    def open(self) -> None:
        raise PermissionError(1, "Operation not permitted")


async def test_a_log_that_cannot_be_read_says_what_to_grant(tmp_path: Path) -> None:
    ctx, _ = machine(tmp_path, HandClock(), "a100")
    items = await xid.XidCollector(xid.Config(), ctx, DeniedLog(tmp_path)).collect()
    sample = one(items, "gpu_xid_source", source="kmsg")
    assert sample.state is State.NO_PERMISSION
    assert "CAP_SYSLOG" in sample.why
    assert value(items, "gpu_xid_source", source="nvml") == 1
    assert value(items, "gpu_xid_errors_total", class_="reboot") == 0


async def test_with_no_source_at_all_no_xids_is_unknown_not_zero(tmp_path: Path) -> None:
    clock = HandClock()
    ctx, source = machine(tmp_path, clock, "a100")
    source.step()
    source.step()  # the card is lost, and there is no kernel log
    await source.take_events()
    items = await xid.build(xid.Config(), ctx).collect()
    assert {s.state for s in samples(items, "gpu_xid_errors_total")} == {State.ABSENT}


async def test_overwritten_messages_are_counted(kmsg: Path) -> None:
    ctx, _ = machine(kmsg, HandClock(), "a100")
    collector = xid.build(xid.Config(), ctx)
    log(kmsg, 13)
    await collector.collect()
    log(kmsg, 13, first=50)
    assert value(await collector.collect(), "gpu_xid_kmsg_missed_total") == 48
    await collector.close()


@pytest.mark.parametrize(
    ("code", "kind"),
    [(79, XidClass.REBOOT), (119, XidClass.RESET), (95, XidClass.RESET), (48, XidClass.WORKFLOW),
     (147, XidClass.WORKFLOW), (31, XidClass.APPLICATION), (94, XidClass.APPLICATION), (63, XidClass.IGNORE),
     (999, XidClass.UNKNOWN)],
)  # fmt: skip
def test_classes(code: int, kind: XidClass) -> None:
    found = describe(code)
    assert found.kind is kind
    assert found.advice
