"""A sysfs tree as data: recorded from a machine, and written out again for a replay.

Form: ``{device: {attribute: text}}`` for the devices on PCI buses; an attribute whose text is ``<error: NAME>`` was
unreadable (``<OSError: ...>`` in older recordings). ``above`` names the device's bridges, nearest last.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from soakd.nvml.pci import PciTree

ATTRIBUTES = (
    "vendor", "device", "class", "subsystem_vendor", "subsystem_device", "revision", "power_state", "d3cold_allowed",
    "power/runtime_status", "power/control", "power/runtime_active_time", "power/runtime_suspended_time",
    "power/autosuspend_delay_ms", "driver_override", "enable", "numa_node", "current_link_speed", "current_link_width",
    "max_link_speed", "max_link_width", "aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal",
    "aer_rootport_total_err_cor", "aer_rootport_total_err_nonfatal", "aer_rootport_total_err_fatal",
    "link/l0s_aspm", "link/l1_aspm",
)  # fmt: skip
"""What is recorded. Serial numbers and names are not among them."""

_MAX_BYTES = 8192
_ERROR = "<error: "


def record_sysfs(sys: Path) -> dict[str, dict[str, str]]:
    """The NVIDIA devices and the bridges above them. Blocking."""
    tree = PciTree(sys)
    tree.scan()
    recorded: dict[str, dict[str, str]] = {}
    for bdf in tree.gpus:
        path = tree.path(bdf)
        for device in path:
            recorded[device.bdf] = _attributes(device.path)
        recorded[bdf]["above"] = " ".join(d.bdf for d in reversed(path[1:]))
    return recorded


def _attributes(device: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in ATTRIBUTES:
        try:
            with (device / name).open("rb") as file:
                found[name] = file.read(_MAX_BYTES).decode(errors="replace")
        except FileNotFoundError:
            continue
        except OSError as error:
            found[name] = f"{_ERROR}{errno.errorcode.get(error.errno or 0, 'EIO')}>"
    try:
        found["driver"] = (device / "driver").readlink().name
    except OSError:
        pass
    return found


def write_sysfs(recorded: Mapping[str, Mapping[str, str]], root: Path) -> Path:
    """Write the tree below ``root`` (which becomes ``Roots.sys``) as the kernel lays it out. Returns ``root``.

    An attribute that was unreadable becomes a directory, so that reading it fails as it did.
    """
    devices = root / "bus/pci/devices"
    devices.mkdir(parents=True, exist_ok=True)
    paths: dict[str, Path] = {}
    for bdf, attributes in recorded.items():
        for name, place in _places(root, bdf, attributes.get("above", "").split()):
            paths.setdefault(name, place)
    for bdf, attributes in recorded.items():
        place = paths[bdf]
        place.mkdir(parents=True, exist_ok=True)
        (devices / bdf).symlink_to(place)
        for name, text in attributes.items():
            _write(root, place, name, text)
    return root


def _places(root: Path, bdf: str, above: Sequence[str]) -> list[tuple[str, Path]]:
    place = root / "devices" / f"pci{bdf[:4]}:{(above[0] if above else bdf)[5:7]}"
    places = []
    for name in (*above, bdf):
        place = place / name
        places.append((name, place))
    return places if above else places[-1:]


def _write(root: Path, place: Path, name: str, text: str) -> None:
    target = place / name
    target.parent.mkdir(parents=True, exist_ok=True)
    if name == "above":
        return
    if name == "driver":
        driver = root / "bus/pci/drivers" / text
        driver.mkdir(parents=True, exist_ok=True)
        target.symlink_to(os.path.relpath(driver, target.parent))
    elif text.startswith((_ERROR, "<OSError")):
        target.mkdir()
    elif not text.startswith("<write-only"):
        target.write_text(text)
