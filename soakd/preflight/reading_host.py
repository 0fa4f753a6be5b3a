"""Reads the facts of the host: /proc, /sys and the clock. Changes nothing."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path

from soakd.kernel_clock import parse_timedatectl, parse_tracking, read_kernel_clock, run_command
from soakd.ports import Roots
from soakd.preflight.facts import Fact, HostFacts
from soakd.procfs import parse_sizes, read_text

_COMMAND_SECONDS = 3.0
_MAX_CONFIG = 4 * 2**20


async def read_clock() -> tuple[Fact, Fact]:
    """Offset in seconds and whether the clock is synchronised, each from the best witness there is."""
    tracking = parse_tracking(await run_command(("chronyc", "-c", "tracking"), _COMMAND_SECONDS) or "")
    if tracking is not None:
        return Fact(tracking.offset_s, "chronyc tracking"), Fact(tracking.synchronised, "chronyc tracking")
    try:
        kernel = read_kernel_clock()
    except OSError as error:
        command = ("timedatectl", "show", "--property=NTPSynchronized")
        synchronised = parse_timedatectl(await run_command(command, _COMMAND_SECONDS) or "")
        why = f"adjtimex: {error.strerror}"
        return Fact(None, "adjtimex", why), Fact(synchronised, "timedatectl", why if synchronised is None else "")
    if not kernel.synchronised:
        why = "nothing synchronises the clock, so how far it is off is not known"
        return Fact(None, "adjtimex", why), Fact(False, "adjtimex")
    return Fact(kernel.offset_s, "adjtimex"), Fact(True, "adjtimex")


def read_host(roots: Roots, clock: tuple[Fact, Fact]) -> HostFacts:
    """Everything else; blocking reads of small files."""
    memory = parse_sizes(_text(roots.proc / "meminfo"))
    meminfo = str(roots.proc / "meminfo")
    return HostFacts(
        ram=_of(memory.get("MemTotal"), f"{meminfo} MemTotal"),
        huge_pages=_huge_pages(memory, meminfo),
        hugetlbfs=_hugetlbfs(roots.proc / "mounts"),
        swappiness=_number(roots.proc / "sys/vm/swappiness"),
        somaxconn=_number(roots.proc / "sys/net/core/somaxconn"),
        tcp_fin_timeout=_number(roots.proc / "sys/net/ipv4/tcp_fin_timeout"),
        shm=_shm(roots.dev / "shm"),
        cpu_vendor=_cpu_vendor(roots.proc / "cpuinfo"),
        intel_idle=_kernel_option(roots, "CONFIG_INTEL_IDLE"),
        aspm=_aspm(roots.sys / "module/pcie_aspm/parameters/policy"),
        clock_offset=clock[0],
        clock_synchronised=clock[1],
    )


def _huge_pages(memory: dict[str, int], source: str) -> Fact:
    pages, size = memory.get("HugePages_Total"), memory.get("Hugepagesize")
    if pages is not None and size is not None and size != 2 * 2**20:
        return Fact(None, source, f"the default huge page is {size // 1024} kB here, not 2 MB")
    return _of(pages, f"{source} HugePages_Total")


def _hugetlbfs(mounts: Path) -> Fact:
    text = _text(mounts)
    if not text:
        return Fact(None, str(mounts), "not readable")
    return Fact(any(line.split()[2:3] == ["hugetlbfs"] for line in text.splitlines()), str(mounts))


def _shm(path: Path) -> Fact:
    try:
        found = os.statvfs(path)
    except OSError as error:
        return Fact(None, str(path), error.strerror or "not there")
    return Fact(found.f_blocks * found.f_frsize, f"statvfs {path}")


def _cpu_vendor(path: Path) -> Fact:
    found = re.search(r"^vendor_id\s*:\s*(\S+)", _text(path), re.MULTILINE)
    return _of(found[1] if found else None, f"{path} vendor_id")


def _kernel_option(roots: Roots, name: str) -> Fact:
    """From the running kernel's own configuration: /proc/config.gz, else /boot/config-RELEASE."""
    release = _text(roots.proc / "sys/kernel/osrelease").strip()
    packed, plain = roots.proc / "config.gz", roots.etc.parent / f"boot/config-{release}"
    source, text = str(plain), _text(plain)
    try:
        with gzip.open(packed, "rb") as file:
            source, text = str(packed), file.read(_MAX_CONFIG).decode("utf-8", errors="replace")
    except (OSError, EOFError):
        pass
    if not text:
        return Fact(None, source, "the kernel's configuration is neither in /proc/config.gz nor in /boot")
    return Fact(f"\n{name}=y\n" in f"\n{text}\n", f"{source} {name}")


def _aspm(path: Path) -> Fact:
    found = re.search(r"\[(\w+)\]", _text(path))
    return Fact(found[1] if found else None, str(path), "" if found else "this kernel has no ASPM policy")


def _number(path: Path) -> Fact:
    text = _text(path).strip()
    return _of(int(text) if text.isdigit() else None, str(path))


def _of(value: int | str | None, source: str) -> Fact:
    return Fact(value, source, "" if value is not None else "not there or not readable")


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except OSError:
        return ""
