"""Power state and configuration of every GPU and the bridges above it, from ``/sys/bus/pci``.

Read in the order that wakes no device: ``power_state`` and ``runtime_status`` come from the kernel's memory; the
configuration space is touched only where the device is awake. One unreadable attribute costs itself alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from soakd.blocking import BlockingReader
from soakd.fields import ConfigModel
from soakd.model import Event, Kind, Labels, Metric, Sample, Severity, State, labels
from soakd.nvml.pci import PciDevice, PciTree, awake, read_attribute, read_number
from soakd.nvml.pci_config import acs_control, aspm_control
from soakd.nvml.readings import no_gpu, readings
from soakd.ports import Collector, CollectorContext, Item

KIND = "pcie_power"
INTERVAL_S = 5.0
DEADLINE_S = 8.0

_DEVICE = ("bdf", "device", "gpu", "role")
_NO_YES = (("no", 0), ("yes", 1))
POWER_STATE = Metric(
    "pcie_power_state", "", Kind.STATE, "PCI power state.", "sysfs power_state", _DEVICE,
    (("D0", 0), ("D1", 1), ("D2", 2), ("D3hot", 3), ("D3cold", 4), ("unknown", 5), ("error", 6)),
)  # fmt: skip
RUNTIME_STATUS = Metric(
    "pcie_runtime_status", "", Kind.STATE, "Runtime power management status.", "sysfs power/runtime_status", _DEVICE,
    (("active", 0), ("suspended", 1), ("suspending", 2), ("resuming", 3), ("unsupported", 4), ("error", 5)),
)  # fmt: skip
CONTROL = Metric(
    "pcie_runtime_control", "", Kind.STATE, "Whether the device may be suspended at run time (auto) or not (on).",
    "sysfs power/control", _DEVICE, (("on", 0), ("auto", 1)),
)  # fmt: skip
D3COLD = Metric(
    "pcie_d3cold_allowed", "", Kind.STATE, "Whether D3cold is allowed; absent on some kernels.",
    "sysfs d3cold_allowed", _DEVICE, _NO_YES,
)  # fmt: skip
ACTIVE = Metric(
    "pcie_runtime_active_seconds_total", "seconds", Kind.COUNTER, "Time the device was active.",
    "sysfs power/runtime_active_time", _DEVICE,
)  # fmt: skip
SUSPENDED = Metric(
    "pcie_runtime_suspended_seconds_total", "seconds", Kind.COUNTER, "Time the device was suspended.",
    "sysfs power/runtime_suspended_time", _DEVICE,
)  # fmt: skip
SUBSYSTEM = Metric(
    "pcie_subsystem_id", "", Kind.GAUGE, "Subsystem vendor and device as numbers (0x1028 is Dell).",
    "sysfs subsystem_vendor, subsystem_device", (*_DEVICE, "part"),
)  # fmt: skip
DRIVER = Metric(
    "pcie_driver", "", Kind.STATE, "Driver that is bound to the device.", "sysfs driver", _DEVICE,
    (("none", 0), ("nvidia", 1), ("vfio-pci", 2), ("nouveau", 3), ("pcieport", 4), ("other", 5)),
)  # fmt: skip
OVERRIDE = Metric(
    "pcie_driver_override", "", Kind.STATE, "Driver that the device is kept for.", "sysfs driver_override", _DEVICE,
    (("none", 0), ("nvidia", 1), ("vfio-pci", 2), ("nouveau", 3), ("pcieport", 4), ("other", 5)),
)  # fmt: skip
ACS = Metric(
    "pcie_acs_enabled", "", Kind.STATE,
    "Whether a bridge redirects peer-to-peer traffic (ACS); it should not where peer-to-peer is used.",
    "sysfs config, ACS control register (root only)", _DEVICE, _NO_YES,
)  # fmt: skip
ASPM = Metric(
    "pcie_aspm", "", Kind.STATE, "Link power saving (ASPM) that is switched on.",
    "sysfs link/{l0s,l1}_aspm; config, link control register (root only)", _DEVICE,
    (("off", 0), ("l0s", 1), ("l1", 2), ("l0s_l1", 3)),
)  # fmt: skip
ASPM_POLICY = Metric(
    "pcie_aspm_policy", "", Kind.STATE, "ASPM policy of the kernel.", "sysfs module/pcie_aspm/parameters/policy", (),
    (("default", 0), ("performance", 1), ("powersave", 2), ("powersupersave", 3)),
)  # fmt: skip
METRICS = (
    POWER_STATE, RUNTIME_STATUS, CONTROL, D3COLD, ACTIVE, SUSPENDED, SUBSYSTEM, DRIVER, OVERRIDE, ACS, ASPM,
    ASPM_POLICY,
)  # fmt: skip

_WORDS = (
    (POWER_STATE, "power_state"),
    (RUNTIME_STATUS, "power/runtime_status"),
    (CONTROL, "power/control"),
)
_MILLISECONDS = ((ACTIVE, "power/runtime_active_time"), (SUSPENDED, "power/runtime_suspended_time"))
_CONFIG_BYTES = 4096
Found = tuple[Metric, float | None, State, str, tuple[tuple[str, str], ...]]


class Config(ConfigModel):
    """Nothing to set."""


@dataclass(frozen=True, slots=True)
class DeviceState:
    """What was read of one device: metric, value, state, why, further labels."""

    device: PciDevice
    lost: bool
    found: tuple[Found, ...]


class PciePower:
    """Reads off the loop; a GPU that leaves the bus, or comes back, is an event."""

    def __init__(self, context: CollectorContext) -> None:
        self._context = context
        self._sys = context.roots.sys
        self._tree = PciTree(self._sys)
        self._reader = BlockingReader("pcie_power")
        self._lost: set[str] = set()

    async def collect(self) -> Sequence[Item]:
        uuids = {c.reply.gpu.bdf: c.reply.gpu.uuid for c in await readings(self._context.gpus, "fast")}
        devices, policy = await self._reader.call(self._read)
        at_ns = self._context.clock.wall_ns()
        if not devices:
            return no_gpu(POWER_STATE, at_ns, self._context.gpus)
        items: list[Item] = [_sample(policy, (), at_ns)]
        for read in devices:
            tags = labels(bdf=read.device.gpu_bdf, gpu=uuids.get(read.device.gpu_bdf))
            base = (*tags, ("device", read.device.bdf), ("role", read.device.role))
            items += [_sample(found, base, at_ns) for found in read.found]
            if read.device.role == "gpu":
                items += self._presence(read, tags, at_ns)
        return items

    async def close(self) -> None:
        self._reader.close()

    def _read(self) -> tuple[tuple[DeviceState, ...], Found]:
        self._tree.scan()
        devices = tuple(
            read_device(device, device.role == "gpu" and self._tree.lost(bdf))
            for bdf in self._tree.gpus
            for device in self._tree.path(bdf)
        )
        return devices, read_policy(self._sys)

    def _presence(self, read: DeviceState, tags: Labels, at_ns: int) -> list[Item]:
        bdf = read.device.bdf
        if read.lost and bdf not in self._lost:
            self._lost.add(bdf)
            return [Event("pcie.device_lost", at_ns, f"the GPU at {bdf} left the PCI bus", Severity.CRITICAL, tags)]
        if not read.lost and bdf in self._lost:
            self._lost.discard(bdf)
            return [Event("pcie.device_returned", at_ns, f"a GPU is back at {bdf}", Severity.INFO, tags)]
        return []


def read_device(device: PciDevice, lost: bool) -> DeviceState:
    """All attributes of one device, power first. A lost device gives LOST for each."""
    if lost:
        gone = tuple((m, None, State.LOST, "the device has left the bus", ()) for m in _PLAIN_METRICS)
        return DeviceState(device, True, gone)
    path = device.path
    found: list[Found] = [(m, *_word(m, path / name), ()) for m, name in _WORDS]
    ready, why = awake(path)
    found.append((D3COLD, *read_number(path / "d3cold_allowed"), ()))
    for metric, name in _MILLISECONDS:
        value, state, reason = read_number(path / name)
        found.append((metric, None if value is None else value / 1000, state, reason, ()))
    for part in ("vendor", "device"):
        found.append((SUBSYSTEM, *read_number(path / f"subsystem_{part}"), (("part", part),)))
    found.append((DRIVER, *_driver(path), ()))
    found.append((OVERRIDE, *_override(path), ()))
    config, config_why = _config(path) if ready else (b"", why)
    found.append((ASPM, *_aspm(path, config, ready, config_why), ()))
    if device.role != "gpu":
        found.append((ACS, *_acs(config, config_why), ()))
    return DeviceState(device, False, tuple(found))


_PLAIN_METRICS = (POWER_STATE, RUNTIME_STATUS, CONTROL, D3COLD, ACTIVE, SUSPENDED, DRIVER, OVERRIDE, ASPM)


def read_policy(sys: Path) -> Found:
    """``[default] performance powersave``: the word in brackets."""
    attribute = read_attribute(sys / "module/pcie_aspm/parameters/policy")
    if attribute.text is None:
        return ASPM_POLICY, None, attribute.state, attribute.why, ()
    word = attribute.text.partition("[")[2].partition("]")[0]
    code = dict(ASPM_POLICY.codes).get(word)
    if code is None:
        return ASPM_POLICY, None, State.ABSENT, f"unknown policy {attribute.text[:60]!r}", ()
    return ASPM_POLICY, float(code), State.OK, "", ()


def _word(metric: Metric, path: Path) -> tuple[float | None, State, str]:
    """A word of the metric's codes; a word that is not among them is unknown, not the first of them."""
    attribute = read_attribute(path)
    if attribute.text is None:
        return None, attribute.state, attribute.why
    code = dict(metric.codes).get(attribute.text)
    if code is None:
        return None, State.ABSENT, f"{path.name} is {attribute.text[:40]!r}"
    return float(code), State.OK, ""


