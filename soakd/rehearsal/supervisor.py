"""Runs the simulated target's process: starts it, kills it when the scenario says so, brings it back on its port."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from dataclasses import asdict
from pathlib import Path

import orjson

from soakd.errors import SoakdError, WorkerError
from soakd.rehearsal.activity import ActivityLog, Change
from soakd.rehearsal.scenarios import Crash
from soakd.rehearsal.stage import Stage
from soakd.rehearsal.target import TargetOptions

_ANSWER_WITHIN_S = 30.0
_STOP_WITHIN_S = 2.0


class TargetProcess:
    """One life of the simulated target after another, on one port. ``log_path`` takes its stderr."""

    def __init__(self, log_path: Path, options: TargetOptions, port: int = 0) -> None:
        self.log_path = log_path
        self.port = port
        self._options = options
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The process that serves, None while none does."""
        return None if self._process is None or self._process.returncode is not None else self._process.pid

    async def load(self) -> None:
        """Start a process and wait until it has everything loaded and waits to be told its stage."""
        with self.log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "soakd.rehearsal.target_worker"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        await self._answer()

    async def serve(self, stage: Stage) -> None:
        """Tell it the stage and wait until it listens. Raises SoakdError when the port is taken."""
        process = self._process
        if process is None or process.stdin is None:
            raise WorkerError("the simulated target was not loaded")
        told = {"stage": asdict(stage), "options": asdict(self._options), "port": self.port, "parent": os.getpid()}
        process.stdin.write(orjson.dumps(told) + b"\n")
        answer = await self._answer()
        if "error" in answer:
            raise SoakdError(str(answer["error"]), hint=f"port {self.port}")
        self.port = int(str(answer["port"]))

    async def wait(self) -> None:
        """Until the process is gone."""
        if self._process is not None:
            await self._process.wait()

    async def kill(self) -> None:
        """SIGKILL: as a crash would be."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def stop(self) -> None:
        """Close its stdin; kill it when it takes longer than 2 s."""
        if self._process is None or self._process.returncode is not None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _STOP_WITHIN_S)
        except TimeoutError:
            await self.kill()

    async def _answer(self) -> dict[str, object]:
        if self._process is None or self._process.stdout is None:
            raise WorkerError("the simulated target has no stdout")
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), _ANSWER_WITHIN_S)
        except TimeoutError:
            line = b""
        if not line:
            await self.kill()
            raise WorkerError("the simulated target did not start", hint=f"see {self.log_path}")
        answer = orjson.loads(line)
        if not isinstance(answer, dict):
            raise WorkerError("the simulated target broke its protocol", hint=f"see {self.log_path}")
        return answer


async def supervise(stage: Stage, target: TargetProcess) -> None:
    """Run until cancelled: kill the target at its hour, and bring it back whenever it has died."""
    crash = stage.scenario.fault if isinstance(stage.scenario.fault, Crash) else None
    killing = asyncio.create_task(_kill_at(stage, target, crash.at_fraction * stage.duration_s)) if crash else None
    log = ActivityLog(stage.activity_path)
    down_s = (crash or Crash()).down_s(stage.duration_s, stage.speed)
    try:
        while True:
            await target.wait()
            log.append(Change(stage.now_s(), None, False))
            back_at_s = stage.now_s() + down_s
            with contextlib.suppress(SoakdError):  # the soak sees an outage that lasts; the next round tries again
                await target.load()
            await stage.clock.sleep(max(back_at_s - stage.now_s(), 0.0))
            with contextlib.suppress(SoakdError):
                await target.serve(stage)
    finally:
        if killing is not None:
            killing.cancel()


async def _kill_at(stage: Stage, target: TargetProcess, at_s: float) -> None:
    await stage.clock.sleep(max(at_s - stage.now_s(), 0.0))
    await target.kill()
