"""Whether the firmware, not the kernel, handles PCIe errors: the ACPI Hardware Error Source Table. Pure.

Source: ACPI specification 6.4, section 18.3.2; sizes as in Linux ``drivers/acpi/apei/hest.c``. Under firmware-first the
kernel's AER counters stay at zero whatever happens.
"""

from __future__ import annotations

_HEADER = 40
_AER_TYPES = (6, 7, 8)
_FIXED_SIZES = {2: 20, 6: 48, 7: 44, 8: 56, 9: 64, 10: 92}
_BANKED = {0: (40, 32), 1: (48, 44), 11: (48, 44)}
"""Size without banks and offset of their number, by type; each bank takes 28 bytes."""
_BANK = 28
_FIRMWARE_FIRST = 0x1
_MAX_SOURCES = 4096


def firmware_first(table: bytes) -> bool | None:
    """True when a source of PCIe errors is firmware-first; None when the table can't be understood."""
    if len(table) < _HEADER or table[:4] != b"HEST":
        return None
    count = int.from_bytes(table[36:40], "little")
    offset = _HEADER
    for _ in range(min(count, _MAX_SOURCES)):
        kind = int.from_bytes(table[offset : offset + 2], "little")
        if offset + 8 > len(table):
            return None
        if kind in _AER_TYPES and table[offset + 6] & _FIRMWARE_FIRST:
            return True
        if kind in _BANKED:
            base, banks_at = _BANKED[kind]
            if offset + base > len(table):
                return None
            offset += base + _BANK * table[offset + banks_at]
        elif kind in _FIXED_SIZES:
            offset += _FIXED_SIZES[kind]
        else:
            return None
    return False
