"""Reads the facts of GPUs, PCIe and driver: sysfs, /proc/driver/nvidia, and NVML's answers. Changes nothing.

Link attributes are read only of a device that is awake, because reading them would wake it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from soakd.model import State
from soakd.nvml.link import parse_link_speed
from soakd.nvml.pci import PciDevice, PciTree, awake, read_attribute
from soakd.ports import GpuReply, Roots
from soakd.preflight.facts import DriverFacts, Fact, GpuFacts, Value
from soakd.procfs import read_text

_ACS_CAPABILITY = 0x000D
_ACS_P2P_BITS = 0x1C  # request redirect, completion redirect, upstream forwarding
_FIRST_EXTENDED = 0x100
_CONFIG_BYTES = 4096


def read_gpus(roots: Roots, fast: Sequence[GpuReply], slow: Sequence[GpuReply]) -> tuple[tuple[GpuFacts, ...], str]:
    """Every NVIDIA GPU on the bus, and why there is none when there is none."""
    tree = PciTree(roots.sys)
    tree.scan()
    fast_by, slow_by = ({reply.gpu.bdf: reply for reply in replies} for replies in (fast, slow))
    gpus = tuple(_gpu(bdf, tree.path(bdf), fast_by.get(bdf), slow_by.get(bdf)) for bdf in tree.gpus)
    return gpus, "" if gpus else f"no NVIDIA GPU in {roots.sys / 'bus/pci/devices'}"


def _gpu(bdf: str, path: Sequence[PciDevice], fast: GpuReply | None, slow: GpuReply | None) -> GpuFacts:
    device = path[0].path
    is_awake, why = awake(device)

    def link(name: str) -> Fact:
        if not is_awake:
            return Fact(None, f"sysfs {name}", why)
        found = _attribute(device, name)
        if not isinstance(found.value, str):
            return found
        if name.endswith("speed"):
            return _or_why(parse_link_speed(found.value), found.source, f"it reads {found.value!r}")
        return _or_why(int(found.value) if found.value.isdigit() else None, found.source, f"it reads {found.value!r}")

    return GpuFacts(
        bdf=bdf,
        uuid=fast.gpu.uuid if fast else "",
        link_speed=link("current_link_speed"),
        link_width=link("current_link_width"),
        link_speed_max=link("max_link_speed"),
        link_width_max=link("max_link_width"),
        utilisation=_answer(fast, "utilization", "gpu"),
        memory=_answer(fast, "memory", "total"),
        compute_mode=_answer(slow, "compute_mode"),
        ecc_current=_switch(_answer(slow, "ecc_mode", "current")),
        ecc_pending=_switch(_answer(slow, "ecc_mode", "pending")),
        uncorrected_errors=_answer(fast, "DEV_ECC_DBE_AGG_TOTAL"),
        driver=_driver(device),
        driver_override=_attribute(device, "driver_override"),
        runtime_status=_attribute(device, "power/runtime_status"),
        power_control=_attribute(device, "power/control"),
        subsystem_vendor=_attribute(device, "subsystem_vendor"),
        acs=_acs(path[1:]),
    )


def read_driver(roots: Roots) -> DriverFacts:
    """Driver parameters as loaded, which may differ from those in /etc/modprobe.d."""
    folder = roots.proc / "driver/nvidia"
    parameters = _parameters(folder / "params")
    version = re.search(r"Kernel Module.*?\s(\d+\.[\d.]+)\s", _text(folder / "version"))
    msi = _parameter(parameters, "EnableMSI")
    return DriverFacts(
        version=_or_why(version[1] if version else None, str(folder / "version"), "the NVIDIA driver is not loaded"),
        msi=_switch(msi),
        system_memory_init=_parameter(parameters, "InitializeSystemMemoryAllocations"),
        uvm=_uvm(roots),
    )


def parse_acs(config: bytes) -> bool | None:
    """Whether ACS redirects peer-to-peer traffic, from a device's 4 KiB configuration space; None without ACS.

    Source: PCI Express Base Specification, ACS extended capability 000Dh, control register at offset 6.
    """
    offset = _FIRST_EXTENDED
    for _ in range(96):
        if offset < _FIRST_EXTENDED or offset + 8 > len(config):
            return None
        header, _, control = struct.unpack_from("<IHH", config, offset)
        if header in (0, 0xFFFFFFFF):
            return None
        if header & 0xFFFF == _ACS_CAPABILITY:
            return bool(control & _ACS_P2P_BITS)
        offset = header >> 20
    return None


def _acs(above: Sequence[PciDevice]) -> Fact:
    source = "configuration space of the bridges above"
    if not above:
        return Fact(None, source, "no bridge is visible above the card (normal in a virtual machine)")
    found: list[bool] = []
    for bridge in above:
        try:
            with (bridge.path / "config").open("rb") as file:
                config = file.read(_CONFIG_BYTES)
        except OSError as error:
            return Fact(None, source, f"{bridge.bdf}: {error.strerror}")
        if len(config) <= 256:
            return Fact(None, source, "only root may read it beyond 64 bytes; run the pre-flight as root")
        redirects = parse_acs(config)
        found += [redirects] if redirects is not None else []
    return Fact(any(found), source)


def _answer(reply: GpuReply | None, key: str, part: str = "") -> Fact:
    source = f"NVML {key}"
    if reply is None:
        return Fact(None, source, "NVML does not know this card: is the driver loaded, and nvidia-ml-py installed?")
    if reply.state is not State.OK:
        return Fact(None, source, reply.why or f"the card is {reply.state.value}")
    answer = reply.answers.get(key)
    if answer is None or answer.code != 0:
        return Fact(None, source, f"NVML answers code {answer.code}" if answer else "NVML does not tell it")
    value = answer.value.get(part) if isinstance(answer.value, Mapping) else answer.value
    return _or_why(value if isinstance(value, int | float | str) else None, source, "NVML does not tell it")


def _attribute(device: Path, name: str) -> Fact:
    found = read_attribute(device / name)
    return Fact(found.text, f"sysfs {name}", found.why)


def _driver(device: Path) -> Fact:
    link = device / "driver"
    try:
        return Fact(link.resolve(strict=True).name, "sysfs driver")
    except OSError:
        return Fact("none", "sysfs driver")


def _uvm(roots: Roots) -> Fact:
    source = str(roots.proc / "modules")
    if (roots.sys / "module/nvidia_uvm").is_dir():
        return Fact(True, str(roots.sys / "module/nvidia_uvm"))
    try:
        loaded = read_text(roots.proc / "modules")
    except OSError as error:
        return Fact(None, source, error.strerror or "not readable")
    return Fact(any(line.startswith("nvidia_uvm ") for line in loaded.splitlines()), source)


def _parameters(path: Path) -> tuple[str, dict[str, str]]:
    pairs = (line.partition(":") for line in _text(path).splitlines())
    return str(path), {name.strip(): value.strip() for name, colon, value in pairs if colon}


def _parameter(parameters: tuple[str, dict[str, str]], name: str) -> Fact:
    source, values = parameters
    if not values:
        return Fact(None, source, "the NVIDIA driver is not loaded")
    value = values.get(name, "")
    return _or_why(int(value) if value.isdigit() else None, f"{source} {name}", "this driver has no such parameter")


def _switch(fact: Fact) -> Fact:
    return Fact(bool(fact.value), fact.source) if isinstance(fact.value, int) else fact


def _or_why(value: Value | None, source: str, why: str) -> Fact:
    return Fact(value, source, "" if value is not None else why)


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except OSError:
        return ""