def _driver(path: Path) -> tuple[float | None, State, str]:
    try:
        name = (path / "driver").readlink().name
    except FileNotFoundError:
        name = "none"
    except OSError as error:
        return None, State.ABSENT, f"driver: {error.strerror}"
    codes = dict(DRIVER.codes)
    return float(codes.get(name, codes["other"])), State.OK, ""


def _override(path: Path) -> tuple[float | None, State, str]:
    attribute = read_attribute(path / "driver_override")
    if attribute.text is None:
        return None, attribute.state, attribute.why
    codes = dict(OVERRIDE.codes)
    name = "none" if attribute.text in ("", "(null)") else attribute.text
    return float(codes.get(name, codes["other"])), State.OK, ""


def _config(path: Path) -> tuple[bytes, str]:
    try:
        with (path / "config").open("rb") as file:
            data = file.read(_CONFIG_BYTES)
    except OSError as error:
        return b"", f"config: {error.strerror}"
    return data, "" if len(data) > 64 else "only root may read it; grant CAP_SYS_ADMIN or run this once as root"


def _aspm(path: Path, config: bytes, ready: bool, why: str) -> tuple[float | None, State, str]:
    if not ready:
        return None, State.ABSENT, why
    l0s, l1 = (read_attribute(path / "link" / name).text for name in ("l0s_aspm", "l1_aspm"))
    if l0s is not None or l1 is not None:
        return float((l0s == "1") + 2 * (l1 == "1")), State.OK, ""
    control = aspm_control(config)
    if control is not None:
        return float(control), State.OK, ""
    return None, State.NO_PERMISSION if 0 < len(config) <= 64 else State.ABSENT, why or "no PCIe capability is visible"


def _acs(config: bytes, why: str) -> tuple[float | None, State, str]:
    control = acs_control(config)
    if control is not None:
        return float(control != 0), State.OK, ""
    if 0 < len(config) <= 64:
        return None, State.NO_PERMISSION, why
    return None, State.ABSENT, why or "the bridge has no ACS capability"


def _sample(found: Found, base: Labels, at_ns: int) -> Sample:
    metric, value, state, why, extra = found
    tags = tuple(sorted((*base, *extra)))
    return Sample.unknown(metric, state, at_ns, tags, why) if value is None else Sample.ok(metric, value, at_ns, tags)


def build(config: Config, context: CollectorContext) -> Collector:
    return PciePower(context)
