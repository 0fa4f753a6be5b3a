"""The simulated target's process: ``python -m soakd.rehearsal.target_worker``.

Prints ``{"loaded": true}`` when it is ready to be told, reads one JSON line from stdin (``{"stage", "options", "port",
"parent"}``), prints ``{"port", "pid"}`` when it listens, and ends when stdin closes or its parent dies.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from typing import Any

import uvloop
from aiohttp import web

from soakd.demo.lifeline import die_with_parent
from soakd.rehearsal.activity import ActivityLog, Change
from soakd.rehearsal.stage import Stage
from soakd.rehearsal.target import SimulatedTarget, TargetOptions

_IDLE_AFTER_S = 1.0
"""Real seconds without a request after which the card counts as idle: pauses between requests are no phases."""


class BusyNote:
    """Writes to the activity log when the target goes to work and when it has been idle for a while."""

    def __init__(self, stage: Stage, log: ActivityLog) -> None:
        self._stage = stage
        self._log = log
        self._busy = False
        self._going_idle: asyncio.TimerHandle | None = None

    def started(self) -> None:
        self._note(False)

    def changed(self, busy: bool) -> None:
        if self._going_idle is not None:
            self._going_idle.cancel()
            self._going_idle = None
        if busy and not self._busy:
            self._note(True)
        elif not busy and self._busy:
            self._going_idle = asyncio.get_running_loop().call_later(_IDLE_AFTER_S, self._note, False)

    def _note(self, busy: bool) -> None:
        self._busy = busy
        self._log.append(Change(self._stage.now_s(), os.getpid(), busy))


async def serve(stage: Stage, options: TargetOptions, port: int, lifeline: int, answers: Any) -> int:
    """Serve until the file descriptor ``lifeline`` reaches its end or SIGTERM comes. Exit code 2: the port is taken."""
    note = BusyNote(stage, ActivityLog(stage.activity_path))
    target = SimulatedTarget(stage, options, note.changed)
    # a request whose client has gone is aborted at once, as vLLM does it
    runner = web.AppRunner(target.application(), access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, backlog=1024, reuse_address=True)
    try:
        await site.start()
    except OSError as error:
        print(json.dumps({"error": f"the simulated target can't listen: {error.strerror}"}), file=answers, flush=True)
        return 2
    note.started()
    gc.freeze()
    listening = runner.addresses[0][1]
    print(json.dumps({"port": listening, "pid": os.getpid()}), file=answers, flush=True)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, ended.set)

    def parent_wrote() -> None:
        if not os.read(lifeline, 4096):
            ended.set()

    loop.add_reader(lifeline, parent_wrote)
    await ended.wait()
    return 0


def main() -> int:
    answers = sys.stdout
    print(json.dumps({"loaded": True}), file=answers, flush=True)
    told = json.loads(_line(0))
    die_with_parent(told["parent"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stage = Stage(**told["stage"])
    return uvloop.run(serve(stage, TargetOptions(**told["options"]), told["port"], 0, answers))


def _line(handle: int) -> bytes:
    """One line from a descriptor, unbuffered: the loop goes on to watch the same descriptor."""
    line = bytearray()
    while not line.endswith(b"\n"):
        got = os.read(handle, 1)
        if not got:
            os._exit(0)
        line += got
    return bytes(line)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
