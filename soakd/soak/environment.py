"""What a soak runs on: the real machine, or a rehearsal's simulated one. The soak does not know which."""

from __future__ import annotations

import platform
import socket
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from soakd.clock import FastClock, RealClock
from soakd.model import GpuIdentity
from soakd.ports import Clock, GpuSource, Roots
from soakd.report.facts import Host


@dataclass(frozen=True, slots=True)
class Environment:
    """``fast`` is the rehearsal's clock, passed on to the load workers; ``gpus`` None when NVML is not to be used.

    ``gpu_note`` says why there are no cards to see, when that is known beforehand.
    """

    clock: Clock = field(default_factory=RealClock)
    fast: FastClock | None = None
    roots: Roots = field(default_factory=Roots)
    gpus: GpuSource | None = None
    simulated: bool = False
    scenario: str = ""
    gpu_note: str = ""
    cards: tuple[GpuIdentity, ...] = ()


def boot_id(roots: Roots) -> str:
    """The kernel's id of this boot; empty when it can't be read."""
    try:
        return (roots.proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def host_facts() -> Host:
    return Host(
        name=socket.gethostname(),
        os=_os_name(Path("/etc/os-release")),
        kernel=platform.release(),
        cpu=_cpu_name(Path("/proc/cpuinfo")),
        cores=psutil.cpu_count(),
        memory_bytes=psutil.virtual_memory().total,
    )


def _os_name(path: Path) -> str:
    return _value(path, "PRETTY_NAME=", "=").strip('"') or platform.system()


def _cpu_name(path: Path) -> str:
    return _value(path, "model name", ":")


def _value(path: Path, start: str, separator: str) -> str:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.split(separator, 1)[1].strip() for line in lines if line.startswith(start)), "")
