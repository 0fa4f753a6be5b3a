"""NVIDIA devices in sysfs and the bridges above them. Blocking reads of small files; run them off the loop.

Source: Documentation/ABI/testing/sysfs-bus-pci and drivers/pci/pci-sysfs.c of the Linux kernel.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path

from soakd.model import State

NVIDIA = "0x10de"
_DISPLAY_CLASS = "0x03"
_BDF = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_MAX_ATTRIBUTE = 8192
_MAX_DEPTH = 16


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute file: its text, or why there is none."""

    text: str | None
    state: State
    why: str = ""


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A device on the path of a GPU. ``role`` is ``gpu``, ``bridge`` (switch port) or ``root_port``."""

    bdf: str
    role: str
    gpu_bdf: str
    path: Path


def read_attribute(path: Path) -> Attribute:
    """Read one file. A missing one is ABSENT, never 0; an unreadable one costs itself and nothing else."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_ATTRIBUTE)
    except FileNotFoundError:
        return Attribute(None, State.ABSENT, f"{path.name} is not there")
    except PermissionError:
        return Attribute(None, State.NO_PERMISSION, f"{path.name} may be read by root only")
    except OSError as error:
        if error.errno in (errno.ENODEV, errno.ENXIO):
            return Attribute(None, State.LOST, f"{path.name}: {error.strerror}")
        return Attribute(None, State.ABSENT, f"{path.name}: {error.strerror}")
    return Attribute(raw.decode(errors="replace").strip(), State.OK)


def read_number(path: Path) -> tuple[float | None, State, str]:
    """A number written in decimal or with 0x; text that is no number is ABSENT with what was found."""
    found = read_attribute(path)
    if found.text is None:
        return None, found.state, found.why
    try:
        return float(int(found.text, 0)), State.OK, ""
    except ValueError:
        return None, State.ABSENT, f"{path.name} holds {found.text[:40]!r}, not a number"


class PciTree:
    """Finds the GPUs in ``<sys>/bus/pci/devices`` and remembers what it looked at, so that a scan stays cheap.

    A GPU that was there and is gone stays known (``lost``): a device that fell off the bus must not vanish.
    """

    def __init__(self, sys: Path) -> None:
        self._devices = sys / "bus/pci/devices"
        self._kinds: dict[str, bool] = {}
        self._paths: dict[str, tuple[PciDevice, ...]] = {}

    def scan(self) -> None:
        """Look at the devices that appeared since the last scan, and forget those that went, unless they are GPUs."""
        try:
            names = {name for name in os.listdir(self._devices) if _BDF.fullmatch(name)}
        except OSError:
            names = set()
        for name in [n for n in self._kinds if n not in names]:
            del self._kinds[name]
        for name in sorted(names - self._kinds.keys()):
            gpu = self._is_gpu(self._devices / name)
            self._kinds[name] = gpu
            if gpu:
                self._paths[name] = self._path_of(name)

    @property
    def gpus(self) -> tuple[str, ...]:
        """Addresses of every GPU ever seen, in order."""
        return tuple(sorted(self._paths))

    def lost(self, bdf: str) -> bool:
        return bdf not in self._kinds

    def path(self, bdf: str) -> tuple[PciDevice, ...]:
        """The GPU, then the bridges above it up to the root port."""
        return self._paths.get(bdf, ())

    def _is_gpu(self, device: Path) -> bool:
        if read_attribute(device / "vendor").text != NVIDIA:
            return False
        kind = read_attribute(device / "class").text
        return kind is not None and kind.startswith(_DISPLAY_CLASS)

    def _path_of(self, bdf: str) -> tuple[PciDevice, ...]:
        device = self._devices / bdf
        try:
            parts = device.resolve().parts
        except (OSError, RuntimeError):
            parts = ()
        above = [part for part in parts if _BDF.fullmatch(part) and part != bdf][-_MAX_DEPTH:]
        found = [PciDevice(bdf, "gpu", bdf, device)]
        for name in reversed(above):
            role = "root_port" if name == above[0] else "bridge"
            found.append(PciDevice(name, role, bdf, self._devices / name))
        return tuple(found)


def awake(device: Path) -> tuple[bool, str]:
    """Whether link and configuration attributes may be read without waking the device, and why not.

    ``power_state`` and ``runtime_status`` are kept by the kernel and reading them touches no hardware; reading the
    link resumes a suspended device on newer kernels. A device without runtime power management counts as awake.
    """
    status = read_attribute(device / "power/runtime_status").text
    state = read_attribute(device / "power_state").text
    if state in ("D3hot", "D3cold"):
        return False, f"the device sleeps ({state}); reading its link would wake it"
    if status is not None and status not in ("active", "unsupported"):
        return False, f"the device is {status}; reading its link would wake it"
    return True, ""
