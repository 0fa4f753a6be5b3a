"""The last lines of the server's log, for every failure: of a file, a journald unit or a container. Without keys."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from soakd.errors import ConfigError, Problem
from soakd.targets.redaction import redact_text

_MAX_BYTES = 256 * 1024
_MAX_LINE = 2000
_WITHIN_S = 10.0
_ROTATED = (".1", ".0", "-old")


@dataclass(frozen=True, slots=True)
class LogSource:
    """Where the log is: exactly one of the three, or none."""

    file: Path | None = None
    unit: str | None = None
    container: str | None = None

    def __post_init__(self) -> None:
        given = [n for n in ("file", "unit", "container") if getattr(self, n) is not None]
        if len(given) > 1:
            raise ConfigError([Problem("configuration", None, "target.log", f"{' and '.join(given)} are given", "one of them")])  # noqa: E501  # fmt: skip
        for name in ("unit", "container"):
            value = getattr(self, name)
            if value is not None and (not value or value.startswith("-")):
                raise ConfigError([Problem("configuration", None, f"target.log.{name}", f"found {value!r}", "a name")])


@dataclass(frozen=True, slots=True)
class LogTail:
    """``lines`` in order; ``problem`` says why there are none or fewer; ``source`` is where they are from."""

    source: str
    lines: tuple[str, ...]
    problem: str = ""


async def tail(source: LogSource, lines: int = 50, secrets: Sequence[str] = ()) -> LogTail:
    """The last ``lines`` lines, within 10 s and 256 KiB. Never raises: a log that can't be read is a `problem`."""
    if source.file is not None:
        return await asyncio.to_thread(_file_tail, source.file, lines, secrets)
    if source.unit is not None:
        command = ["journalctl", "-u", source.unit, "-n", str(lines), "--no-pager", "-o", "short-iso"]
        return await _command_tail(f"journald unit {source.unit}", command, lines, secrets)
    if source.container is not None:
        last: LogTail | None = None
        for runtime in ("docker", "podman"):
            command = [runtime, "logs", "--tail", str(lines), "--timestamps", source.container]
            last = await _command_tail(f"container {source.container}", command, lines, secrets)
            if not last.problem:
                break
        return last or LogTail("", ())
    return LogTail("", (), "no log is configured (target.log)")


def _file_tail(path: Path, lines: int, secrets: Sequence[str]) -> LogTail:
    """A log just rotated is short: then the end of its predecessor comes first."""
    name = f"file {path.name}"
    try:
        raw = _end_of(path)
    except OSError as error:
        return LogTail(name, (), error.strerror or str(error))
    found = _split(raw, lines, secrets)
    if len(found) < lines:
        for ending in _ROTATED:
            with contextlib.suppress(OSError):
                before = _split(_end_of(path.with_name(path.name + ending)), lines - len(found), secrets)
                return LogTail(name, (*before, *found))
    return LogTail(name, found, "" if found else "the file is empty")


def _end_of(path: Path) -> bytes:
    """The last 256 KiB of a regular file, without the line that this cuts."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO must not hold us up
    with os.fdopen(handle, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - _MAX_BYTES)
        file.seek(start)
        raw = file.read(_MAX_BYTES)
    return raw.partition(b"\n")[2] if start else raw


async def _command_tail(name: str, command: Sequence[str], lines: int, secrets: Sequence[str]) -> LogTail:
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
    except OSError as error:
        return LogTail(name, (), f"{command[0]}: {error.strerror or error}")
    try:
        async with asyncio.timeout(_WITHIN_S):
            raw = await _last_bytes(process)
            code = await process.wait()
    except TimeoutError:
        return LogTail(name, (), f"{command[0]} took over {_WITHIN_S:.0f} s")
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    found = _split(raw, lines, secrets)
    if code != 0:
        return LogTail(name, (), f"{command[0]} ended with code {code}: {' '.join(found[-2:])[:200]}")
    return LogTail(name, found, "" if found else "the log is empty")


async def _last_bytes(process: asyncio.subprocess.Process) -> bytes:
    kept = bytearray()
    while process.stdout is not None and (chunk := await process.stdout.read(65536)):
        kept += chunk
        if len(kept) > 2 * _MAX_BYTES:
            del kept[:-_MAX_BYTES]
    return bytes(kept[-_MAX_BYTES:])


def _split(raw: bytes, lines: int, secrets: Sequence[str]) -> tuple[str, ...]:
    text = raw.decode("utf-8", "replace").replace("\r\n", "\n").replace("\0", "")
    kept = [line.rpartition("\r")[2] for line in text.rstrip("\n").split("\n")] if text.strip() else []
    return tuple(redact_text(line, secrets)[:_MAX_LINE] for line in kept[-lines:])
