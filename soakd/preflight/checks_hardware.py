"""Checks of the PCIe link, the GPUs and their driver."""

from __future__ import annotations

from soakd.preflight.check import Check, CheckState, Judgement
from soakd.preflight.facts import Facts, GpuFacts, Value
from soakd.preflight.judging import at_least, at_most, each_gpu, equals, judged, matches, not_asked, plain, unknown
from soakd.preflight.profile import Profile
from soakd.quantities import format_bytes

_BUSY_PERCENT = 50
_MEMORY_SLACK = 0.03
_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}


def _bytes(value: Value) -> str:
    return format_bytes(value) if isinstance(value, int | float) else plain(value)


def _gts(value: Value) -> str:
    return f"{value:.1f} GT/s" if isinstance(value, int | float) else plain(value)


def _lanes(value: Value) -> str:
    return f"x{value:g}" if isinstance(value, int | float) else plain(value)


def link_width(facts: Facts, profile: Profile) -> Judgement:
    fix = "reseat the card and its riser; a slot may be wired for fewer lanes than its size shows"
    wanted = profile.link.width
    return not_asked() if wanted is None else each_gpu(facts, lambda g: at_least(g.link_width, wanted, fix, _lanes))


def link_speed(facts: Facts, profile: Profile) -> Judgement:
    """A slow link on an idle card is normal: it counts only under load, unless the card can't do better at all."""
    wanted = profile.link.speed_gts
    if wanted is None:
        return not_asked()

    def judge(gpu: GpuFacts) -> Judgement:
        text, fix = f"at least {_gts(wanted)}", "check slot, riser and the BIOS setting of the link speed"
        best, now, busy = gpu.link_speed_max.value, gpu.link_speed.value, gpu.utilisation.value
        if isinstance(best, int | float) and best < wanted:
            return judged(False, gpu.link_speed_max, text, fix, _gts)
        if not isinstance(now, int | float):
            return unknown(gpu.link_speed, text, fix)
        if now >= wanted:
            return judged(True, gpu.link_speed, text, fix, _gts)
        if isinstance(busy, int | float) and busy >= _BUSY_PERCENT:
            return judged(False, gpu.link_speed, text, fix, _gts)
        why = "the card is not under load, and an idle link is slow on purpose; repeat this while the server is busy"
        return Judgement(CheckState.UNKNOWN, _gts(now), text, why)

    return each_gpu(facts, judge)


def gpu_count(facts: Facts, profile: Profile) -> Judgement:
    wanted = profile.gpu.count
    if wanted is None:
        return not_asked()
    found = len(facts.gpus)
    why = facts.gpus_why if found < wanted else "from /sys/bus/pci/devices"
    fix = "lspci -d 10de: shows what the bus sees; a card may have dropped off it"
    state = CheckState.OK if found == wanted else CheckState.WRONG
    return Judgement(state, str(found), str(wanted), why, "" if state is CheckState.OK else fix)


def gpu_memory(facts: Facts, profile: Profile) -> Judgement:
    wanted = profile.gpu.memory
    if wanted is None:
        return not_asked()
    fix = "retired pages, ECC and MIG take memory away; see nvidia-smi -q -d MEMORY,PAGE_RETIREMENT"
    # ECC on HBM2 costs nothing, on GDDR 6 %; the driver's reserve is left out of the total on some cards
    return each_gpu(facts, lambda g: at_least(g.memory, wanted, fix, _bytes, _MEMORY_SLACK))


def compute_mode(facts: Facts, profile: Profile) -> Judgement:
    wanted = profile.gpu.compute_mode
    fix = f"nvidia-smi -c {(wanted or '').upper()}"

    def show(value: Value) -> str:
        return _COMPUTE_MODES.get(value, str(value)) if isinstance(value, int) else plain(value)

    if wanted is None:
        return not_asked()
    code = next(code for code, name in _COMPUTE_MODES.items() if name == wanted)
    return each_gpu(facts, lambda g: equals(g.compute_mode, code, fix, show))


