"""XID numbers: what each means, its class and what to do.

Sources: NVIDIA's XID catalogue (docs.nvidia.com/deploy/xid-errors), the classes in use in NVIDIA's Data Center GPU
debug guidelines and in GPU operators' health checks. Class REBOOT: the card is gone until the host restarts; RESET:
drain and reset the GPU; WORKFLOW: follow the memory or NVLink workflow (often: finish, then reset, look at row
remapping); APPLICATION: a fault of the program first; IGNORE: information.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from soakd.model import Severity


class XidClass(enum.Enum):
    REBOOT = "reboot"
    RESET = "reset"
    WORKFLOW = "workflow"
    APPLICATION = "application"
    IGNORE = "ignore"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Xid:
    """One XID. ``name`` is NVIDIA's short description, ``advice`` what a person should do."""

    code: int
    name: str
    kind: XidClass
    advice: str
    severity: Severity


_ADVICE: Mapping[XidClass, str] = {
    XidClass.REBOOT: "the card has left the bus: check power, seating and riser, then restart the host",
    XidClass.RESET: "drain the card and reset it; if it comes back, run NVIDIA's field diagnostic",
    XidClass.WORKFLOW: "follow the memory or link workflow: check remapped rows and ECC, reset when a remap is pending",
    XidClass.APPLICATION: "look at the server and its CUDA code first; the card goes on working",
    XidClass.IGNORE: "information; nothing to do",
    XidClass.UNKNOWN: "not in the table: look it up in NVIDIA's XID catalogue",
}
_SEVERITY: Mapping[XidClass, Severity] = {
    XidClass.REBOOT: Severity.CRITICAL,
    XidClass.RESET: Severity.CRITICAL,
    XidClass.WORKFLOW: Severity.WARNING,
    XidClass.APPLICATION: Severity.WARNING,
    XidClass.IGNORE: Severity.INFO,
    XidClass.UNKNOWN: Severity.WARNING,
}
_CODES: Mapping[XidClass, tuple[int, ...]] = {
    XidClass.REBOOT: (79,),
    XidClass.RESET: (46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158),
    XidClass.WORKFLOW: (45, 48, 74, 144, 145, 146, 147, 148, 149, 150, 154),
    XidClass.APPLICATION: (8, 13, 31, 32, 39, 40, 41, 68, 69, 70, 71, 72, 94),
    XidClass.IGNORE: (43, 63, 92, 121),
}
_NAMES: Mapping[int, str] = {
    8: "GPU stopped processing",
    13: "graphics engine exception",
    31: "GPU memory page fault",
    32: "invalid or corrupted push buffer stream",
    39: "copy engine exception",
    40: "copy engine exception",
    41: "copy engine exception",
    43: "GPU stopped processing (channel reset)",
    45: "preemptive cleanup, due to previous errors",
    46: "GPU stopped processing (reset needed)",
    48: "double-bit ECC error",
    62: "internal micro-controller halt",
    63: "row remapping or page retirement recorded",
    64: "row remapping or page retirement failure",
    68: "video processor exception",
    69: "graphics engine class error",
    70: "copy engine exception",
    71: "copy engine exception",
    72: "copy engine exception",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high single-bit ECC error rate",
    94: "contained ECC error",
    95: "uncontained ECC error",
    109: "context switch timeout",
    110: "security fault",
    119: "GSP RPC timeout",
    120: "GSP error",
    121: "C2C link corrected error",
    136: "link training failure",
    140: "unrecovered ECC error",
    143: "GPU initialisation failure",
    144: "NVLink SAW error",
    145: "NVLink RLW error",
    146: "NVLink TLW error",
    147: "NVLink TREX error",
    148: "NVLink NVLPW_CTRL error",
    149: "NVLink NETIR error",
    150: "NVLink MSE error",
    154: "GPU recovery action changed",
    155: "NVLink SW-defined error",
    156: "resource retirement event",
    158: "GPU fatal timeout",
}
_TABLE: Mapping[int, Xid] = {
    code: Xid(code, _NAMES[code], kind, _ADVICE[kind], _SEVERITY[kind])
    for kind, codes in _CODES.items()
    for code in codes
}


def describe(code: int) -> Xid:
    """What is known of an XID; class UNKNOWN for one that is not in the table."""
    known = _TABLE.get(code)
    if known is not None:
        return known
    return Xid(code, "unlisted XID", XidClass.UNKNOWN, _ADVICE[XidClass.UNKNOWN], _SEVERITY[XidClass.UNKNOWN])
