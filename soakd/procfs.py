"""What /proc says of processes, sockets and control groups: pure parsers, and reads with bounds.

Sources: proc(5), and Documentation/filesystems/proc.rst of the kernel. Readers raise OSError; parsers raise ValueError.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_READ_LIMIT = 4 * 2**20
_MAX_PROCESSES = 100_000
_LISTEN = "0A"
_SECRET_FLAG = re.compile(r"(key|token|password|passwd|secret|credential|auth)", re.IGNORECASE)


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


def parse_listeners(text: str, port: int) -> frozenset[int]:
    """Inodes of the sockets that listen on ``port`` in a ``/proc/net/tcp`` or ``tcp6`` table."""
    inodes = set()
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == _LISTEN and fields[1].rpartition(":")[2].upper() == f"{port:04X}":
            inodes.add(int(fields[9]))
    return frozenset(inodes)


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
        return parse_stat(read_text(proc / str(pid) / "stat", 4096))
    except (OSError, ValueError):
        return None


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


def topmost(table: Mapping[int, ProcessStat], pids: Iterable[int]) -> int | None:
    """The one of ``pids`` that has none of the others above it; the oldest when there are several."""
    wanted = {p for p in pids if p in table}

    def below_another(pid: int) -> bool:
        seen = {pid}
        above = table[pid].parent
        while above in table and above not in seen:
            if above in wanted:
                return True
            seen.add(above)
            above = table[above].parent
        return False

    tops = [p for p in wanted if not below_another(p)]
    return min(tops, key=lambda p: (table[p].start_ticks, p)) if tops else None


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


def socket_owners(proc: Path, pids: Iterable[int], inodes: frozenset[int]) -> frozenset[int]:
    """Those of ``pids`` that hold one of the sockets open; processes whose files are hidden are left out."""
    wanted = {f"socket:[{inode}]" for inode in inodes}
    return frozenset(pid for pid in pids if wanted and _holds(proc / str(pid) / "fd", wanted))


def _holds(folder: Path, wanted: set[str]) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(_target(entry) in wanted for entry in entries)
    except OSError:
        return False


def _target(entry: os.DirEntry[str]) -> str:
    try:
        return os.readlink(entry.path)
    except OSError:
        return ""


def listening_inodes(proc: Path, port: int) -> frozenset[int]:
    """Sockets that listen on ``port`` in this process's network namespace."""
    found: frozenset[int] = frozenset()
    for name in ("tcp", "tcp6"):
        try:
            found |= parse_listeners(read_text(proc / "net" / name), port)
        except OSError:
            continue
    return found


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
