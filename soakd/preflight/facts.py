"""What was found on the machine, each fact with its source; a fact that could not be had says why."""

from __future__ import annotations

from dataclasses import dataclass

Value = str | int | float | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """``value`` is None exactly when the fact is unknown; ``why`` then tells a person what to do about it."""

    value: Value | None
    source: str
    why: str = ""

    @property
    def known(self) -> bool:
        return self.value is not None


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One card. Speeds in GT/s, memory in bytes, utilisation in percent."""

    bdf: str
    uuid: str
    link_speed: Fact
    link_width: Fact
    link_speed_max: Fact
    link_width_max: Fact
    utilisation: Fact
    memory: Fact
    compute_mode: Fact
    ecc_current: Fact
    ecc_pending: Fact
    uncorrected_errors: Fact
    driver: Fact
    driver_override: Fact
    runtime_status: Fact
    power_control: Fact
    subsystem_vendor: Fact
    acs: Fact


@dataclass(frozen=True, slots=True)
class DriverFacts:
    version: Fact
    msi: Fact
    system_memory_init: Fact
    uvm: Fact


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Sizes in bytes; ``cpu_vendor`` as in /proc/cpuinfo; ``aspm`` is the policy in force."""

    ram: Fact
    huge_pages: Fact
    hugetlbfs: Fact
    swappiness: Fact
    somaxconn: Fact
    tcp_fin_timeout: Fact
    shm: Fact
    cpu_vendor: Fact
    intel_idle: Fact
    aspm: Fact
    clock_offset: Fact
    clock_synchronised: Fact


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The server under test: its process, its unit and what it answers. ``there`` is False when no target is set."""

    there: bool
    local: bool
    open_files_limit: Fact
    unit_enabled: Fact
    memory_limit: Fact
    health: Fact
    generation: Fact
    log_errors: Fact
    command: Fact
    visible_devices: Fact
    device_order: Fact
    version: Fact
    torch: Fact
    cuda: Fact
    model_missing_files: Fact
    max_position_embeddings: Fact


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything, at one time."""

    gpus: tuple[GpuFacts, ...]
    gpus_why: str
    driver: DriverFacts
    host: HostFacts
    server: ServerFacts
