"""A rehearsal put together: what a real soak finds on a server, SIMULATED, behind the same interfaces.

``async with Rehearsal.start("leak", directory=d) as r`` gives a URL to load, a command that serves NVML, a ``/sys`` and
a clock. The rest of soakd runs on these exactly as on real ones; whatever comes of it is labelled SIMULATED.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

from soakd.clock import FastClock
from soakd.errors import SoakdError
from soakd.model import GpuIdentity
from soakd.ports import Roots
from soakd.rehearsal.activity import Activity, ActivityReader
from soakd.rehearsal.hardware import CARD_NAME, SimulatedDevice
from soakd.rehearsal.pci_tree import PciModel, PciTree
from soakd.rehearsal.scenarios import Expectation, Scenario
from soakd.rehearsal.stage import Stage
from soakd.rehearsal.supervisor import TargetProcess, supervise
from soakd.rehearsal.target import MODEL_NAME, TargetOptions

LABEL = "SIMULATED"
DEFAULT_DURATION_S = 7200.0
DEFAULT_SPEED = 60.0
_TREE_EVERY_S = 0.5
"""Real seconds between updates of the simulated /sys."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A running rehearsal. ``nvml_command`` is what stands before ``list`` and ``serve UUID`` for the NVML workers."""

    stage: Stage
    target: TargetProcess
    roots: Roots
    nvml_command: tuple[str, ...]
    activity: ActivityReader

    @classmethod
    @contextlib.asynccontextmanager
    async def start(
        cls,
        scenario: str,
        *,
        directory: Path,
        duration_s: float = DEFAULT_DURATION_S,
        speed: float = DEFAULT_SPEED,
        seed: int = 1,
        cards: int = 2,
        target: TargetOptions | None = None,
        port: int = 0,
        roots: Roots | None = None,
    ) -> AsyncIterator[Rehearsal]:
        """Start target, cards and tree in ``directory`` (which must be this rehearsal's own) and end them afterwards.

        ``duration_s`` is the length of the whole run in simulated seconds: faults come at fractions of it. The clock
        starts once everything is up. Raises SoakdError for an unknown scenario or a duration, speed, number of cards
        or port that can't be had.
        """
        stage = Stage(scenario, duration_s, seed, cards, str(directory), 0, 0, speed)
        _clear(stage)
        process = TargetProcess(directory / "target.log", target or TargetOptions(), port)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(process.stop)
            await process.load()
            clock = FastClock.start(speed)
            stage = replace(stage, wall_origin_ns=clock.wall_origin_ns, monotonic_origin_ns=clock.monotonic_origin_ns)
            tree = _set_up(stage)
            await process.serve(stage)
            rehearsal = cls(
                stage=stage,
                target=process,
                roots=replace(roots or Roots(), sys=directory / "sys"),
                nvml_command=(sys.executable, "-m", "soakd.rehearsal.gpu_worker", str(directory / "stage.json")),
                activity=ActivityReader(stage.activity_path),
            )
            for work in (supervise(stage, process), rehearsal._keep_tree(tree)):
                stack.push_async_callback(_end, asyncio.create_task(work))
            yield rehearsal

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.target.port}"

    @property
    def pid(self) -> int | None:
        """The target's process, None while it is down."""
        return self.target.pid

    @property
    def model(self) -> str:
        return MODEL_NAME

    @property
    def scenario(self) -> Scenario:
        return self.stage.scenario

    @property
    def clock(self) -> FastClock:
        return self.stage.clock

    @property
    def expects(self) -> tuple[Expectation, ...]:
        """What the verdict must name."""
        return self.stage.scenario.expects(self.stage.duration_s, self.stage.speed)

    @property
    def cards(self) -> tuple[GpuIdentity, ...]:
        """The simulated cards by index, for the labels of an expectation."""
        stage = self.stage
        devices = (SimulatedDevice(stage.scenario, stage.duration_s, i, stage.seed) for i in range(stage.cards))
        return tuple(GpuIdentity(d.uuid, d.bdf, d.serial, CARD_NAME, d.index) for d in devices)

    def device(self, card: int) -> SimulatedDevice:
        """A card as it is now, without a process: what the NVML worker answers from."""
        stage = self.stage
        return SimulatedDevice(stage.scenario, stage.duration_s, card, stage.seed, self.activity.read())

    async def _keep_tree(self, tree: PciTree) -> None:
        while True:
            await asyncio.sleep(_TREE_EVERY_S)
            try:
                tree.update(self.stage.now_s(), self.activity.read())
            except OSError as error:
                raise SoakdError(f"the simulated /sys can't be written: {error}") from None


def _clear(stage: Stage) -> None:
    stage.activity_path.parent.mkdir(parents=True, exist_ok=True)
    stage.activity_path.unlink(missing_ok=True)


def _set_up(stage: Stage) -> PciTree:
    directory = Path(stage.directory)
    (directory / "stage.json").write_text(stage.to_json())
    tree = PciTree(directory / "sys", PciModel(stage.scenario, stage.duration_s, stage.cards, stage.seed))
    tree.create(Activity(()))
    return tree


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
