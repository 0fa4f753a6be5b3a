"""A SIMULATED ``/sys`` with the PCI path of every simulated card: root port, switch, card; AER, link and power files.

The content is a pure function of scenario, activity and time; ``PciTree.update`` writes what has changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from soakd.rehearsal.activity import Activity
from soakd.rehearsal.hardware import SimulatedDevice
from soakd.rehearsal.scenarios import Scenario

_ROOT_PORT = "0000:16:00.0"
_SWITCH = "0000:17:00.0"
_CORRECTABLE = ("RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "NonFatalErr", "CorrIntErr", "HeaderOF")
_UNCORRECTABLE = (
    *("Undefined", "DLP", "SDES", "TLP", "FCP", "CmpltTO", "CmpltAbrt", "UnxCmplt", "RxOF", "MalfTLP", "ECRC"),
    *("UnsupReq", "ACSViol", "UncorrIntErr", "BlockedTLP", "AtomicOpBlocked", "TLPBlockedErr", "PoisonTLPBlocked"),
)


@dataclass(frozen=True, slots=True)
class _Port:
    """One PCI function: ``path`` below /sys/devices, and the ids that say what it is."""

    bdf: str
    path: str
    kind: str
    ids: tuple[str, str, str]
    card: int | None = None


@dataclass(frozen=True, slots=True)
class PciModel:
    """``files(t)`` is the whole tree at a simulated second: path below /sys to content."""

    scenario: Scenario
    duration_s: float
    cards: int = 2
    seed: int = 1

    def bdf(self, card: int) -> str:
        return SimulatedDevice(self.scenario, self.duration_s, card, self.seed).bdf

    def ports(self) -> Iterator[_Port]:
        root = f"pci0000:16/{_ROOT_PORT}"
        switch = f"{root}/{_SWITCH}"
        yield _Port(_ROOT_PORT, root, "root", ("0x8086", "0x2030", "0x060400"))
        yield _Port(_SWITCH, switch, "bridge", ("0x10b5", "0x9797", "0x060400"))
        for card in range(self.cards):
            down = f"0000:18:{4 * card:02x}.0"
            yield _Port(down, f"{switch}/{down}", "bridge", ("0x10b5", "0x9797", "0x060400"), card)
            bdf = self.bdf(card)
            yield _Port(bdf, f"{switch}/{down}/{bdf}", "gpu", ("0x10de", "0x1db5", "0x030200"), card)

    def files(self, at_s: float, activity: Activity) -> dict[str, str]:
        fraction = at_s / self.duration_s
        serving = activity.at(at_s).pid is not None
        tree = {"module/pcie_aspm/parameters/policy": "[default] performance powersave powersupersave\n"}
        for port in self.ports():
            lost = port.card is not None and self.scenario.lost(port.card, fraction)
            for name, content in self._port_files(port, lost, serving, fraction).items():
                tree[f"devices/{port.path}/{name}"] = content
        return tree

    def _port_files(self, port: _Port, lost: bool, serving: bool, fraction: float) -> dict[str, str]:
        vendor, device, klass = port.ids
        gone = lost and port.kind == "gpu"
        fast = serving or port.kind == "root"
        speed = "Unknown" if gone else "2.5 GT/s PCIe" if lost or not fast else "8.0 GT/s PCIe"
        # a card off the bus answers all ones: the width field of its link status then reads 63
        width = "63" if gone else "0" if lost else "16"
        files = {
            "vendor": vendor,
            "device": device,
            "class": klass,
            "numa_node": "0",
            "enable": "1",
            "max_link_speed": "8.0 GT/s PCIe",
            "max_link_width": "16",
            "current_link_speed": speed,
            "current_link_width": width,
            "subsystem_vendor": vendor,
            "subsystem_device": "0x1212" if port.kind == "gpu" else "0x0000",
            "driver_override": "(null)",
            "link/l0s_aspm": "0",
            "link/l1_aspm": "0",
            "power_state": "D0",  # the kernel's last knowledge: nobody asks a card that fell off the bus
            "d3cold_allowed": "1",
            "power/control": "on",
            "power/runtime_status": "active",
            "power/runtime_active_time": "1200000",
            "power/runtime_suspended_time": "0",
            "uevent": f"PCI_CLASS={klass[2:]}\nPCI_ID={vendor[2:]}:{device[2:]}\nPCI_SLOT_NAME={port.bdf}",
        }
        files.update(self._errors(port, lost, fraction))
        return {name: f"{content}\n" for name, content in files.items()}

    def _errors(self, port: _Port, lost: bool, fraction: float) -> Mapping[str, str]:
        """AER counters. They start above zero; a card that fell off shows at its upstream port and the root port."""
        any_lost = any(self.scenario.lost(card, fraction) for card in range(self.cards))
        start = sum(port.bdf.encode()) + self.seed
        correctable = {"RxErr": start % 5, "BadTLP": start % 3, "BadDLLP": start % 2}
        fatal = {"SDES": 1} if lost and port.kind == "bridge" else {}
        files = {
            "aer_dev_correctable": _aer(_CORRECTABLE, correctable, "TOTAL_ERR_COR"),
            "aer_dev_nonfatal": _aer(_UNCORRECTABLE, {}, "TOTAL_ERR_NONFATAL"),
            "aer_dev_fatal": _aer(_UNCORRECTABLE, fatal, "TOTAL_ERR_FATAL"),
        }
        if port.kind == "root":
            files["aer_rootport_total_err_cor"] = str(start % 7)
            files["aer_rootport_total_err_nonfatal"] = "0"
            files["aer_rootport_total_err_fatal"] = "1" if any_lost else "0"
        return files


def _aer(names: tuple[str, ...], counts: Mapping[str, int], total: str) -> str:
    lines = [f"{name} {counts.get(name, 0)}" for name in names]
    return "\n".join([*lines, f"{total} {sum(counts.values())}"])


class PciTree:
    """The tree on disk, below ``root`` (what is /sys otherwise)."""

    def __init__(self, root: Path, model: PciModel) -> None:
        self._root = root
        self._model = model
        self._written: dict[str, str] = {}

    def create(self, activity: Activity) -> None:
        """Write all files, and the links that /sys/bus/pci/devices consists of."""
        self.update(0.0, activity)
        links = self._root / "bus/pci/devices"
        links.mkdir(parents=True, exist_ok=True)
        for port in self._model.ports():
            _link(links / port.bdf, Path("../../../devices") / port.path)
            driver = self._root / "bus/pci/drivers" / ("nvidia" if port.kind == "gpu" else "pcieport")
            driver.mkdir(parents=True, exist_ok=True)
            device = self._root / "devices" / port.path
            _link(device / "driver", Path(os.path.relpath(driver, device)))

    def update(self, at_s: float, activity: Activity) -> None:
        """Replace the files whose content has changed; a reader sees the old or the new one, never half of it."""
        for name, content in self._model.files(at_s, activity).items():
            if self._written.get(name) == content:
                continue
            path = self._root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f".{path.name}.new")
            partial.write_text(content)
            os.replace(partial, path)
            self._written[name] = content


def _link(path: Path, to: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(to)
