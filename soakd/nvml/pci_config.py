"""The parts of PCI configuration space that sysfs has no file for: ACS control and ASPM control. Pure.

Source: PCI Express Base Specification (capability 0x10, extended capability 0x000D), linux/pci_regs.h. An unprivileged
reader gets 64 bytes of the ``config`` file, which hold neither.
"""

from __future__ import annotations

_STATUS_CAPABILITIES = 0x10
_CAPABILITY_EXPRESS = 0x10
_EXTENDED_START = 0x100
_EXTENDED_ACS = 0x000D
_MAX_HOPS = 48


def acs_control(config: bytes) -> int | None:
    """The ACS control register (0: every redirection off), or None where there is no such capability to see."""
    offset, hops = _EXTENDED_START, 0
    while offset >= _EXTENDED_START and offset + 8 <= len(config) and hops < _MAX_HOPS:
        header = int.from_bytes(config[offset : offset + 4], "little")
        if header in (0, 0xFFFFFFFF):
            return None
        if header & 0xFFFF == _EXTENDED_ACS:
            return int.from_bytes(config[offset + 6 : offset + 8], "little")
        offset, hops = header >> 20 & 0xFFC, hops + 1
    return None


def aspm_control(config: bytes) -> int | None:
    """ASPM bits of the link control register (0 off, 1 L0s, 2 L1, 3 both), or None where it can't be seen."""
    if len(config) < 256 or not config[6] & _STATUS_CAPABILITIES:
        return None
    offset, hops = config[0x34] & 0xFC, 0
    while 0x40 <= offset <= 0xEC and hops < _MAX_HOPS:
        if config[offset] == _CAPABILITY_EXPRESS:
            return config[offset + 0x10] & 0x3
        offset, hops = config[offset + 1] & 0xFC, hops + 1
    return None
