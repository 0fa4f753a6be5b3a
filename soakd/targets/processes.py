"""Finds the target's own process from the port it listens on, and says how it was picked.

A port may be held by a proxy (a container runtime's, a web server, a tunnel): then the server behind it is looked
for. When several processes fit, none is picked: watching the wrong one would be worse than watching none.
"""

from __future__ import annotations

import ipaddress
import itertools
import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from soakd.targets.redaction import redact_command

_LISTEN = "0A"
_MAX_PROCESSES = 65_536
_MAX_FDS = 65_536
_MAX_SHOWN = 5
_PROXIES = frozenset({
    "docker-proxy", "rootlesskit", "rootlessport", "slirp4netns", "pasta", "passt", "conmon", "containerd-shim",
    "nginx", "haproxy", "envoy", "traefik", "caddy", "httpd", "apache2", "ssh", "sshd", "socat", "kubectl",
    "kube-proxy", "litellm", "llama-swap", "systemd",
})  # fmt: skip
_SERVERS = (
    "llama-server", "vllm serve", "vllm.entrypoints", "VLLM::", "sglang.launch_server", "sglang serve", "sglang::",
    "lmdeploy serve", "text-generation-launcher", "tritonserver", "ktransformers", "llama_cpp.server",
    "soakd.demo.server",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running process; ``command`` is empty when it may not be read."""

    pid: int
    parent: int
    name: str
    command: tuple[str, ...]

    @property
    def line(self) -> str:
        text = " ".join(self.command) or self.name
        return text if len(text) <= 100 else text[:99] + "…"

    @property
    def is_proxy(self) -> bool:
        return self.name in _PROXIES or (bool(self.command) and Path(self.command[0]).name in _PROXIES)

    @property
    def is_server(self) -> bool:
        text = " ".join(self.command)
        return not self.is_proxy and any(word in text for word in _SERVERS)


@dataclass(frozen=True, slots=True)
class Picked:
    """The target's process, the top of its tree; ``pid`` is None when it was not found. ``how`` is for the user."""

    pid: int | None
    command: tuple[str, ...]
    how: str


def is_local(host: str) -> bool:
    """Whether an address of ``host`` belongs to this machine. Unknown names are not local."""
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return False
    own = {a.address.split("%")[0] for nics in psutil.net_if_addrs().values() for a in nics}
    return any(_is_loopback(str(a)) or str(a).split("%")[0] in own for a in found)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.split("%")[0]).is_loopback
    except ValueError:
        return False


def find_process(
    proc: Path, port: int, *, pid: int | None = None, command: str | None = None, model: str = ""
) -> Picked:
    """Look for the server's process under ``proc`` (``/proc``). Reads many small files: call it off the event loop.

    ``pid`` and ``command`` (a part of the command line) are the user's and win over the port.
    """
    if pid is not None:
        return _configured(proc, pid)
    running = {c.pid: c for c in _processes(proc)}
    if command is not None:
        fitting = [c for c in running.values() if command in " ".join(c.command) and c.pid != os.getpid()]
        return _one_of(_tops(fitting, running), f"its command line holds {command!r}", "set target.pid")
    inodes = listening_inodes(proc / "net", port)
    if not inodes:
        return _behind(running, proc, port, model, f"no process of this network namespace listens on port {port}")
    holders, hidden = _holders(proc, running.values(), inodes)
    if not holders:
        why = f"port {port} is held by a process whose files may not be read ({hidden} processes of other users)"
        return _behind(running, proc, port, model, why)
    if all(h.is_proxy for h in holders):
        proxy = holders[0]
        why = f"port {port} is held by {proxy.name} (pid {proxy.pid}), a proxy"
        return _behind(running, proc, _inner_port(proxy.command) or port, model, why)
    own = [h for h in holders if not h.is_proxy]
    return _one_of(_tops(own, running), f"it listens on port {port}", "set target.pid")


