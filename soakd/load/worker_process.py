"""One load worker as its owner sees it: a child process, its frames, its last words."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Sequence

from pydantic import ValidationError

from soakd.errors import WorkerError
from soakd.load.reports import Order, Report, decode_report, encode_order, frame, read_frame

COMMAND = (sys.executable, "-m", "soakd.load.worker")
_LAST_LINES = 20
_READ_LIMIT = 1 << 20
_LINE_LIMIT = 4000


class WorkerProcess:
    """Started by `start`; `kill` is safe at any time. Its stderr is kept to the last few lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._errors = asyncio.create_task(self._read_errors())

    @classmethod
    async def start(cls, command: Sequence[str], job: bytes) -> WorkerProcess:
        """Raises WorkerError."""
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, stderr=pipe, limit=_READ_LIMIT, start_new_session=True
            )
        except OSError as error:
            raise WorkerError(f"the load worker could not be started: {error}") from None
        worker = cls(process)
        worker._write(frame(job))
        return worker

    @property
    def pid(self) -> int:
        return self._process.pid

    def order(self, order: Order) -> None:
        self._write(encode_order(order))

    async def report(self) -> Report | None:
        """The next report; None once the process has closed its side. Raises WorkerError for what is no report."""
        if self._process.stdout is None:
            return None
        raw = await read_frame(self._process.stdout)
        if raw is None:
            return None
        try:
            return decode_report(raw)
        except ValidationError as error:
            raise WorkerError(f"the load worker sent no report: {error.error_count()} faults") from None

    async def how_it_ended(self) -> str:
        """Waits for the process, killing it if it lingers, and says how it ended with its last line."""
        try:
            async with asyncio.timeout(2.0):
                code = await self._process.wait()
        except TimeoutError:
            self.kill()
            code = await self._process.wait()
        await asyncio.wait([self._errors], timeout=0.5)
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"{how}: {self._lines[-1]}" if self._lines else how

    def kill(self) -> None:
        if self._process.returncode is None:
            try:
                self._process.kill()
            except ProcessLookupError:
                return

    async def close(self) -> None:
        """Close its stdin, which ends it, and make sure."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self.how_it_ended()
        self._errors.cancel()

    def _write(self, data: bytes) -> None:
        stdin = self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(data)

    async def _read_errors(self) -> None:
        stream = self._process.stderr
        if stream is None:
            return
        while line := await _line(stream):
            self._lines.append(line[:_LINE_LIMIT].decode(errors="replace").rstrip())


async def _line(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readline()
    except ValueError:
        # a line above the limit is thrown away rather than held
        return b"(a line too long to show)"
