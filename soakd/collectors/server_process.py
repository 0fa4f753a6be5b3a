"""The server's process tree: memory, open files, threads, processor time, and how it ended when it does.

The process comes from the target (what was picked is told in the event ``server.process``); when it ends, the one
that takes its place is looked for by the same port. Sources: proc(5), Documentation/filesystems/proc.rst.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar
from urllib.parse import urlsplit

from soakd.blocking import BlockingReader
from soakd.fields import ConfigModel, Seconds
from soakd.model import Event, Kind, Metric, Sample, Severity, State, TargetInfo, labels
from soakd.ports import CollectorContext, Item
from soakd.process_exit import ExitEvidence
from soakd.process_tree import ROOT, Ended, Member, ProcessTree
from soakd.procfs import (
    ProcessStat,
    command_line,
    open_files,
    parse_counters,
    parse_open_files_limit,
    parse_sizes,
    process_table,
    read_text,
    redacted,
)
from soakd.targets.processes import find_process, listening_inodes

KIND = "server_process"
T = TypeVar("T")


def _gauge(name: str, unit: str, help_: str, source: str) -> Metric:
    return Metric(name, unit, Kind.GAUGE, help_, source, ("role",))


UP = Metric(
    "server_process_up",
    "",
    Kind.STATE,
    "Whether the server's process runs.",
    "/proc/PID/stat",
    codes=(("down", 0), ("up", 1)),
)
RESTARTS = Metric(
    "server_process_restarts_total",
    "restarts",
    Kind.COUNTER,
    "Times that another process took the server's place while soakd watched.",
    "soakd",
)
STARTED = Metric(
    "server_process_start_time_seconds",
    "seconds",
    Kind.GAUGE,
    "When the server's process started, in seconds since 1970.",
    "/proc/PID/stat starttime + /proc/stat btime",
)
PROCESSES = _gauge("server_processes", "processes", "Processes of the server.", "/proc/*/stat")
RSS = _gauge(
    "server_process_rss_bytes",
    "bytes",
    "Resident memory; pages shared within the tree count once per process.",
    "/proc/PID/status VmRSS",
)
HOST_MEMORY = _gauge(
    "server_process_anon_swap_bytes",
    "bytes",
    "Host memory that only the server can give back: RssAnon + VmSwap. Leaks are judged on this.",
    "/proc/PID/status RssAnon + VmSwap",
)
PSS = _gauge(
    "server_process_pss_bytes",
    "bytes",
    "Resident memory with shared pages divided among their users.",
    "/proc/PID/smaps_rollup Pss",
)
USS = _gauge(
    "server_process_uss_bytes",
    "bytes",
    "Memory that would be freed if the process ended.",
    "/proc/PID/smaps_rollup Private_Clean + Private_Dirty",
)
OPEN_FILES = _gauge("server_process_open_files", "files", "Open file descriptors.", "/proc/PID/fd")
FILES_LIMIT = Metric(
    "server_process_open_files_limit",
    "files",
    Kind.GAUGE,
    "Open files that the server's first process may have (soft limit).",
    "/proc/PID/limits Max open files",
)
FILES_SHARE = Metric(
    "server_process_open_files_ratio",
    "ratio",
    Kind.GAUGE,
    "Open files over the limit of the process that is nearest to its own.",
    "/proc/PID/fd, /proc/PID/limits",
)
THREADS = _gauge("server_process_threads", "threads", "Threads.", "/proc/PID/stat num_threads")
BLOCKED = _gauge(
    "server_process_blocked",
    "processes",
    "Processes in uninterruptible sleep (a hung driver or disk when it lasts).",
    "/proc/PID/stat state D",
)
CPU = Metric(
    "server_process_cpu_seconds_total",
    "seconds",
    Kind.COUNTER,
    "Processor time used while soakd watched, of processes that have ended as well.",
    "/proc/PID/stat utime + stime",
    ("role",),
)
METRICS = (
    UP,
    RESTARTS,
    STARTED,
    PROCESSES,
    RSS,
    HOST_MEMORY,
    PSS,
    USS,
    OPEN_FILES,
    FILES_LIMIT,
    FILES_SHARE,
    THREADS,
    BLOCKED,
    CPU,
)

_MEASURED = tuple(m for m in METRICS if m not in (UP, RESTARTS))
_TOTAL = "total"
_GRANT = (
    "it belongs to another user; grant just that with AmbientCapabilities=CAP_SYS_PTRACE in the systemd unit, or run "
    "soakd as the server's user"
)


class Config(ConfigModel):
    """``smaps_every``: PSS and USS cost a walk over the server's page tables, so they have a pace of their own.

    ``worker_min_age``: a child process that lived shorter (a compiler, a probe) ends without an event.
    """

    smaps_every: Seconds = 60.0
    worker_min_age: Seconds = 60.0


class ServerProcessCollector:
    """Reads in a thread of its own: a process with very many files or mappings is slow to read."""

    def __init__(self, config: Config, context: CollectorContext) -> None:
        self._config = config
        self._clock = context.clock
        self._proc = context.roots.proc
        self._target = context.target
        self._tree = ProcessTree(context.roots.proc, context.roots.sys / "fs/cgroup")
        self._last_end: ExitEvidence | None = None
        self._lost_at_ns = 0
        self._restarts = 0
        self._why_none = ""
        self._command: tuple[str, ...] = ()
        self._smaps_due_ns = 0
        self._reader = BlockingReader("server_process")

    async def collect(self) -> Sequence[Item]:
        return await self._reader.call(self._read)

    async def close(self) -> None:
        self._reader.close()
        self._tree.close()

    def _read(self) -> list[Item]:
        now = self._clock.wall_ns()
        if self._target is None or not self._target.local:
            why = "no target is configured" if self._target is None else "the target runs on another host"
            return [Sample.unknown(metric, State.ABSENT, now, why=why) for metric in METRICS]
        table = process_table(self._proc)
        items: list[Item] = []
        for ended in self._tree.update(table, self._clock.monotonic_ns()):
            items += self._on_end(ended, now)
        if self._tree.root is None:
            items += self._pick(self._target, table, now)
            self._tree.update(table, self._clock.monotonic_ns())
        items.append(Sample.ok(UP, self._tree.root is not None, now))
        items.append(Sample.ok(RESTARTS, self._restarts, now))
        if self._tree.root is None:
            state = State.LOST if self._last_end else State.ABSENT
            return items + [Sample.unknown(metric, state, now, why=self._why_none) for metric in _MEASURED]
        items.append(self._started(table[self._tree.root], now))
        return items + self._measure(self._tree.members, now)

    def _on_end(self, ended: Ended, now: int) -> list[Item]:
        attrs = labels(cause=ended.evidence.cause.value, pid=ended.pid)
        if ended.role == ROOT:
            self._last_end, self._lost_at_ns = ended.evidence, self._clock.monotonic_ns()
            what = f"the server's process {ended.pid} ended: {ended.evidence.text}"
            return [Event("server.exit", now, what, Severity.CRITICAL, (), attrs)]
        if ended.watched_s < self._config.worker_min_age:
            return []
        what = f"a process of the server ended while the server runs on: {ended.role}, {ended.evidence.text}"
        return [Event("server.worker_exit", now, what, Severity.WARNING, labels(role=ended.role), attrs)]

    def _pick(self, target: TargetInfo, table: dict[int, ProcessStat], now: int) -> list[Item]:
        pid, how = target.pid, target.picked_by
        if self._last_end or pid is None or pid not in table or table[pid].state in ("Z", "X"):
            parts = urlsplit(target.url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
            picked = find_process(self._proc, port, model=target.model)
            pid, how = picked.pid, picked.how
            if self._last_end and pid is not None and not self._is_successor(pid, port):
                pid, how = None, f"nothing listens on port {port}; pid {pid} is another server"
        if pid is None or pid not in table:
            self._why_none = how or "the server's process is gone"
            return []
        self._tree.begin(table[pid], self._clock.monotonic_ns())
        self._command = command_line(self._proc, pid)
        shown = (redacted(self._command) or table[pid].command)[:300]
        if self._last_end is None:
            what = f"watching the server's process {pid}: {shown}"
            return [Event("server.process", now, what, Severity.INFO, (), labels(pid=pid, picked_by=how or None))]
        self._restarts += 1
        down = (self._clock.monotonic_ns() - self._lost_at_ns) / 1e9
        what = f"the server runs again as process {pid} ({shown}); the one before: {self._last_end.text}"
        attrs = labels(pid=pid, cause=self._last_end.cause.value, down_seconds=f"{down:.1f}")
        self._last_end = None
        return [Event("server.restart", now, what, Severity.CRITICAL, (), attrs)]

    def _is_successor(self, pid: int, port: int) -> bool:
        """Another server of this host must not be taken for the one that ended."""
        same_command = command_line(self._proc, pid) == self._command
        nets = (self._proc / "net", self._proc / str(pid) / "net")
        return same_command or any(listening_inodes(net, port) for net in nets)

    def _started(self, root: ProcessStat, now: int) -> Sample:
        booted = parse_counters(read_text(self._proc / "stat")).get("btime")
        if booted is None:
            return Sample.unknown(STARTED, State.ABSENT, now, why="no btime in /proc/stat")
        return Sample.ok(STARTED, booted + root.start_ticks / os.sysconf("SC_CLK_TCK"), now)

    def _measure(self, members: Sequence[Member], now: int) -> list[Item]:
        counts = {member.stat.pid: 1 for member in members}
        threads = {member.stat.pid: member.stat.threads for member in members}
        blocked = {member.stat.pid: int(member.stat.state == "D") for member in members}
        items: list[Item] = []
        for metric, values in ((PROCESSES, counts), (THREADS, threads), (BLOCKED, blocked)):
            items += _by_role(metric, members, values, now)
        tick = os.sysconf("SC_CLK_TCK")
        ticks = self._tree.cpu_ticks
        items += [Sample.ok(CPU, n / tick, now, labels(role=role)) for role, n in ticks.items()]
        items.append(Sample.ok(CPU, sum(ticks.values()) / tick, now, labels(role=_TOTAL)))
        status = self._sizes(members, "status")
        items += self._sum(RSS, members, status, ("VmRSS",), now)
        items += self._sum(HOST_MEMORY, members, status, ("RssAnon", "VmSwap"), now)
        items += self._files(members, now)
        if self._clock.monotonic_ns() >= self._smaps_due_ns:
            self._smaps_due_ns = self._clock.monotonic_ns() + int(self._config.smaps_every * 1e9)
            rollup = self._sizes(members, "smaps_rollup")
            items += self._sum(PSS, members, rollup, ("Pss",), now)
            items += self._sum(USS, members, rollup, ("Private_Clean", "Private_Dirty"), now)
        return items

    def _sizes(self, members: Sequence[Member], file: str) -> dict[int, dict[str, int] | OSError]:
        return {m.stat.pid: _attempt(partial(self._size_table, m.stat.pid, file)) for m in members}

    def _size_table(self, pid: int, file: str) -> dict[str, int]:
        return parse_sizes(read_text(self._proc / str(pid) / file))

    def _sum(
        self,
        metric: Metric,
        members: Sequence[Member],
        tables: dict[int, dict[str, int] | OSError],
        keys: tuple[str, ...],
        now: int,
    ) -> list[Sample]:
        values: dict[int, int] = {}
        for pid, table in tables.items():
            if isinstance(table, PermissionError):
                return [Sample.unknown(metric, State.NO_PERMISSION, now, labels(role=_TOTAL), _GRANT)]
            if isinstance(table, dict) and keys[0] in table:
                values[pid] = sum(table.get(key, 0) for key in keys)
        if not values:
            why = f"the kernel does not tell {keys[0]}"
            return [Sample.unknown(metric, State.UNSUPPORTED, now, labels(role=_TOTAL), why)]
        return _by_role(metric, [m for m in members if m.stat.pid in values], values, now)

    def _files(self, members: Sequence[Member], now: int) -> list[Sample]:
        found = {m.stat.pid: _attempt(partial(open_files, self._proc, m.stat.pid)) for m in members}
        limits = {m.stat.pid: _attempt(partial(self._limit, m.stat.pid)) for m in members}
        counts = {pid: n for pid, n in found.items() if isinstance(n, int)}
        if not counts:
            state = State.NO_PERMISSION if any(isinstance(n, PermissionError) for n in found.values()) else State.ABSENT
            samples = [
                Sample.unknown(OPEN_FILES, state, now, labels(role=_TOTAL), _GRANT),
                Sample.unknown(FILES_SHARE, state, now, why=_GRANT),
            ]
        else:
            samples = _by_role(OPEN_FILES, [m for m in members if m.stat.pid in counts], counts, now)
            shares = [n / limit for pid, n in counts.items() if isinstance(limit := limits[pid], int) and limit]
            samples.append(
                Sample.ok(FILES_SHARE, max(shares), now)
                if shares
                else Sample.unknown(FILES_SHARE, State.ABSENT, now, why="no limit is set")
            )
        limit = limits.get(self._tree.root or 0)
        samples.append(
            Sample.ok(FILES_LIMIT, limit, now)
            if isinstance(limit, int)
            else Sample.unknown(FILES_LIMIT, State.ABSENT, now, why=str(limit) if limit else "no limit is set")
        )
        return samples

    def _limit(self, pid: int) -> int | None:
        return parse_open_files_limit(read_text(self._proc / str(pid) / "limits"))


def _attempt(read: Callable[[], T]) -> T | OSError:
    """A process may end, or hide, between two files of it; that must cost its own numbers only."""
    try:
        return read()
    except OSError as error:
        return error


def _by_role(metric: Metric, members: Iterable[Member], values: dict[int, int], now: int) -> list[Sample]:
    sums = {_TOTAL: 0}
    for member in members:
        value = values[member.stat.pid]
        sums[_TOTAL] += value
        sums[member.role] = sums.get(member.role, 0) + value
    return [Sample.ok(metric, value, now, labels(role=role)) for role, value in sums.items()]


def build(config: Config, context: CollectorContext) -> ServerProcessCollector:
    return ServerProcessCollector(config, context)
