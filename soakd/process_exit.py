"""How a process that is not our child ended: kept open by a pidfd, asked after its end.

Source: pidfd_open(2); ``PIDFD_GET_INFO`` with ``PIDFD_INFO_EXIT`` (include/uapi/linux/pidfd.h, Linux 6.15), which
tells the wait status of a process that has been reaped by its own parent. Older kernels do not tell it.
"""

from __future__ import annotations

import array
import enum
import fcntl
import os
import signal
import struct
from dataclasses import dataclass

_PIDFD_GET_INFO = 0xC040FF0B  # _IOWR(0xFF, 11, 64 bytes)
_INFO_EXIT = 1 << 3
_INFO = struct.Struct("=QQ11Ii")  # mask, cgroup id, eleven ids, exit code
_OUTSIDE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL)


class ExitCause(enum.Enum):
    """What ended a process, as far as it can be known from outside."""

    OOM_KILL = "oom_kill"
    EXTERNAL_KILL = "external_kill"
    CRASH = "crash"
    ERROR_EXIT = "error_exit"
    CLEAN_EXIT = "clean_exit"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ExitEvidence:
    """The cause and what it rests on, in words."""

    cause: ExitCause
    text: str


def judge_exit(status: int | None, oom_kills: int | None) -> ExitEvidence:
    """From a wait status (None: not to be had) and the OOM kills counted since the last reading (None: not counted).

    A SIGKILL with an OOM kill in the same seconds is put down to it; a SIGKILL without one came from outside.
    """
    if status is None:
        if oom_kills:
            return ExitEvidence(ExitCause.OOM_KILL, "the kernel killed for lack of memory at that time")
        return ExitEvidence(ExitCause.UNKNOWN, "its exit status can't be seen from outside on this kernel (< 6.15)")
    number = status & 0x7F
    if not number:
        code = status >> 8 & 0xFF
        if code > 128 and code - 128 in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT):
            number = code - 128  # a shell passes on the signal of its child this way
        elif code:
            return ExitEvidence(ExitCause.ERROR_EXIT, f"it ended by itself with exit code {code}")
        else:
            return ExitEvidence(ExitCause.CLEAN_EXIT, "it ended by itself with exit code 0")
    name = _signal_name(number)
    if number == signal.SIGKILL and oom_kills:
        return ExitEvidence(ExitCause.OOM_KILL, f"{name}, and the kernel killed for lack of memory at that time")
    if number in _OUTSIDE:
        no_oom = "; no OOM kill was counted" if number == signal.SIGKILL and oom_kills == 0 else ""
        return ExitEvidence(ExitCause.EXTERNAL_KILL, f"ended from outside by {name}{no_oom}")
    return ExitEvidence(ExitCause.CRASH, f"crashed with {name}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class ExitWatch:
    """Holds a process by descriptor, so that its pid can't be taken by another one unnoticed."""

    def __init__(self, pid: int) -> None:
        try:
            self._descriptor: int | None = os.pidfd_open(pid)
        except OSError:  # gone already, or a kernel before 5.3
            self._descriptor = None

    def status(self) -> int | None:
        """The wait status once the process has ended and was reaped; None before, or where the kernel won't say."""
        if self._descriptor is None:
            return None
        buffer = array.array("B", _INFO.pack(_INFO_EXIT, *([0] * 13)))
        try:
            fcntl.ioctl(self._descriptor, _PIDFD_GET_INFO, buffer)
        except OSError:
            return None
        fields = _INFO.unpack(buffer.tobytes())
        return int(fields[-1]) if fields[0] & _INFO_EXIT else None

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
