"""Kernel log records and the XIDs in them. Pure parsers and a bounded reader of ``/dev/kmsg``.

Source: Documentation/ABI/testing/dev-kmsg and the messages of the NVIDIA driver (NVRM).
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path

from soakd.nvml.decode import sysfs_bdf

_RECORD = re.compile(r"(\d{1,10}),(\d{1,20}),(\d{1,20}),[^;]*;(.*)", re.DOTALL | re.ASCII)
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]{5,20})\): (\d{1,5})\b(?:,\s*)?(.*)", re.DOTALL | re.ASCII)
_MAX_RECORDS = 2000
_RECORD_BYTES = 8192


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """One record: syslog level (0 emergency to 7 debug), sequence number, microseconds since boot, message."""

    level: int
    sequence: int
    boot_us: int
    message: str


@dataclass(frozen=True, slots=True)
class KernelXid:
    """An XID in the kernel log. ``bdf`` in sysfs form; ``detail`` is what follows the number."""

    bdf: str
    code: int
    detail: str
    boot_us: int


@dataclass(frozen=True, slots=True)
class KmsgBatch:
    """Records read, and how many the kernel had overwritten before they were read."""

    records: tuple[KernelRecord, ...]
    missed: int


def parse_record(line: str) -> KernelRecord | None:
    """``prefix,sequence,microseconds,flags;message``; None for a continuation line or anything else."""
    match = _RECORD.fullmatch(line)
    if match is None:
        return None
    prefix, sequence, boot_us, message = match.groups()
    return KernelRecord(int(prefix) & 7, int(sequence), int(boot_us), message.rstrip("\n"))


def parse_xid(record: KernelRecord) -> KernelXid | None:
    """The XID of a record, with or without ``PCI:``, with or without the function part of the address."""
    match = _XID.search(record.message)
    if match is None:
        return None
    address, code, detail = match.groups()
    return KernelXid(sysfs_bdf(address), int(code), detail.strip()[:200], record.boot_us)


class KmsgReader:
    """Reads what was logged since it was opened. Never blocks; a read takes at most 2,000 records."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None
        self._sequence: int | None = None

    def open(self) -> None:
        """Open at the end of the log. Raises OSError (PermissionError without CAP_SYSLOG where it is restricted)."""
        self._fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(self._fd, 0, os.SEEK_END)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def read(self) -> KmsgBatch:
        """New records. Raises OSError; EPIPE (records overwritten before they were read) is counted, not raised."""
        records: list[KernelRecord] = []
        missed = 0
        rest = b""
        while self._fd is not None and len(records) < _MAX_RECORDS:
            try:
                chunk = os.read(self._fd, _RECORD_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.EPIPE:
                    continue
                raise
            if not chunk:
                break
            # the device gives one record a read; a plain file (a replay) gives blocks that may end within a line
            whole, newline, rest = (rest + chunk).rpartition(b"\n")
            for line in (whole + newline).decode(errors="replace").split("\n"):
                record = parse_record(line)
                if record is None:
                    continue
                if self._sequence is not None and record.sequence > self._sequence + 1:
                    missed += record.sequence - self._sequence - 1
                self._sequence = record.sequence
                records.append(record)
        return KmsgBatch(tuple(records), missed)
