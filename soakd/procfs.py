"""What /proc says of processes and control groups: pure parsers, and reads with bounds.

Sources: proc(5), and Documentation/filesystems/proc.rst of the kernel. Readers raise OSError; parsers raise ValueError.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_READ_LIMIT = 4 * 2**20
_MAX_PROCESSES = 100_000
_SECRET_FLAG = re.compile(r"(key|token(?!s|iz)|password|passwd|secret|credential|auth)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """One line of ``/proc/PID/stat``. Times are in clock ticks, ``start_ticks`` since boot.

    ``exit_status`` is the wait status of a zombie (0 while it runs, or when the reader may not see it).
    """

    pid: int
    command: str
    state: str
    parent: int
    cpu_ticks: int
    threads: int
    start_ticks: int
    exit_status: int = 0


def read_text(path: Path, limit: int = _READ_LIMIT) -> str:
    """At most ``limit`` bytes of a file, decoded without ever failing."""
    with path.open("rb") as file:
        return file.read(limit).decode("utf-8", errors="replace")


def parse_stat(text: str) -> ProcessStat:
    """Parse ``/proc/PID/stat``; the command may hold spaces and parentheses."""
    opened, closed = text.find("("), text.rfind(")")
    fields = text[closed + 2 :].split()
    if opened < 1 or closed < opened or len(fields) < 20:
        raise ValueError(f"not a stat line: {text[:60]!r}")
    return ProcessStat(
        pid=int(text[:opened]),
        command=text[opened + 1 : closed],
        state=fields[0],
        parent=int(fields[1]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        threads=int(fields[17]),
        start_ticks=int(fields[19]),
        exit_status=int(fields[49]) if len(fields) > 49 else 0,
    )


def parse_sizes(text: str) -> dict[str, int]:
    """``Name:  12 kB`` lines of meminfo, status and smaps_rollup as bytes; ``Name: 12`` as a plain number."""
    sizes: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        parts = rest.split()
        if len(parts) in (1, 2) and parts[0].isdigit():
            sizes[name.strip()] = int(parts[0]) * (1024 if parts[1:] == ["kB"] else 1)
    return sizes


def parse_counters(text: str) -> dict[str, int]:
    """``name value`` lines (vmstat, memory.events, memory.stat)."""
    counters: dict[str, int] = {}
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if name and value.isdigit():
            counters[name.strip()] = int(value)
    return counters


def parse_open_files_limit(text: str) -> int | None:
    """The soft limit of ``Max open files`` in ``/proc/PID/limits``; None when it is unlimited or not there."""
    found = re.search(r"^Max open files\s+(\d+|unlimited)", text, re.MULTILINE)
    return int(found.group(1)) if found and found.group(1) != "unlimited" else None


def process_table(proc: Path) -> dict[int, ProcessStat]:
    """Every process there is now; those that end while it is read are left out."""
    table: dict[int, ProcessStat] = {}
    with os.scandir(proc) as entries:
        for entry in entries:
            if not entry.name.isdigit() or len(table) >= _MAX_PROCESSES:
                continue
            stat = process_stat(proc, int(entry.name))
            if stat is not None:
                table[stat.pid] = stat
    return table


def process_stat(proc: Path, pid: int) -> ProcessStat | None:
    """One process, or None when it is not there."""
    try:
        # plain calls: the table of a busy host has thousands of these, and Path and buffers cost more than the read
        descriptor = os.open(f"{proc}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return parse_stat(os.read(descriptor, 4096).decode("utf-8", errors="replace"))
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)


def descendants(table: Mapping[int, ProcessStat], root: int) -> tuple[ProcessStat, ...]:
    """``root`` and all processes below it, the root first; empty when it is not there."""
    if root not in table:
        return ()
    children: dict[int, list[ProcessStat]] = {}
    for stat in table.values():
        children.setdefault(stat.parent, []).append(stat)
    found, seen = [table[root]], {root}
    for stat in found:
        for child in sorted(children.get(stat.pid, ()), key=lambda c: c.pid):
            if child.pid not in seen:
                seen.add(child.pid)
                found.append(child)
    return tuple(found)


def command_line(proc: Path, pid: int) -> tuple[str, ...]:
    """The arguments of a process; empty for a kernel thread or one that is gone or hidden."""
    try:
        raw = read_text(proc / str(pid) / "cmdline", 256 * 1024)
    except OSError:
        return ()
    return tuple(part for part in raw.split("\0") if part)


def redacted(arguments: Sequence[str]) -> str:
    """The command line for people, with the value of every flag that sounds like a secret taken out."""
    shown, hide = [], False
    for argument in arguments:
        flag, equals, _ = argument.partition("=")
        secret = bool(_SECRET_FLAG.search(flag)) and (flag.startswith("-") or bool(equals))
        if hide and not argument.startswith("-"):
            shown.append("***")
        elif secret and equals:
            shown.append(f"{flag}=***")
        else:
            shown.append(argument)
        hide = secret and not equals
    return " ".join(shown)


def open_files(proc: Path, pid: int) -> int:
    """How many files a process has open. Raises PermissionError where neither way is allowed, OSError when it is gone.

    Since Linux 6.2 the size of ``/proc/PID/fd`` is the count, and anyone may ask for it.
    """
    folder = proc / str(pid) / "fd"
    try:
        return len(os.listdir(folder))
    except PermissionError:
        count = folder.stat().st_size
        if count > 0:
            return count
        raise


def memory_cgroup(proc: Path, cgroups: Path, pid: int) -> tuple[Path, int] | None:
    """The folder that accounts a process's memory and its cgroup version (1 or 2); None when it can't be told."""
    try:
        lines = read_text(proc / str(pid) / "cgroup", 64 * 1024).splitlines()
    except OSError:
        return None
    parts = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    for _, controllers, path in parts:
        if "memory" in controllers.split(","):
            return cgroups / "memory" / path.lstrip("/"), 1
    for hierarchy, controllers, path in parts:
        if hierarchy == "0" and not controllers:
            return cgroups / path.lstrip("/"), 2
    return None


def boot_id(proc: Path) -> str:
    """The kernel's id of this boot; empty when it can't be read."""
    try:
        return read_text(proc / "sys/kernel/random/boot_id", 64).strip()
    except OSError:
        return ""
