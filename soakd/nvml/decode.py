"""Turns what NVML answers into plain values. Pure; loaded by the worker, so stdlib only.

Sources: nvml.h (value types, N/A values) and readings of real cards (which success means 'not there').
"""

from __future__ import annotations

from soakd.nvml.device import NOT_THERE, SUCCESS, Answer

_DOUBLE = 0
_UINT_TYPES = (1, 2, 3, 6)
_UINT_NA = {1: 2**32 - 1, 2: 2**64 - 1, 3: 2**64 - 1, 6: 2**16 - 1}
"""NVML_VALUE_NOT_AVAILABLE is -1 in the field's own width."""

_ZERO_IS_NOTHING = frozenset({"DEV_POWER_MIN_LIMIT", "DEV_POWER_MAX_LIMIT", "DEV_MEMORY_TEMP"})
"""No card has a power limit of 0 W, and memory at 0 C under a driver means that there is no sensor."""

_SIGNED = "_TLIMIT"
"""T.Limit values are offsets that may be negative, also where the driver types them as unsigned."""

THERMAL_COUNTERS = frozenset(
    {
        "DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN",
        "DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN",
        "DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN",
    }
)
_THERMAL_IDS_BEFORE_580 = range(251, 254)
_THERMAL_IDS_FROM_580 = range(269, 272)


def field_answer(name: str, code: int, value_type: int, value: int | float, us: int = 0) -> Answer:
    """One field value. ``name`` is the field without ``NVML_FI_``; ``value`` is already read by ``value_type``.

    The driver leaves a field it does not fill at type DOUBLE and value 0 and still says success (on an H200: the
    POWER_*_LIMIT and TLIMIT fields). None of the fields asked is a double, so that pair means 'not there', while
    a 0 of an integer type is a real one (TLIMIT on a B200).
    """
    if code != SUCCESS:
        return Answer(code, None, us)
    if value_type == _DOUBLE and value == 0:
        return Answer(NOT_THERE, None, us)
    if value == 0 and name in _ZERO_IS_NOTHING:
        return Answer(NOT_THERE, None, us)
    if value_type in _UINT_NA and value == _UINT_NA[value_type] and not name.endswith(_SIGNED):
        return Answer(NOT_THERE, None, us)
    if name.endswith(_SIGNED) and value_type in _UINT_TYPES:
        value = _signed(int(value))
    return Answer(SUCCESS, value, us)


def _signed(value: int) -> int:
    for modulus in (1 << 32, 1 << 64):
        if modulus // 2 <= value < modulus:
            return value - modulus
    return value


def thermal_ids_fit(field_id: int, driver: str) -> bool:
    """Whether the id a library has for a thermal counter means that in this driver.

    251 to 253 in nvidia-ml-py 12.575, 269 to 271 from 13.580 on, where 251 to 253 are power smoothing: an id of the
    other generation answers a plausible wrong number. True for a driver version that can't be read.
    """
    branch = driver.split(".", 1)[0]
    if not branch.isdigit():
        return True
    return field_id in (_THERMAL_IDS_FROM_580 if int(branch) >= 580 else _THERMAL_IDS_BEFORE_580)


def sysfs_bdf(bus_id: str) -> str:
    """``00000000:3B:00.0`` (NVML) or ``PCI:0000:3b:00`` (kernel log) as sysfs writes it: ``0000:3b:00.0``."""
    parts = bus_id.strip().lower().removeprefix("pci:").split(":")
    if len(parts) == 2:
        parts.insert(0, "0")
    if len(parts) != 3:
        return bus_id.strip().lower()
    domain, bus, slot = parts
    device, _, function = slot.partition(".")
    try:
        return f"{int(domain, 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{int(function or '0', 16):x}"
    except ValueError:
        return bus_id.strip().lower()
