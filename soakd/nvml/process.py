"""One worker process, seen from the daemon: requests with deadlines, unasked messages, and an end that never blocks."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from soakd.errors import WorkerError

_MAX_LINE = 4 * 2**20
_STDERR_LINES = 5
_GRACE_S = 1.0


class WorkerProcess:
    """A running worker. Messages without an id go to ``on_message``; ``on_end`` is called once when it has ended."""

    def __init__(self, process: asyncio.subprocess.Process, on_message: Callable[[Mapping[str, Any]], None]) -> None:
        self._process = process
        self._on_message = on_message
        self._waiting: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._number = 0
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._reader = asyncio.create_task(self._read())
        self._errors = asyncio.create_task(self._read_errors())
        self._ended = False

    @classmethod
    async def start(cls, command: Sequence[str], on_message: Callable[[Mapping[str, Any]], None]) -> WorkerProcess:
        """Start it in a session of its own, so that a Ctrl-C at the terminal does not reach it. Raises WorkerError."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                limit=_MAX_LINE, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise WorkerError(f"can't start the NVML worker {command[0]}: {error.strerror}") from None
        return cls(process, on_message)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """False once the kernel has reaped it; a process stuck in the driver stays alive after its kill."""
        return self._process.returncode is None

    @property
    def usable(self) -> bool:
        return self.alive and not self._ended

    def last_words(self) -> str:
        """Exit code and the last lines of stderr."""
        code = self._process.returncode
        words = " / ".join(self._stderr)
        return f"exit code {code}" + (f": {words}" if words else "")

    async def request(self, verb: str, deadline_s: float) -> Mapping[str, Any]:
        """The reply to one request. Raises TimeoutError past the deadline, WorkerError when the worker has ended."""
        if not self.usable or self._process.stdin is None:
            raise WorkerError(f"the NVML worker has ended, {self.last_words()}")
        self._number += 1
        number = self._number
        future: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            self._process.stdin.write(json.dumps({"id": number, "do": verb}).encode() + b"\n")
            async with asyncio.timeout(deadline_s):
                return await future
        finally:
            self._waiting.pop(number, None)

    async def where(self) -> str:
        """The NVML call in progress, or empty where even that is not answered."""
        try:
            reply = await self.request("where", 0.25)
        except (TimeoutError, WorkerError):
            return ""
        return str(reply.get("where", ""))

    def abandon(self) -> None:
        """Close its stdin and kill it, without waiting: one that is stuck in the driver dies when the call returns."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._kill()

    async def close(self) -> None:
        """End it: stdin closes, and after a second it is killed. Waits two seconds at most."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if not await self._ends_within(_GRACE_S):
            self._kill()
            await self._ends_within(_GRACE_S)
        # the pipes end with the process; only those of one that can't be killed have to be given up
        _, pending = await asyncio.wait((self._reader, self._errors), timeout=_GRACE_S)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    async def _ends_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._process.wait()
        except TimeoutError:
            return False
        return True

    def _kill(self) -> None:
        if self.alive:
            try:
                self._process.kill()
            except ProcessLookupError:
                return

    async def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            while line := await self._process.stdout.readline():
                self._take(line)
            self._ended = True
            await self._ends_within(_GRACE_S)  # so that its exit code can be told
        except ValueError:  # a line longer than the limit: the protocol is broken for good
            self._kill()
        finally:
            self._ended = True
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(WorkerError(f"the NVML worker ended, {self.last_words()}"))
            self._on_message({"ended": True})

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            return
        if not isinstance(message, dict):
            return
        number = message.get("id")
        if number is None:
            self._on_message(message)
        elif (future := self._waiting.get(number)) is not None and not future.done():
            future.set_result(message)

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        try:
            while line := await self._process.stderr.readline():
                self._stderr.append(line.decode(errors="replace").strip()[:300])
        except ValueError:
            return
