"""Reads the facts of the server under test: its process, its systemd unit, its model folder and its answers."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from soakd.errors import TargetError
from soakd.kernel_clock import run_command
from soakd.model import TargetInfo
from soakd.ports import Clock, Roots
from soakd.preflight.checks_server import flag_value
from soakd.preflight.facts import Fact, ServerFacts
from soakd.procfs import command_line, memory_cgroup, parse_open_files_limit, read_text
from soakd.targets.access import Access, ask
from soakd.targets.discovery import check_generation

_COMMAND_SECONDS = 5.0
_NO_PROCESS = "the server's process is not known; set target.pid"
_UNIT = re.compile(r"/([^/]+\.service)(?:/|$)")
_TORCH = re.compile(r"(/\S*/torch)/lib/libtorch\S*\.so")
_NO_LIMIT_V1 = 2**62
_MAX_INDEX_FILES = 4096


async def read_answers(access: Access, target: TargetInfo, clock: Clock) -> tuple[Fact, Fact, Fact]:
    """Status of /health, whether one short generation works, and the version that /version tells."""
    try:
        async with access.session() as session:
            answer = await ask(session, access, "/health", timeout_s=10.0)
            told = await ask(session, access, "/version", timeout_s=10.0)
    except TargetError as error:
        fact = Fact(None, "GET /health", str(error))
        return fact, Fact(None, "one generation", str(error)), Fact(None, "GET /version", str(error))
    health = Fact(answer.status, "GET /health")
    number = told.fields().get("version") if told.status == 200 else None
    version = number if isinstance(number, str) else target.server or None
    try:
        await check_generation(access, target, clock)
    except TargetError as error:
        return health, Fact(False, f"one generation: {error}"), _version(version)
    return health, Fact(True, "one generation"), _version(version)


def _version(text: str | None) -> Fact:
    return Fact(text, "GET /version", "" if text else "this server does not tell its version")


async def read_unit(roots: Roots, pid: int | None) -> tuple[Fact, Fact]:
    """Whether the server's systemd unit is enabled, and the errors in its log since it started."""
    name = _unit_of(roots.proc, pid)
    if name is None:
        why = _NO_PROCESS if pid is None else "the server does not run as a systemd unit"
        return Fact(None, "systemctl", why), Fact(None, "journalctl", why)
    enabled = await run_command(("systemctl", "show", "--property=UnitFileState", "--value", name), _COMMAND_SECONDS)
    started = await run_command(
        ("systemctl", "show", "--property=ActiveEnterTimestamp", "--value", name), _COMMAND_SECONDS
    )
    state = (enabled or "").strip()
    unit = Fact(state == "enabled", f"systemctl {name}") if state else Fact(None, "systemctl", "it does not answer")
    if not (started or "").strip():
        return unit, Fact(None, "journalctl", "systemctl does not tell since when the unit runs")
    arguments = ("journalctl", "--unit", name, "--priority", "err", "--since", str(started).strip(), "--lines", "1000",
                 "--output", "cat", "--quiet")  # fmt: skip
    log = await run_command(arguments, _COMMAND_SECONDS)
    if log is None:
        return unit, Fact(None, "journalctl", "not readable; add soakd's user to the group systemd-journal")
    return unit, Fact(len(log.splitlines()), f"journalctl --unit {name} --priority err")


def _unit_of(proc: Path, pid: int | None) -> str | None:
    try:
        found = _UNIT.search(read_text(proc / str(pid) / "cgroup")) if pid is not None else None
    except OSError:
        return None
    return found[1] if found else None


def read_server(
    roots: Roots, target: TargetInfo | None, answers: tuple[Fact, Fact, Fact], unit: tuple[Fact, Fact]
) -> ServerFacts:
    """The rest, from /proc/PID and the model folder; blocking."""
    pid = target.pid if target and target.local else None
    proc, command = roots.proc, command_line(roots.proc, pid) if pid is not None else ()
    environment = _environment(proc, pid)
    torch, cuda = _torch_versions(proc, pid)
    missing, positions = _model(command, roots.proc, pid)
    return ServerFacts(
        there=target is not None,
        local=target is not None and target.local,
        open_files_limit=_open_files(proc, pid),
        unit_enabled=unit[0],
        memory_limit=_memory_limit(roots, pid),
        health=answers[0],
        generation=answers[1],
        log_errors=unit[1],
        command=Fact(command or None, f"/proc/{pid}/cmdline", "" if command else _NO_PROCESS),
        visible_devices=_variable(environment, "CUDA_VISIBLE_DEVICES"),
        device_order=_variable(environment, "CUDA_DEVICE_ORDER"),
        version=answers[2],
        torch=torch,
        cuda=cuda,
        model_missing_files=missing,
        max_position_embeddings=positions,
    )


def _open_files(proc: Path, pid: int | None) -> Fact:
    source = f"/proc/{pid}/limits"
    if pid is None:
        return Fact(None, source, _NO_PROCESS)
    try:
        limit = parse_open_files_limit(read_text(proc / str(pid) / "limits"))
    except OSError as error:
        return Fact(None, source, error.strerror or "not readable")
    return Fact(limit if limit is not None else 2**63, source)


