"""`soakd daemon` as a real process on loopback, with what it tells systemd, and clients of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.support.gpus import FIXTURES

_MAIN = "from soakd.cli import main; main()"


def replayed(*recordings: str, copies: int = 1) -> dict[str, str]:
    """The environment in which soakd believes to see these recorded cards."""
    paths = " ".join(str(FIXTURES / name) for name in recordings)
    return {"SOAKD_NVML_COMMAND": f"{sys.executable} -m soakd.nvml.replay --copies {copies} {paths}"}


async def soakd(*arguments: str, environment: Mapping[str, str] | None = None) -> Process:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SOAKD_", "NOTIFY_", "WATCHDOG_"))}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", _MAIN, *arguments,
        stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env={**clean, **(environment or {})},
    )  # fmt: skip


async def outcome(process: Process, within_s: float = 120.0) -> tuple[int, bytes, str]:
    async with asyncio.timeout(within_s):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out, err.decode()


class NotifySocket(asyncio.DatagramProtocol):
    """systemd's end of the notify protocol: everything that was told, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.told: list[str] = []
        self._changed = asyncio.Event()

    def datagram_received(self, data: bytes, addr: object) -> None:
        self.told.append(data.decode())
        self._changed.set()

    async def until(self, start: str, within_s: float = 60.0) -> str:
        """The next message that begins so, from the first one not waited for on."""
        async with asyncio.timeout(within_s):
            while True:
                while self.told:
                    if (found := self.told.pop(0)).startswith(start):
                        return found
                self._changed.clear()
                await self._changed.wait()

    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path) -> AsyncIterator[NotifySocket]:
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        bound.bind(str(path))
        bound.setblocking(False)
        loop = asyncio.get_running_loop()
        transport, notify = await loop.create_datagram_endpoint(lambda: cls(path), sock=bound)
        try:
            yield notify
        finally:
            transport.close()


@dataclass
class Daemon:
    """A running one. ``log`` is what it has said on stderr, a JSON object a line."""

    process: Process
    directory: Path
    config: Path
    url: str = ""
    log: list[dict[str, Any]] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    _said: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {(self.directory / 'token').read_text().strip()}"}

    async def get(self, path: str) -> tuple[int, Any]:
        async with aiohttp.ClientSession() as client, client.get(self.url + path) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if answer.content_type == "application/json" else text

    async def post(self, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> tuple[int, Any]:
        own = self.headers if headers is None else headers
        async with aiohttp.ClientSession() as client, client.post(self.url + path, json=body, headers=own) as answer:
            return answer.status, await answer.json()

    async def until_said(self, event: str, within_s: float = 60.0) -> dict[str, Any]:
        """The first line of the log with this event."""
        async with asyncio.timeout(within_s):
            while True:
                for line in self.log:
                    if line.get("event") == event:
                        return line
                self._said.clear()
                await self._said.wait()

    async def listen(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self.raw.append(line.decode(errors="replace"))
            with suppress(ValueError):
                self.log.append(json.loads(line))
            self._said.set()

    def kill(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self, within_s: float) -> int:
        async with asyncio.timeout(within_s):
            return await self.process.wait()


def _data_dir(config: Path) -> Path:
    return Path(yaml.safe_load(config.read_text())["data_dir"])


def configured(directory: Path, **sections: object) -> Path:
    """A configuration whose data are below ``directory`` and whose port is any free one."""
    path = directory / "soakd.yaml"
    base: dict[str, object] = {"data_dir": str(directory / "data"), "web": {"listen": "127.0.0.1:0"}}
    path.write_text(yaml.safe_dump({**base, **sections}))
    return path


@asynccontextmanager
async def daemon(config: Path, environment: Mapping[str, str] | None = None) -> AsyncIterator[Daemon]:
    """Started, and ready when the block begins; killed at its end if it still runs."""
    directory = _data_dir(config)
    process = await soakd("daemon", "-c", str(config), environment=environment)
    running = Daemon(process, directory, config)
    listening = asyncio.create_task(running.listen())
    try:
        ready = asyncio.create_task(running.until_said("soakd watches"))
        await asyncio.wait((ready, listening), return_when=asyncio.FIRST_COMPLETED)
        assert ready.done(), "".join(running.raw)
        running.url = ready.result()["web"]
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await listening
