"""The kernel's clock and the daemon that sets it, asked and never changed.

Sources: adjtimex(2), ``chronyc -c tracking`` (chronyc(1)), ``timedatectl show``.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass

_STA_UNSYNC, _STA_NANO, _TIME_ERROR = 0x0040, 0x2000, 5
_OUTPUT_BYTES = 64 * 1024


class _Timeval(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("microseconds", ctypes.c_long))


class _Timex(ctypes.Structure):
    _fields_ = (
        ("modes", ctypes.c_uint), ("offset", ctypes.c_long), ("freq", ctypes.c_long), ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long), ("status", ctypes.c_int), ("constant", ctypes.c_long),
        ("precision", ctypes.c_long), ("tolerance", ctypes.c_long), ("time", _Timeval), ("rest", ctypes.c_byte * 128),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class KernelClock:
    """What the kernel says of its clock, in seconds."""

    synchronised: bool
    offset_s: float
    estimated_error_s: float
    max_error_s: float


def read_kernel_clock() -> KernelClock:
    """Ask adjtimex with no mode set: nothing is changed. Raises OSError."""
    timex = _Timex()
    library = ctypes.CDLL(None, use_errno=True)
    state = library.adjtimex(ctypes.byref(timex))
    if state < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return KernelClock(
        synchronised=state != _TIME_ERROR and not timex.status & _STA_UNSYNC,
        offset_s=timex.offset * (1e-9 if timex.status & _STA_NANO else 1e-6),
        estimated_error_s=timex.esterror * 1e-6,
        max_error_s=timex.maxerror * 1e-6,
    )


@dataclass(frozen=True, slots=True)
class Tracking:
    """chronyd's view: offset in seconds (above zero: the system clock is ahead) and whether it is synchronised."""

    offset_s: float
    synchronised: bool


def parse_tracking(text: str) -> Tracking | None:
    """``chronyc -c tracking``: field 5 is the system time offset, the last one the leap status. None when it is not."""
    fields = text.strip().split(",")
    if len(fields) != 14:
        return None
    try:
        # "slow" is positive in the CSV: seconds to be added to the system clock
        return Tracking(-float(fields[4]), fields[13] != "Not synchronised")
    except ValueError:
        return None


def parse_timedatectl(text: str) -> bool | None:
    """``NTPSynchronized=yes|no`` of ``timedatectl show``."""
    for line in text.splitlines():
        if line.startswith("NTPSynchronized="):
            return line.partition("=")[2].strip() == "yes"
    return None


async def run_command(arguments: Sequence[str], timeout_s: float) -> str | None:
    """Standard output of a command, or None when it is missing, fails or takes too long (it is killed then)."""
    try:
        process = await asyncio.create_subprocess_exec(
            *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, env={"PATH": os.defpath, "LC_ALL": "C"},
        )  # fmt: skip
    except OSError:
        return None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(timeout_s):
            output = await process.stdout.read(_OUTPUT_BYTES)
            code = await process.wait()
    except (TimeoutError, asyncio.CancelledError) as error:
        process.kill()
        await process.wait()
        if isinstance(error, asyncio.CancelledError):
            raise
        return None
    return output.decode("utf-8", errors="replace") if code == 0 else None