def _memory_limit(roots: Roots, pid: int | None) -> Fact:
    """Bytes, or the text ``none`` where the control group has no limit of its own."""
    if pid is None:
        return Fact(None, "cgroup", _NO_PROCESS)
    group = memory_cgroup(roots.proc, roots.sys / "fs/cgroup", pid)
    if group is None:
        return Fact(None, "cgroup", "the server's control group is not known")
    path = group[0] / ("memory.max" if group[1] == 2 else "memory.limit_in_bytes")
    try:
        text = read_text(path).strip()
    except OSError as error:
        return Fact(None, str(path), error.strerror or "not readable")
    return Fact(int(text) if text.isdigit() and int(text) < _NO_LIMIT_V1 else "none", str(path))


def _environment(proc: Path, pid: int | None) -> Fact:
    """``NAME=value`` of the two CUDA variables only: an environment holds secrets."""
    source = f"/proc/{pid}/environ"
    if pid is None:
        return Fact(None, source, _NO_PROCESS)
    try:
        raw = read_text(proc / str(pid) / "environ")
    except OSError as error:
        return Fact(None, source, f"{error.strerror}; grant just that with AmbientCapabilities=CAP_SYS_PTRACE")
    return Fact(tuple(pair for pair in raw.split("\0") if pair.startswith("CUDA_")), source)


def _variable(environment: Fact, name: str) -> Fact:
    if not isinstance(environment.value, tuple):
        return environment
    found = [pair.partition("=")[2] for pair in environment.value if pair.startswith(f"{name}=")]
    return Fact(found[-1] if found else "", f"{environment.source} {name}")


def _torch_versions(proc: Path, pid: int | None) -> tuple[Fact, Fact]:
    """Of the torch that the server has loaded: its version.py lies next to the library that is mapped."""
    source = f"/proc/{pid}/maps"
    if pid is None:
        return Fact(None, source, _NO_PROCESS), Fact(None, source, _NO_PROCESS)
    try:
        mapped = _TORCH.search(read_text(proc / str(pid) / "maps"))
        text = read_text(proc / str(pid) / f"root{mapped[1]}/version.py") if mapped else ""
    except OSError as error:
        why = f"{error.strerror}; grant just that with AmbientCapabilities=CAP_SYS_PTRACE"
        return Fact(None, source, why), Fact(None, source, why)
    if not mapped:
        why = "the server has no torch loaded"
        return Fact(None, source, why), Fact(None, source, why)
    version = re.search(r"__version__\s*=\s*'([^']+)'", text)
    cuda = re.search(r"cuda[^=]*=\s*'([^']+)'", text)
    where = f"{mapped[1]}/version.py"
    return (
        Fact(version[1] if version else None, where, "" if version else "no version in it"),
        Fact(cuda[1] if cuda else None, where, "" if cuda else "a build without CUDA"),
    )


def _model(command: Sequence[str], proc: Path, pid: int | None) -> tuple[Fact, Fact]:
    if any(argument.endswith(".gguf") for argument in command):
        return Fact((), "a GGUF model is one file"), Fact(None, "command line", "GGUF holds it inside; not read")
    folder = _model_folder(command, proc, pid)
    if folder is None:
        fact = Fact(None, "command line", "the server's model is not a folder with config.json on this machine")
        return fact, fact
    config = _json(folder / "config.json")
    positions = config.get("max_position_embeddings")
    text = config.get("text_config")
    if positions is None and isinstance(text, dict):
        positions = text.get("max_position_embeddings")
    source = str(folder / "config.json")
    found = Fact(positions, source) if isinstance(positions, int) else Fact(None, source, "it does not tell")
    return _missing(folder), found


def _model_folder(command: Sequence[str], proc: Path, pid: int | None) -> Path | None:
    named = [flag_value(command, flag) for flag in ("--model", "--model-path", "-m")]
    for text in [*(n for n in named if n), *command[1:]]:
        path = Path(text)
        if path.is_absolute():  # as the server sees it: it may live in a container
            path = proc / str(pid) / f"root{text}"
        if not text.startswith("-") and (path / "config.json").is_file():
            return path
    return None


def _missing(folder: Path) -> Fact:
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        whole = any((folder / name).is_file() for name in ("model.safetensors", "pytorch_model.bin"))
        return Fact(() if whole else ("model.safetensors",), str(folder))
    weights = _json(index).get("weight_map")
    if not isinstance(weights, dict):
        return Fact(None, str(index), "it has no weight_map")
    wanted = sorted({str(name) for name in weights.values()})[:_MAX_INDEX_FILES]
    gone = tuple(name for name in wanted if not (folder / name).is_file() or not (folder / name).stat().st_size)
    return Fact(gone, str(index))


def _json(path: Path) -> dict[str, object]:
    try:
        data = json.loads(read_text(path, 64 * 2**20))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