def ecc_current(facts: Facts, profile: Profile) -> Judgement:
    wanted = profile.gpu.ecc
    fix = "nvidia-smi -e 1, then reset the GPU or reboot"
    return not_asked() if wanted is None else each_gpu(facts, lambda g: equals(g.ecc_current, wanted, fix))


def ecc_pending(facts: Facts, profile: Profile) -> Judgement:
    wanted = profile.gpu.ecc
    fix = "nvidia-smi -e 1; the pending mode is the one after the next reset"
    return not_asked() if wanted is None else each_gpu(facts, lambda g: equals(g.ecc_pending, wanted, fix))


def ecc_errors(facts: Facts, profile: Profile) -> Judgement:
    wanted = profile.gpu.uncorrected_errors
    fix = "uncorrected errors in the life of the card: check retired pages and remapped rows, replace it if they grow"
    return not_asked() if wanted is None else each_gpu(facts, lambda g: at_most(g.uncorrected_errors, wanted, fix))


def gpu_order(facts: Facts, profile: Profile) -> Judgement:
    """Whether the server's device numbers are those of the slots."""
    if not profile.gpu.order:
        return not_asked()
    if len(facts.gpus) < 2:
        return Judgement(CheckState.NOT_APPLICABLE, "", "", "fewer than two GPUs")
    wanted = "CUDA_DEVICE_ORDER=PCI_BUS_ID, or UUIDs in CUDA_VISIBLE_DEVICES"
    fix = "set CUDA_DEVICE_ORDER=PCI_BUS_ID in the server's environment; CUDA's default order is fastest first"
    order, visible = facts.server.device_order, facts.server.visible_devices
    if order.value is None:
        return unknown(order, wanted, fix)
    by_uuid = str(visible.value or "").startswith(("GPU-", "MIG-"))
    found = f"CUDA_DEVICE_ORDER={order.value or 'unset'}, CUDA_VISIBLE_DEVICES={visible.value or 'unset'}"
    holds = order.value == "PCI_BUS_ID" or by_uuid
    return Judgement(
        CheckState.OK if holds else CheckState.WRONG, found, wanted, f"from {order.source}", "" if holds else fix
    )


def _with_gpu(facts: Facts, profile: Profile, judgement: Judgement) -> Judgement:
    """A machine without a GPU needs no driver, unless the profile says that it has one."""
    if facts.gpus or profile.gpu.count or judgement.state is CheckState.NOT_APPLICABLE:
        return judgement
    return Judgement(CheckState.NOT_APPLICABLE, "", "", facts.gpus_why or "no NVIDIA GPU found")


def driver_version(facts: Facts, profile: Profile) -> Judgement:
    return _with_gpu(
        facts,
        profile,
        matches(facts.driver.version, profile.driver.version, "install the driver that the profile pins"),
    )


def driver_msi(facts: Facts, profile: Profile) -> Judgement:
    return _with_gpu(
        facts,
        profile,
        equals(
            facts.driver.msi, profile.driver.msi, "options nvidia NVreg_EnableMSI=1 in /etc/modprobe.d, then reload"
        ),
    )


def driver_memory_init(facts: Facts, profile: Profile) -> Judgement:
    wanted = profile.driver.system_memory_init
    fix = f"options nvidia NVreg_InitializeSystemMemoryAllocations={wanted} in /etc/modprobe.d, then reload the driver"
    return _with_gpu(facts, profile, equals(facts.driver.system_memory_init, wanted, fix))


def driver_uvm(facts: Facts, profile: Profile) -> Judgement:
    return _with_gpu(
        facts, profile, equals(facts.driver.uvm, profile.driver.uvm, "modprobe nvidia_uvm, or nvidia-modprobe -u -c 0")
    )


