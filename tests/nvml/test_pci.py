"""The PCI tree, attributes that can't be read, and registers in configuration space."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.model import State
from soakd.nvml.pci import PciTree, awake, read_attribute, read_number
from soakd.nvml.pci_config import acs_control, aspm_control
from soakd.nvml.sysfs_tree import write_sysfs
from tests.support.gpus import sysfs_of

V100 = "0000:b1:00.0"


def test_the_path_goes_up_to_the_root_port(tmp_path: Path) -> None:
    tree = PciTree(write_sysfs(sysfs_of("v100"), tmp_path))
    tree.scan()
    assert tree.gpus == (V100,)
    assert [(d.bdf, d.role) for d in tree.path(V100)] == [
        (V100, "gpu"), ("0000:b0:08.0", "bridge"), ("0000:af:00.0", "bridge"), ("0000:ae:00.0", "root_port"),
    ]  # fmt: skip


def test_other_devices_are_no_gpus(tmp_path: Path) -> None:
    tree_of = {**sysfs_of("h200"), "0000:09:00.0": {"vendor": "0x10de\n", "class": "0x040300\n"}}  # its audio part
    tree = PciTree(write_sysfs(tree_of, tmp_path))
    tree.scan()
    assert tree.gpus == ("0000:00:06.0",)
    assert [d.role for d in tree.path("0000:00:06.0")] == ["gpu"]


def test_a_gpu_that_is_gone_stays_known(tmp_path: Path) -> None:
    tree = PciTree(write_sysfs(sysfs_of("a100"), tmp_path))
    tree.scan()
    (tmp_path / "bus/pci/devices/0000:41:00.0").unlink()
    tree.scan()
    assert tree.gpus == ("0000:41:00.0",)
    assert tree.lost("0000:41:00.0")


def test_no_pci_at_all(tmp_path: Path) -> None:
    tree = PciTree(tmp_path)
    tree.scan()
    assert tree.gpus == ()


def test_attributes_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert read_attribute(tmp_path / "missing").state is State.ABSENT
    assert read_attribute(tmp_path / "folder").state is State.ABSENT
    (tmp_path / "word").write_text("yes\n")
    assert read_number(tmp_path / "word")[:2] == (None, State.ABSENT)
    (tmp_path / "hex").write_text("0x1028\n")
    assert read_number(tmp_path / "hex")[:2] == (0x1028, State.OK)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_attribute_for_root_says_no_permission(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("1")
    (tmp_path / "secret").chmod(0)
    assert read_attribute(tmp_path / "secret").state is State.NO_PERMISSION


@pytest.mark.parametrize(
    ("status", "state", "ready"),
    [("active", "D0", True), ("unsupported", "D0", True), (None, None, True), ("suspended", "D3hot", False),
     ("active", "D3cold", False), ("suspending", "D0", False), ("error", "D0", False), ("active", "unknown", True)],
)  # fmt: skip
def test_when_a_device_may_be_read_without_waking_it(
    status: str | None, state: str | None, ready: bool, tmp_path: Path
) -> None:
    (tmp_path / "power").mkdir()
    if status is not None:
        (tmp_path / "power/runtime_status").write_text(status + "\n")
    if state is not None:
        (tmp_path / "power_state").write_text(state + "\n")
    assert awake(tmp_path)[0] is ready


def config_space(*, acs: int | None, aspm: int | None) -> bytes:
    """4,096 bytes with a PCIe capability at 0x70 and, after an AER capability, ACS at 0x140."""
    data = bytearray(4096)
    data[6] = 0x10
    data[0x34] = 0x60
    data[0x60:0x62] = bytes((0x01, 0x70 if aspm is not None else 0))
    if aspm is not None:
        data[0x70] = 0x10
        data[0x80] = 0x40 | aspm
    data[0x100:0x104] = (0x1400_0000 | 0x1_0000 | 0x0001).to_bytes(4, "little")
    if acs is not None:
        data[0x140:0x144] = (0x1_0000 | 0x000D).to_bytes(4, "little")
        data[0x146:0x148] = acs.to_bytes(2, "little")
    return bytes(data)


@pytest.mark.parametrize("acs", [0, 0x1D, None])
@pytest.mark.parametrize("aspm", [0, 1, 2, 3, None])
def test_registers_in_configuration_space(acs: int | None, aspm: int | None) -> None:
    data = config_space(acs=acs, aspm=aspm)
    assert acs_control(data) == acs
    assert aspm_control(data) == aspm


def test_the_64_bytes_of_an_unprivileged_reader_hold_neither() -> None:
    data = config_space(acs=0x1D, aspm=3)[:64]
    assert acs_control(data) is None
    assert aspm_control(data) is None


def test_a_device_that_fell_off_the_bus_reads_all_ones() -> None:
    assert acs_control(b"\xff" * 4096) is None
    assert aspm_control(b"\xff" * 256) is None


@given(st.binary(max_size=600))
def test_no_configuration_space_breaks_the_parsers(data: bytes) -> None:
    acs_control(data + b"\x00" * 256)
    assert aspm_control(data) in (None, 0, 1, 2, 3)
