"""Kernel log records, the XIDs in them, and pairing with NVML's events."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.nvml.kmsg import KernelRecord, KmsgReader, parse_record, parse_xid
from soakd.nvml.xid_events import Sighting, XidPairs

XID_79 = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
SECOND = 10**9


def record(message: str) -> KernelRecord:
    return KernelRecord(3, 1, 5, message)


def test_a_record() -> None:
    found = parse_record("3,2417,908172635,-;" + XID_79)
    assert found == KernelRecord(3, 2417, 908172635, XID_79)


def test_extended_flags_and_facility() -> None:
    found = parse_record("30,1,2,c,caller=T42;hello; world\n")
    assert found == KernelRecord(6, 1, 2, "hello; world")


@pytest.mark.parametrize("line", ["", " SUBSYSTEM=pci", "no record", "1,2;x", "1,2,x,-;y"])
def test_what_is_no_record(line: str) -> None:
    assert parse_record(line) is None


@pytest.mark.parametrize(
    ("message", "bdf", "code"),
    [(XID_79, "0000:3b:00.0", 79), ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "0000:03:00.0", 14),
     ("NVRM: Xid (PCI:0000:c1:00.0): 119, pid=12, name=python3, Timeout waiting for RPC", "0000:c1:00.0", 119),
     ("NVRM: Xid (PCI:0001:00:00): 43", "0001:00:00.0", 43)],
)  # fmt: skip
def test_xids_of_every_driver_generation(message: str, bdf: str, code: int) -> None:
    found = parse_xid(record(message))
    assert found is not None
    assert (found.bdf, found.code) == (bdf, code)


@pytest.mark.parametrize(
    "message", ["NVRM: loading NVIDIA UNIX x86_64 Kernel Module", "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006",
                "audit: NVRM: Xid spoken of", "NVRM: Xid (PCI:0000:3b:00): none"]
)  # fmt: skip
def test_other_messages_are_no_xids(message: str) -> None:
    assert parse_xid(record(message)) is None


@given(st.text(max_size=300))
def test_no_line_breaks_the_parsers(text: str) -> None:
    found = parse_record(text)
    if found is not None:
        parse_xid(found)
    parse_xid(record(text))


@given(st.integers(0, 65535), st.integers(0, 255), st.integers(0, 31), st.integers(0, 999), st.text(max_size=60))
def test_every_address_and_number_is_read_back(domain: int, bus: int, slot: int, code: int, rest: str) -> None:
    found = parse_xid(record(f"NVRM: Xid (PCI:{domain:04x}:{bus:02x}:{slot:02x}): {code}, {rest}"))
    assert found is not None
    assert (found.bdf, found.code) == (f"{domain:04x}:{bus:02x}:{slot:02x}.0", code)


def test_reading_starts_at_the_end_and_counts_what_was_overwritten(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text("6,1,1,-;old\n")
    reader = KmsgReader(log)
    reader.open()
    assert reader.read().records == ()
    with log.open("a") as file:
        file.write("6,2,2,-;new\n KEY=value\n6,7,3,-;after a gap\n")
    batch = reader.read()
    assert [r.message for r in batch.records] == ["new", "after a gap"]
    assert batch.missed == 4
    reader.close()


def test_a_reader_that_may_not_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        KmsgReader(tmp_path / "kmsg").open()


def test_a_closed_reader_holds_no_file(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.touch()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        reader = KmsgReader(log)
        reader.open()
        reader.close()
    assert len(os.listdir("/proc/self/fd")) == before


def told(source: str, at_s: float, code: int = 79, bdf: str = "0000:3b:00.0") -> Sighting:
    return Sighting(bdf, code, source, int(at_s * SECOND))


def test_one_xid_told_twice_is_one() -> None:
    pairs = XidPairs(10)
    assert pairs.is_new(told("nvml", 0))
    assert not pairs.is_new(told("kmsg", 1))


def test_a_second_xid_of_the_same_number_is_seen() -> None:
    pairs = XidPairs(10)
    seen = [pairs.is_new(told(s, t)) for s, t in (("nvml", 0), ("kmsg", 0.5), ("nvml", 2), ("kmsg", 2.5))]
    assert seen == [True, False, True, False]
    only_kmsg = [XidPairs(10)]
    assert [only_kmsg[0].is_new(told("kmsg", t)) for t in (0, 1, 2)] == [True, True, True]


def test_the_same_number_on_another_card_or_long_after_is_new() -> None:
    pairs = XidPairs(10)
    assert pairs.is_new(told("nvml", 0))
    assert pairs.is_new(told("kmsg", 1, bdf="0000:5e:00.0"))
    assert pairs.is_new(told("kmsg", 60))


@given(st.lists(st.tuples(st.sampled_from(["nvml", "kmsg"]), st.integers(0, 3)), max_size=60))
def test_what_counts_is_the_larger_of_both_tellings(tellings: list[tuple[str, int]]) -> None:
    pairs = XidPairs(1000)
    counted = sum(pairs.is_new(told(source, 0, code)) for source, code in tellings)
    by_code = {code: [s for s, c in tellings if c == code] for _, code in tellings}
    assert counted == sum(max(s.count("nvml"), s.count("kmsg")) for s in by_code.values())
