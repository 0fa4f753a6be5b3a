"""Checks of the host: memory, kernel settings, file systems and the clock."""

from __future__ import annotations

from soakd.preflight.check import Check, CheckState, Judgement
from soakd.preflight.facts import Facts, Value
from soakd.preflight.judging import at_least, at_most, equals, not_asked, plain
from soakd.preflight.profile import Profile
from soakd.quantities import format_bytes

_RAM_SLACK = 0.06


def _bytes(value: Value) -> str:
    return format_bytes(value) if isinstance(value, int | float) else plain(value)


def _milliseconds(value: Value) -> str:
    return f"{value * 1000:.1f} ms" if isinstance(value, int | float) else plain(value)


def ram(facts: Facts, profile: Profile) -> Judgement:
    # firmware, the kernel and a crash dump reserve take up to 6 % of what the modules hold
    return at_least(facts.host.ram, profile.host.ram, "add memory, or a smaller model", _bytes, _RAM_SLACK)


def huge_pages(facts: Facts, profile: Profile) -> Judgement:
    wanted = profile.host.huge_pages
    return at_least(facts.host.huge_pages, wanted, f"sysctl vm.nr_hugepages={wanted}, best at boot")


def hugetlbfs(facts: Facts, profile: Profile) -> Judgement:
    return equals(facts.host.hugetlbfs, profile.host.hugetlbfs, "mount -t hugetlbfs hugetlbfs /dev/hugepages")


def swappiness(facts: Facts, profile: Profile) -> Judgement:
    wanted = profile.host.swappiness
    return equals(facts.host.swappiness, wanted, f"sysctl vm.swappiness={wanted}")


def somaxconn(facts: Facts, profile: Profile) -> Judgement:
    wanted = profile.host.somaxconn
    return at_least(facts.host.somaxconn, wanted, f"sysctl net.core.somaxconn={wanted}, then restart the server")


def tcp_fin_timeout(facts: Facts, profile: Profile) -> Judgement:
    wanted = profile.host.tcp_fin_timeout
    return at_most(facts.host.tcp_fin_timeout, wanted, f"sysctl net.ipv4.tcp_fin_timeout={wanted}")


def shm(facts: Facts, profile: Profile) -> Judgement:
    fix = "mount -o remount,size=... /dev/shm; in a container --shm-size or an emptyDir of medium Memory"
    return at_least(facts.host.shm, profile.host.shm, fix, _bytes)


def intel_idle(facts: Facts, profile: Profile) -> Judgement:
    if profile.host.intel_idle is None:
        return not_asked()
    vendor = facts.host.cpu_vendor.value
    if vendor is not None and vendor != "GenuineIntel":
        return Judgement(CheckState.NOT_APPLICABLE, str(vendor), "", "not an Intel processor")
    return equals(facts.host.intel_idle, profile.host.intel_idle, "use a kernel with CONFIG_INTEL_IDLE=y")


def clock_offset(facts: Facts, profile: Profile) -> Judgement:
    fix = "start chronyd or another time daemon, and see chronyc tracking"
    return at_most(facts.host.clock_offset, profile.clock.max_offset, fix, _milliseconds)


def clock_synchronised(facts: Facts, profile: Profile) -> Judgement:
    return equals(
        facts.host.clock_synchronised, profile.clock.synchronised, "timedatectl set-ntp true, or start chronyd"
    )


CHECKS = (
    Check("host.ram", "host", ram),
    Check("host.huge_pages", "host", huge_pages),
    Check("host.hugetlbfs", "host", hugetlbfs),
    Check("host.swappiness", "host", swappiness),
    Check("host.somaxconn", "host", somaxconn),
    Check("host.tcp_fin_timeout", "host", tcp_fin_timeout),
    Check("host.shm", "host", shm),
    Check("host.intel_idle", "host", intel_idle),
    Check("clock.offset", "clock", clock_offset),
    Check("clock.synchronised", "clock", clock_synchronised),
)