def driver_bound(facts: Facts, profile: Profile) -> Judgement:
    wanted = profile.driver.bound
    fix = "another driver (vfio-pci, nouveau) holds the card: unbind it and bind nvidia"
    return not_asked() if wanted is None else each_gpu(facts, lambda g: equals(g.driver, wanted, fix))


def driver_override(facts: Facts, profile: Profile) -> Judgement:
    wanted = profile.driver.bound
    if wanted is None:
        return not_asked()

    def judge(gpu: GpuFacts) -> Judgement:
        text, fix = f"empty or {wanted}", "echo > /sys/bus/pci/devices/BDF/driver_override takes it away"
        if gpu.driver_override.value is None:
            return unknown(gpu.driver_override, text, fix)
        return judged(gpu.driver_override.value in ("", "(null)", wanted), gpu.driver_override, text, fix)

    return each_gpu(facts, judge)


def runtime_status(facts: Facts, profile: Profile) -> Judgement:
    wanted = profile.pci.runtime_status
    fix = "a suspended card is asleep: set power/control to on, or start nvidia-persistenced"
    return not_asked() if wanted is None else each_gpu(facts, lambda g: equals(g.runtime_status, wanted, fix))


def power_control(facts: Facts, profile: Profile) -> Judgement:
    wanted = profile.pci.power_control
    fix = f"echo {wanted} > /sys/bus/pci/devices/BDF/power/control, or a udev rule that does it at boot"
    return not_asked() if wanted is None else each_gpu(facts, lambda g: equals(g.power_control, wanted, fix))


def subsystem_vendor(facts: Facts, profile: Profile) -> Judgement:
    wanted = profile.pci.subsystem_vendor
    fix = "the card was sold by another maker than the profile expects: check its firmware and support"
    return not_asked() if wanted is None else each_gpu(facts, lambda g: equals(g.subsystem_vendor, wanted, fix))


def aspm(facts: Facts, profile: Profile) -> Judgement:
    wanted = profile.pci.aspm
    fix = f"pcie_aspm.policy={wanted} on the kernel command line"
    if wanted is not None and not facts.gpus:
        return Judgement(CheckState.NOT_APPLICABLE, "", "", facts.gpus_why or "no NVIDIA GPU found")
    return equals(facts.host.aspm, wanted, fix)


def acs(facts: Facts, profile: Profile) -> Judgement:
    if not profile.pci.acs_off:
        return not_asked()
    if len(facts.gpus) < 2:
        return Judgement(CheckState.NOT_APPLICABLE, "", "", "fewer than two GPUs: there is no peer-to-peer traffic")
    fix = "switch ACS off in the BIOS, or with setpci on the bridges; it sends peer-to-peer traffic through the CPU"
    return each_gpu(facts, lambda g: equals(g.acs, False, fix))


CHECKS = (
    Check("link.width", "link", link_width),
    Check("link.speed", "link", link_speed),
    Check("gpu.count", "gpu", gpu_count),
    Check("gpu.memory", "gpu", gpu_memory),
    Check("gpu.compute_mode", "gpu", compute_mode),
    Check("gpu.ecc_current", "gpu", ecc_current),
    Check("gpu.ecc_pending", "gpu", ecc_pending),
    Check("gpu.ecc_errors", "gpu", ecc_errors),
    Check("gpu.order", "gpu", gpu_order),
    Check("driver.version", "driver", driver_version),
    Check("driver.msi", "driver", driver_msi),
    Check("driver.memory_init", "driver", driver_memory_init),
    Check("driver.uvm", "driver", driver_uvm),
    Check("driver.bound", "driver", driver_bound),
    Check("driver.override", "driver", driver_override),
    Check("pci.runtime_status", "pci", runtime_status),
    Check("pci.power_control", "pci", power_control),
    Check("pci.subsystem_vendor", "pci", subsystem_vendor),
    Check("pci.aspm", "pci", aspm),
    Check("pci.acs", "pci", acs),
)
