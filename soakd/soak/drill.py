"""Recovery drills: the operator's own commands, run at set times in mid-soak, so that recovery is measured."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from soakd.analysis.drills import ENDED, STARTED
from soakd.config import Loaded
from soakd.drill_config import DrillConfig
from soakd.model import Event, Severity, labels
from soakd.ports import Clock, Item
from soakd.soak.plan import Phases
from soakd.targets.redaction import redact_command, redact_text

_KEPT_BYTES = 4096
_READ_BYTES = 65_536
_LAST_WORDS_S = 0.2
_GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Drill:
    """``due_s`` is clock time since the run's first stage began; ``number`` counts from 1 in order of time."""

    number: int
    due_s: float
    command: tuple[str, ...]
    timeout_s: float
    planned: bool

    @property
    def shown(self) -> str:
        """The command without its secrets, for people."""
        return " ".join(redact_command(self.command))


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended. ``code`` is None when it never ran or was ended by soakd, and ``problem`` says why;
    ``output`` is the last of what it said."""

    code: int | None
    output: str
    problem: str = ""


def planned_drills(loaded: Loaded, planned: Phases) -> tuple[Drill, ...]:
    """In order of time. Raises ConfigError for a drill beyond the measured part or a program that is not there."""
    found: list[tuple[float, DrillConfig]] = []
    for i, drill in enumerate(loaded.config.drill):
        if drill.at >= planned.measured_s:
            raise loaded.source.error(
                ("drill", i, "at"),
                f"{drill.at:g} s is beyond the measured part of {planned.measured_s:g} s",
                "begin the drill earlier or make the run longer",
            )
        if shutil.which(drill.command[0]) is None:
            raise loaded.source.error(
                ("drill", i, "command"),
                f"there is no program {drill.command[0]!r} to run",
                "give a program and its arguments as a list; for a shell script: [sh, -c, ...]",
            )
        found.append((planned.measured_from_s + drill.at, drill))
    return tuple(
        Drill(number, due_s, drill.command, drill.timeout, drill.planned)
        for number, (due_s, drill) in enumerate(sorted(found, key=lambda pair: pair[0]), 1)
    )


class Drills:
    """Runs one after the other; one that takes longer than the next one's time delays it. Never raises for a command.

    In a rehearsal nothing is run: the commands act on real machines.
    """

    def __init__(
        self, drills: Sequence[Drill], clock: Clock, emit: Callable[[Sequence[Item]], None], *, simulated: bool = False,
        secrets: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._drills = drills
        self._clock = clock
        self._emit = emit
        self._simulated = simulated
        self._secrets = tuple(secrets)
        self._outlets: list[Outlet] = []

    async def run(self, origin_ns: int) -> None:
        """``origin_ns`` is when the first stage began, on the clock's monotonic time. Cancelling it ends a command
        that still runs."""
        try:
            for drill in self._drills:
                await self._clock.sleep(max(0.0, (origin_ns - self._clock.monotonic_ns()) / 1e9 + drill.due_s))
                await self._one(drill)
            # what a command left running in the background may go on talking until the run ends
            await asyncio.Event().wait()
        finally:
            for outlet in self._outlets:
                outlet.close()

    async def _one(self, drill: Drill) -> None:
        began_ns = self._clock.monotonic_ns()
        how = "planned" if drill.planned else "unplanned"
        shown = redact_text(drill.shown, self._secrets)
        about = labels(
            drill=drill.number,
            command=shown,
            planned=str(drill.planned).lower(),
            timeout_seconds=f"{drill.timeout_s:g}",
        )
        self._tell(STARTED, f"drill {drill.number} ({how}): {shown}", Severity.INFO, about)
        if self._simulated:
            self._ended(drill, Ran(None, "", "not run: this is a rehearsal"), 0.0)
            return
        outlet = Outlet()
        self._outlets.append(outlet)
        try:
            ran = await run_command(drill.command, drill.timeout_s, outlet)
        except asyncio.CancelledError:
            self._ended(drill, Ran(None, outlet.text(), "cut off by the end of the run"), self._since(began_ns))
            raise
        self._ended(drill, ran, self._since(began_ns))

    def _since(self, began_ns: int) -> float:
        return (self._clock.monotonic_ns() - began_ns) / 1e9

    def _ended(self, drill: Drill, ran: Ran, took_s: float) -> None:
        output = redact_text(ran.output, self._secrets)
        about = labels(
            drill=drill.number, exit_code=ran.code, problem=ran.problem or None, output=output or None,
            took_seconds=f"{took_s:.3f}",
        )  # fmt: skip
        how = ran.problem or f"exit code {ran.code} after {took_s:.1f} s"
        good = ran.code == 0 or self._simulated
        self._tell(ENDED, f"drill {drill.number}: {how}", Severity.INFO if good else Severity.WARNING, about)

    def _tell(self, kind: str, what: str, severity: Severity, attrs: tuple[tuple[str, str], ...]) -> None:
        self._emit([Event(kind, self._clock.wall_ns(), what, severity, (), attrs)])


class Outlet:
    """The pipe that a command talks into: always read, the last 4 KiB kept, however much there is."""

    def __init__(self) -> None:
        self._read, self.write = os.pipe()
        os.set_blocking(self._read, False)
        self._kept = bytearray()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._read, self._on_data)
        self.over = asyncio.Event()

    def started(self) -> None:
        """The command has its own copy of the writing end now: end of file comes when its last process is gone."""
        if self.write >= 0:
            os.close(self.write)
            self.write = -1

    def text(self) -> str:
        return self._kept.decode("utf-8", "replace").strip()

    def close(self) -> None:
        self.started()
        if self._read >= 0:
            self._loop.remove_reader(self._read)
            os.close(self._read)
            self._read = -1

    def _on_data(self) -> None:
        try:
            data = os.read(self._read, _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self.over.set()
            self._loop.remove_reader(self._read)
        self._kept = (self._kept + data)[-_KEPT_BYTES:]


async def run_command(command: Sequence[str], timeout_s: float, outlet: Outlet) -> Ran:
    """Run it in a session of its own, without a shell and without stdin. At its time limit, and when cancelled, the
    whole session is ended; what it left in the background when it ended by itself is left alone."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=outlet.write, stderr=outlet.write, start_new_session=True
        )
    except OSError as error:
        return Ran(None, "", f"it could not be started: {error.strerror or error}")
    finally:
        outlet.started()
    try:
        async with asyncio.timeout(timeout_s):
            code = await process.wait()
    except TimeoutError:
        await _end(process)
        return Ran(None, outlet.text(), f"ended at its time limit of {timeout_s:g} s")
    except asyncio.CancelledError:
        await _end(process)
        raise
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LAST_WORDS_S):
            await outlet.over.wait()
    return Ran(code, outlet.text())


async def _end(process: asyncio.subprocess.Process) -> None:
    """SIGTERM to its session, SIGKILL 5 s later."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await process.wait()
                return
