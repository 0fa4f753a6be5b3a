"""PCIe AER counters by error type: of each GPU and every bridge above it up to the root port.

An error may be counted at either end of a link, so the whole path is read. A missing file means that no AER capability
is visible (normal inside a VM): unknown, not zero. Under firmware-first error handling (read from the ACPI table HEST,
which only root may) the files read zero although errors happen: unknown as well. Where the table can't be read, the
comparison with NVML's own counters shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from soakd.blocking import BlockingReader
from soakd.counters import Increase
from soakd.fields import ConfigModel
from soakd.model import Kind, Labels, Metric, Sample, State, labels
from soakd.nvml.aer import SEVERITIES, AerCounts, parse_aer
from soakd.nvml.hest import firmware_first
from soakd.nvml.pci import Attribute, PciDevice, PciTree, read_attribute, read_number
from soakd.nvml.readings import CardReading, no_gpu, readings
from soakd.ports import Collector, CollectorContext, Item

KIND = "pcie_aer"
INTERVAL_S = 5.0
DEADLINE_S = 8.0

_DEVICE = ("bdf", "device", "gpu", "role")
ERRORS = Metric(
    "pcie_aer_errors_total", "errors", Kind.COUNTER,
    "AER errors of one type (canonical name, both kernel vocabularies). Starts again at zero on remove and rescan.",
    "sysfs aer_dev_correctable, aer_dev_nonfatal, aer_dev_fatal", (*_DEVICE, "error", "severity"),
)  # fmt: skip
TOTAL = Metric(
    "pcie_aer_severity_errors_total", "errors", Kind.COUNTER,
    "The kernel's own total of one severity, which may differ from the sum of the types.",
    "sysfs aer_dev_*, line TOTAL_ERR_*", (*_DEVICE, "severity"),
)  # fmt: skip
SUM = Metric(
    "pcie_aer_severity_types_total", "errors", Kind.COUNTER, "Sum over the error types of one severity.",
    "sysfs aer_dev_*, all lines but the total", (*_DEVICE, "severity"),
)  # fmt: skip
ROOT_PORT = Metric(
    "pcie_aer_rootport_messages_total", "messages", Kind.COUNTER,
    "Error messages of one severity that reached the root port, from any device below it.",
    "sysfs aer_rootport_total_err_{cor,nonfatal,fatal}", (*_DEVICE, "severity"),
)  # fmt: skip
AGREEMENT = Metric(
    "pcie_aer_agreement", "", Kind.STATE,
    "Whether AER and the card's own counters grew together since soakd started. nvml_only: errors that the kernel did "
    "not see (firmware-first, or the link partner counts them); aer_only: the other way round.",
    "pcie_aer_errors_total against fields NVML_FI_DEV_PCIE_COUNT_*", ("bdf", "gpu"),
    (("agree", 0), ("nvml_only", 1), ("aer_only", 2)),
)  # fmt: skip
METRICS = (ERRORS, TOTAL, SUM, ROOT_PORT, AGREEMENT)

_ROOT_FILES = {"correctable": "cor", "nonfatal": "nonfatal", "fatal": "fatal"}
_FIRMWARE = "the firmware handles PCIe errors first (ACPI HEST): a zero here says nothing"
_HEST_BYTES = 65536
_SAME_ERROR = {
    "RxErr": "DEV_PCIE_COUNT_RECEIVER_ERROR",
    "BadTLP": "DEV_PCIE_COUNT_BAD_TLP",
    "BadDLLP": "DEV_PCIE_COUNT_BAD_DLLP",
    "UnsupReq": "DEV_PCIE_COUNT_UNSUPPORTED_REQ",
}
"""What both sources count, by their names."""


class Config(ConfigModel):
    """Nothing to set."""


@dataclass(frozen=True, slots=True)
class DeviceAer:
    """The AER files of one device, read but not judged."""

    device: PciDevice
    files: tuple[tuple[str, Attribute], ...]
    root_port: tuple[tuple[str, float | None, State, str], ...]


@dataclass(slots=True)
class Comparison:
    """Growth of both accounts of one card since the first reading, by NVML field."""

    nvml: dict[str, Increase] = field(default_factory=dict)
    aer: dict[str, Increase] = field(default_factory=dict)

    def step(self, nvml: Mapping[str, float], aer: Mapping[str, float]) -> str:
        """``agree``, ``nvml_only`` or ``aer_only``. Counts may lag or be split over both ends, so that only growth of
        one account with none at all in the other is a disagreement."""
        for values, counters in ((nvml, self.nvml), (aer, self.aer)):
            for name, value in values.items():
                counters.setdefault(name, Increase()).add(value)
        grown_nvml = sum(c.total for c in self.nvml.values())
        grown_aer = sum(c.total for c in self.aer.values())
        if grown_nvml and not grown_aer:
            return "nvml_only"
        return "aer_only" if grown_aer and not grown_nvml else "agree"


class PcieAer:
    """Reads the files of every device on the path off the loop."""

    def __init__(self, context: CollectorContext) -> None:
        self._context = context
        self._tree = PciTree(context.roots.sys)
        self._reader = BlockingReader("pcie_aer")
        self._comparisons: dict[str, Comparison] = {}
        self._known: dict[tuple[str, str], frozenset[str]] = {}
        self._hest = context.roots.sys / "firmware/acpi/tables/HEST"
        self._firmware_first: bool | None = None

    async def collect(self) -> Sequence[Item]:
        slow = {c.reply.gpu.bdf: c for c in await readings(self._context.gpus, "slow") if not c.mig}
        paths = await self._reader.call(self._read)
        at_ns = self._context.clock.wall_ns()
        items: list[Item] = []
        for bdf in sorted({*slow, *paths}):
            card = slow.get(bdf)
            tags = labels(bdf=bdf, gpu=card.reply.gpu.uuid if card else None)
            counted: list[AerCounts] = []
            for device in paths.get(bdf, ()):
                counted += self._device(device, tags, at_ns, items)
            items.append(self._agreement(bdf, card, counted, tags, at_ns))
        return items or no_gpu(ERRORS, at_ns, self._context.gpus)

    async def close(self) -> None:
        self._reader.close()

    def _read(self) -> Mapping[str, tuple[DeviceAer, ...]]:
        self._tree.scan()
        if self._firmware_first is None:
            self._firmware_first = _read_firmware_first(self._hest)
        return {bdf: tuple(read_aer(d, self._tree) for d in self._tree.path(bdf)) for bdf in self._tree.gpus}

    def _device(self, read: DeviceAer, tags: Labels, at_ns: int, items: list[Item]) -> list[AerCounts]:
        base = {**dict(tags), "device": read.device.bdf, "role": read.device.role}
        counted = []
        for severity, attribute in read.files:
            own = {**base, "severity": severity}
            if attribute.text is None:
                # the types that were seen before stay in the list: a lost device must not vanish
                names = self._known.get((read.device.bdf, severity), frozenset())
                items += [Sample.unknown(ERRORS, attribute.state, at_ns, labels(**own, error=n), attribute.why)
                          for n in sorted(names)]  # fmt: skip
                items += [Sample.unknown(m, attribute.state, at_ns, labels(**own), attribute.why) for m in (TOTAL, SUM)]
                continue
            counts = parse_aer(attribute.text)
            self._known[read.device.bdf, severity] = frozenset(counts.errors)
            if self._firmware_first and not counts.sum and not counts.total:
                items += [Sample.unknown(ERRORS, State.ABSENT, at_ns, labels(**own, error=n), _FIRMWARE)
                          for n in counts.errors]  # fmt: skip
                items += [Sample.unknown(m, State.ABSENT, at_ns, labels(**own), _FIRMWARE) for m in (TOTAL, SUM)]
                continue
            counted.append(counts)
            items += [Sample.ok(ERRORS, n, at_ns, labels(**own, error=name)) for name, n in counts.errors.items()]
            items.append(Sample.ok(SUM, counts.sum, at_ns, labels(**own)))
            if counts.total is not None:
                items.append(Sample.ok(TOTAL, counts.total, at_ns, labels(**own)))
            else:
                why = "the file has no TOTAL line"
                items.append(Sample.unknown(TOTAL, State.ABSENT, at_ns, labels(**own), why))
        for severity, value, state, why in read.root_port:
            own_labels = labels(**base, severity=severity)
            items.append(
                Sample.ok(ROOT_PORT, value, at_ns, own_labels)
                if value is not None
                else Sample.unknown(ROOT_PORT, state, at_ns, own_labels, why)
            )
        return counted

    def _agreement(
        self, bdf: str, card: CardReading | None, counted: Sequence[AerCounts], tags: Labels, at_ns: int
    ) -> Sample:
        nvml = {} if card is None else {f: v for f in _SAME_ERROR.values() if (v := card.number(f)) is not None}
        if not nvml or not counted:
            if card is not None and not card.known:
                return Sample.unknown(AGREEMENT, card.reply.state, at_ns, tags, card.reply.why)
            why = "no AER capability is visible" if nvml else "NVML counts no PCIe errors of this card"
            return Sample.unknown(AGREEMENT, State.ABSENT, at_ns, tags, why)
        aer = dict.fromkeys(_SAME_ERROR.values(), 0.0)
        for counts in counted:
            for name, field_name in _SAME_ERROR.items():
                aer[field_name] += counts.errors.get(name, 0)
        verdict = self._comparisons.setdefault(bdf, Comparison()).step(nvml, aer)
        return Sample.ok(AGREEMENT, dict(AGREEMENT.codes)[verdict], at_ns, tags)


def _read_firmware_first(path: Path) -> bool:
    """False where there is no such table, or where it may not be read."""
    try:
        with path.open("rb") as file:
            return firmware_first(file.read(_HEST_BYTES)) is True
    except OSError:
        return False


def read_aer(device: PciDevice, tree: PciTree) -> DeviceAer:
    """The three files of a device, and the message totals of a root port."""
    if device.role == "gpu" and tree.lost(device.bdf):
        gone = Attribute(None, State.LOST, "the device has left the bus")
        return DeviceAer(device, tuple((severity, gone) for severity in SEVERITIES), ())
    files = tuple((severity, read_attribute(device.path / f"aer_dev_{severity}")) for severity in SEVERITIES)
    root: tuple[tuple[str, float | None, State, str], ...] = ()
    if device.role == "root_port":
        root = tuple(
            (severity, *read_number(device.path / f"aer_rootport_total_err_{name}"))
            for severity, name in _ROOT_FILES.items()
        )
    return DeviceAer(device, files, root)


def build(config: Config, context: CollectorContext) -> Collector:
    return PcieAer(context)
