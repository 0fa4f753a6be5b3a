"""Follows one process and its children: who comes, who goes and how, and the processor time they used meanwhile."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from soakd.process_exit import ExitEvidence, ExitWatch, judge_exit
from soakd.procfs import ProcessStat, descendants, memory_cgroup, parse_counters, read_text

ROOT = "root"
OTHER = "other"
_MAX_ROLES = 12
_MAX_MEMBERS = 256


@dataclass(slots=True)
class Member:
    """A process of the tree while it lives. ``since_ns`` is the monotonic time at which it was first seen."""

    stat: ProcessStat
    role: str
    watch: ExitWatch
    since_ns: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that is gone, how long it was watched, and what ended it as far as that can be known."""

    pid: int
    role: str
    watched_s: float
    evidence: ExitEvidence


@dataclass(frozen=True, slots=True)
class OomKills:
    """Kills for lack of memory so far: in the server's control group, and on the host; None where not counted."""

    group: int | None
    host: int | None

    def since(self, before: OomKills) -> int | None:
        """Kills between two readings. The group is the better witness, but it may vanish with the server."""
        if self.group is not None and before.group is not None:
            return self.group - before.group
        if self.host is not None and before.host is not None:
            return self.host - before.host
        return None


def read_oom_kills(proc: Path, group: Path | None) -> OomKills:
    def counted(path: Path) -> int | None:
        try:
            return parse_counters(read_text(path)).get("oom_kill")
        except OSError:
            return None

    events = [counted(group / name) for name in ("memory.events", "memory.oom_control")] if group else []
    return OomKills(next((e for e in events if e is not None), None), counted(proc / "vmstat"))


def role_of(stat: ProcessStat, root: int) -> str:
    """``root``, or the child's command name without its number: ``VLLM::Worker_TP0`` and ``..._TP1`` are one role."""
    return ROOT if stat.pid == root else re.sub(r"[\d_:.-]+$", "", stat.command) or OTHER


class ProcessTree:
    """The tree below ``root``; ``root`` is None before ``begin`` and after the process ended."""

    def __init__(self, proc: Path, cgroups: Path) -> None:
        self._proc = proc
        self._cgroups = cgroups
        self._group: Path | None = None
        self._kills = OomKills(None, None)
        self._members: dict[int, Member] = {}
        self._cpu_ticks: dict[str, int] = {}
        self.root: int | None = None

    @property
    def members(self) -> tuple[Member, ...]:
        return tuple(self._members.values())

    @property
    def cpu_ticks(self) -> Mapping[str, int]:
        """Ticks used since ``begin`` was first called, by role; never falls when a process ends."""
        return self._cpu_ticks

    def begin(self, stat: ProcessStat, now_ns: int) -> None:
        """Follow ``stat`` from now on."""
        self.root = stat.pid
        self._add(stat, now_ns)
        found = memory_cgroup(self._proc, self._cgroups, stat.pid)
        self._group = found[0] if found else None
        self._kills = read_oom_kills(self._proc, self._group)

    def update(self, table: Mapping[int, ProcessStat], now_ns: int) -> tuple[Ended, ...]:
        """Take in a new process table. When the root has ended, it alone is told of and nothing is followed."""
        if self.root is None:
            return ()
        kills = read_oom_kills(self._proc, self._group)
        killed, self._kills = kills.since(self._kills), kills
        root = self._members[self.root]
        if not _same(table.get(self.root), root.stat):
            ended = self._ended(root, table, killed, now_ns)
            self.close()
            return (ended,)
        found = {stat.pid: stat for stat in descendants(table, self.root)[:_MAX_MEMBERS]}
        gone = [m for m in self._members.values() if not _same(found.get(m.stat.pid), m.stat)]
        ends = tuple(self._ended(member, table, killed, now_ns) for member in gone)
        for member in gone:
            member.watch.close()
            del self._members[member.stat.pid]
        for stat in found.values():
            if stat.state not in ("Z", "X"):
                self._take(stat, now_ns)
        return ends

    def close(self) -> None:
        """Follow nothing any more and let go of the descriptors."""
        for member in self._members.values():
            member.watch.close()
        self._members.clear()
        self.root = None

    def _take(self, stat: ProcessStat, now_ns: int) -> None:
        member = self._members.get(stat.pid)
        if member is None:
            member = self._add(stat, now_ns)
        used = max(0, stat.cpu_ticks - member.stat.cpu_ticks)
        self._cpu_ticks[member.role] = self._cpu_ticks.get(member.role, 0) + used
        member.stat = stat

    def _add(self, stat: ProcessStat, now_ns: int) -> Member:
        assert self.root is not None
        role = role_of(stat, self.root)
        known = {*self._cpu_ticks, *(member.role for member in self._members.values())}
        if role not in known and len(known) >= _MAX_ROLES:
            role = OTHER
        member = Member(stat, role, ExitWatch(stat.pid), now_ns)
        self._members[stat.pid] = member
        return member

    def _ended(self, member: Member, table: Mapping[int, ProcessStat], killed: int | None, now_ns: int) -> Ended:
        status = member.watch.status()
        left = table.get(member.stat.pid)
        if status is None and left is not None and left.state == "Z" and left.start_ticks == member.stat.start_ticks:
            status = left.exit_status or None  # 0 also where the reader may not see it
        evidence = judge_exit(status, killed)
        return Ended(member.stat.pid, member.role, (now_ns - member.since_ns) / 1e9, evidence)


def _same(now: ProcessStat | None, before: ProcessStat) -> bool:
    return now is not None and now.start_ticks == before.start_ticks and now.state not in ("Z", "X")
