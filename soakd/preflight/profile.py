"""What a pre-flight wants: a YAML file per kind of machine. A key that is left out asks for nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from soakd.fields import Bytes, ConfigModel, Seconds
from soakd.yaml_source import load_yaml


class LinkWants(ConfigModel):
    """The GPU's own PCIe link, judged under load."""

    width: int | None = Field(default=None, ge=1, le=32)
    speed_gts: float | None = Field(default=None, gt=0)


class GpuWants(ConfigModel):
    """``ecc`` wants it on now and after the next boot; ``order`` wants the server's device order to be the slots'."""

    count: int | None = Field(default=None, ge=0)
    memory: Bytes | None = None
    compute_mode: Literal["default", "exclusive_process", "prohibited"] | None = None
    ecc: bool | None = None
    uncorrected_errors: int | None = Field(default=None, ge=0)
    order: bool | None = None


class DriverWants(ConfigModel):
    """``version`` and ``cuda`` may end in ``*``."""

    version: str | None = None
    msi: bool | None = None
    system_memory_init: int | None = None
    uvm: bool | None = None
    bound: str | None = None


class PciWants(ConfigModel):
    """``acs_off`` is for cards that talk to each other; ``aspm`` is one of the kernel's policies."""

    runtime_status: str | None = None
    power_control: str | None = None
    subsystem_vendor: str | None = None
    aspm: str | None = None
    acs_off: bool | None = None


class HostWants(ConfigModel):
    """Memory, kernel settings and file systems."""

    ram: Bytes | None = None
    huge_pages: int | None = None
    hugetlbfs: bool | None = None
    swappiness: int | None = None
    somaxconn: int | None = None
    tcp_fin_timeout: int | None = None
    shm: Bytes | None = None
    intel_idle: bool | None = None


class ClockWants(ConfigModel):
    max_offset: Seconds | None = None
    synchronised: bool | None = None


class ServerWants(ConfigModel):
    """``flags`` maps a flag to its value as it must stand on the server's command line."""

    open_files: int | None = None
    unit_enabled: bool | None = None
    memory_limit_below_ram: bool | None = None
    health: bool | None = None
    generation: bool | None = None
    log_without_errors: bool | None = None
    flags: dict[str, str] = Field(default_factory=dict)
    version: str | None = None
    torch: str | None = None
    cuda: str | None = None


class ModelWants(ConfigModel):
    complete: bool | None = None
    max_position_embeddings: int | None = None


class Profile(ConfigModel):
    """A named list of wishes. ``waived`` maps the id of a check to the reason why it need not hold here."""

    name: str
    description: str = ""
    link: LinkWants = LinkWants()
    gpu: GpuWants = GpuWants()
    driver: DriverWants = DriverWants()
    pci: PciWants = PciWants()
    host: HostWants = HostWants()
    clock: ClockWants = ClockWants()
    server: ServerWants = ServerWants()
    model: ModelWants = ModelWants()
    waived: dict[str, str] = Field(default_factory=dict)


def load_profile(path: Path) -> Profile:
    """Read a profile. Raises ConfigError with file, line and key."""
    source = load_yaml(path)
    try:
        return Profile.model_validate(source.data)
    except ValidationError as error:
        raise source.validation_error(error) from None
