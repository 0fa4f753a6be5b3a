"""Start, kill and restart the demo server as a child process.

``async with DemoServer.start(directory) as server`` gives ``server.url`` and ``server.pid``; the child ends with the
block, with this process, and on ``kill()``. ``restart()`` comes back on the same port.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from soakd.demo.server import INSTALL_HINT, MODEL_NAME
from soakd.errors import SoakdError

_START_WITHIN_S = 60.0
_STOP_WITHIN_S = 5.0
_LOG_NAME = "demo-server.log"
_LOG_TAIL = 600


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """``context`` is in tokens per slot, ``port`` 0 takes a free one. ``verbosity`` 3 logs each request."""

    directory: Path
    slots: int = 4
    context: int = 4096
    port: int = 0
    cache_ram_mib: int = 0
    verbosity: int = 1


class DemoServer:
    """A running llama.cpp server with a generated Qwen3; greedy answers are the same every time."""

    model = MODEL_NAME

    def __init__(self, options: DemoOptions) -> None:
        self._options = options
        self._process: asyncio.subprocess.Process | None = None
        self._port = options.port

    @classmethod
    @contextlib.asynccontextmanager
    async def start(
        cls,
        directory: Path,
        *,
        slots: int = 4,
        context: int = 4096,
        port: int = 0,
        cache_ram_mib: int = 0,
        verbosity: int = 1,
    ) -> AsyncIterator[DemoServer]:
        """Start it and wait until it answers; the model is made in ``directory`` once, the log lies there too.

        Raises SoakdError when the extra ``demo`` is not installed, the port is taken, or it does not come up.
        """
        server = cls(DemoOptions(directory, slots, context, port, cache_ram_mib, verbosity))
        try:
            await server.restart()
            yield server
        finally:
            await server.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        return self._port

    @property
    def pid(self) -> int:
        """The process that serves. Raises SoakdError while none runs."""
        if self._process is None or self._process.returncode is not None:
            raise SoakdError("the demo server is not running")
        return self._process.pid

    @property
    def log_path(self) -> Path:
        return self._options.directory / _LOG_NAME

    async def restart(self) -> None:
        """Start, or start again on the same port after ``kill()`` or a crash. Raises SoakdError."""
        await self.stop()
        _check_installed()
        self._options.directory.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command(), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log
            )
        try:
            self._port = await asyncio.wait_for(self._ready(self._process), _START_WITHIN_S)
        except TimeoutError:
            await self.kill()
            raise SoakdError(f"the demo server did not come up in {_START_WITHIN_S:.0f} s", hint=self._tail()) from None

    async def ended(self) -> None:
        """Until the process is gone, whoever ended it."""
        if self._process is not None:
            await self._process.wait()

    async def kill(self) -> None:
        """SIGKILL, as a crash would be; returns when the process is gone."""
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def stop(self) -> None:
        """Close its stdin, and kill it when it takes longer than 5 s."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _STOP_WITHIN_S)
        except TimeoutError:
            await self.kill()

    def _command(self) -> list[str]:
        options = self._options
        return [
            *(sys.executable, "-m", "soakd.demo.server"),
            *("--cache", str(options.directory), "--port", str(self._port)),
            *("--slots", str(options.slots), "--context", str(options.context)),
            *("--cache-ram-mib", str(options.cache_ram_mib), "--verbosity", str(options.verbosity)),
            *("--parent", str(os.getpid())),
        ]

    async def _ready(self, process: asyncio.subprocess.Process) -> int:
        if process.stdout is None:
            raise SoakdError("the demo server has no stdout")
        line = await process.stdout.readline()
        if not line:
            code = await process.wait()
            raise SoakdError(f"the demo server ended with code {code} before it answered", hint=self._tail())
        answer = orjson.loads(line)
        if "error" in answer:
            await process.wait()
            raise SoakdError(answer["error"], hint=answer["hint"])
        return int(answer["port"])

    def _tail(self) -> str:
        try:
            text = self.log_path.read_text(errors="replace")[-_LOG_TAIL:].strip()
        except OSError:
            text = ""
        return f"last of {self.log_path}: {text or 'nothing'}"


def _check_installed() -> None:
    missing = [name for name in ("xllamacpp", "gguf") if importlib.util.find_spec(name) is None]
    if missing:
        raise SoakdError(f"the demo server needs {' and '.join(missing)}, which is not installed", hint=INSTALL_HINT)