def listening_inodes(net: Path, port: int) -> frozenset[str]:
    """Socket inodes in LISTEN state on ``port``, from ``tcp`` and ``tcp6`` under ``net``. Missing files are empty."""
    found = set()
    for name in ("tcp", "tcp6"):
        try:
            lines = (net / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTEN and fields[1].rpartition(":")[2] == f"{port:04X}":
                found.add(fields[9])
    return frozenset(found)


def _processes(proc: Path) -> Iterable[Candidate]:
    try:
        entries = [e for e in os.listdir(proc) if e.isdigit()]
    except OSError:
        return
    for entry in entries[:_MAX_PROCESSES]:
        found = _read(proc, int(entry))
        if found is not None:
            yield found


def _read(proc: Path, pid: int) -> Candidate | None:
    try:
        stat = (proc / str(pid) / "stat").read_text(errors="replace")
        raw = (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return None
    name, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    if len(fields) < 2 or fields[0] in ("Z", "X"):
        return None
    command = tuple(p.decode("utf-8", "replace") for p in raw.rstrip(b"\0").split(b"\0")) if raw else ()
    return Candidate(pid, int(fields[1]), name, redact_command(command))


def _holders(proc: Path, running: Iterable[Candidate], inodes: frozenset[str]) -> tuple[list[Candidate], int]:
    """The processes that hold one of the sockets, and how many could not be looked into."""
    wanted = {f"socket:[{inode}]" for inode in inodes}
    holders, hidden = [], 0
    for candidate in running:
        folder = proc / str(candidate.pid) / "fd"
        try:
            names = os.listdir(folder)[:_MAX_FDS]
        except PermissionError:
            hidden += 1
            continue
        except OSError:
            continue
        if any(_link(folder / name) in wanted for name in names):
            holders.append(candidate)
    return holders, hidden


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _tops(found: Sequence[Candidate], running: dict[int, Candidate]) -> list[Candidate]:
    """Each process's topmost ancestor that is the same kind of server or also in ``found``, without repeats."""
    pids = {c.pid for c in found}
    tops: dict[int, Candidate] = {}
    for start in found:
        top, here = start, running.get(start.parent)
        for _ in range(32):
            if here is None or here.pid <= 1:
                break
            if here.pid in pids or (here.is_server and not _is_wrapper(here)):
                top = here
            here = running.get(here.parent)
        tops[top.pid] = top
    return list(tops.values())


def _is_wrapper(candidate: Candidate) -> bool:
    """A shell or supervisor whose arguments hold the server's command line is not the server."""
    first = Path(candidate.command[0]).name if candidate.command else candidate.name
    return first in {"sh", "bash", "dash", "zsh", "tini", "dumb-init", "docker-init", "timeout", "sudo", "nohup", "env",
                     "screen", "tmux", "numactl", "taskset", "nsys", "docker", "podman", "watch", "make"}  # fmt: skip


def _behind(running: dict[int, Candidate], proc: Path, port: int, model: str, why: str) -> Picked:
    """The server behind a proxy or in another network namespace, if exactly one fits best."""
    servers = _tops([c for c in running.values() if c.is_server and not _is_wrapper(c)], running)
    inside = [s for s in servers if _listens_itself(proc, s, port)]
    if inside:
        return _one_of(inside, f"{why}; it listens on port {port} in its own network namespace", "set target.pid")
    serving = [s for s in servers if model and any(model in part for part in s.command)]
    if serving:
        return _one_of(serving, f"{why}; its command line names the model {model!r}", "set target.pid")
    if not servers:
        return Picked(None, (), f"no process picked: {why}, and no LLM server was recognised; set target.pid")
    return _one_of(servers, f"{why}; it is the only LLM server running here", "set target.pid")


def _listens_itself(proc: Path, server: Candidate, port: int) -> bool:
    inodes = listening_inodes(proc / str(server.pid) / "net", port)
    return bool(inodes) and bool(_holders(proc, [server], inodes)[0])


def _inner_port(command: Sequence[str]) -> int | None:
    """docker-proxy says where it forwards to: ``-container-port 8000``."""
    for flag, value in itertools.pairwise(command):
        if flag.lstrip("-") == "container-port" and value.isdigit():
            return int(value)
    return None


def _one_of(found: Sequence[Candidate], why: str, hint: str) -> Picked:
    if len(found) == 1:
        return Picked(found[0].pid, found[0].command, f"pid {found[0].pid} ({found[0].line}): {why}")
    if not found:
        return Picked(None, (), f"no process picked: none of which {why}; {hint}")
    shown = ", ".join(f"pid {c.pid} ({c.line})" for c in sorted(found, key=lambda c: c.pid)[:_MAX_SHOWN])
    return Picked(None, (), f"no process picked: {len(found)} fit ({shown}); {hint}")


def _configured(proc: Path, pid: int) -> Picked:
    found = _read(proc, pid)
    if found is None:
        return Picked(None, (), f"no process picked: the configured pid {pid} does not run")
    return Picked(pid, found.command, f"pid {pid} ({found.line}): configured as target.pid")
