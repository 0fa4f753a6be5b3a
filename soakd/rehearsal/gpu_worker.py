"""The NVML worker of a rehearsal: ``python -m soakd.rehearsal.gpu_worker STAGE.json list | serve UUID``.

Speaks the protocol of ``soakd.nvml.worker`` for cards that are SIMULATED.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from soakd.nvml.device import GPU_IS_LOST, NOT_FOUND, TIERS, UNINITIALIZED, Answer, CardId, DeviceError, RawEvent
from soakd.nvml.worker import main as worker_main
from soakd.rehearsal.activity import ActivityReader
from soakd.rehearsal.gpu_answers import answers_of
from soakd.rehearsal.hardware import CARD_NAME, SimulatedDevice
from soakd.rehearsal.stage import Stage


class SimulatedNvml:
    """One simulated card as a worker asks it."""

    def __init__(self, stage: Stage, index: int) -> None:
        self._stage = stage
        self._index = index
        self._activity = ActivityReader(stage.activity_path)
        self._held = False
        self._events_from_s = 0.0
        self._pause = threading.Event()

    @property
    def card(self) -> CardId:
        device = self._device()
        return CardId(device.uuid, device.bdf, device.serial, CARD_NAME, self._index)

    def acquire(self) -> CardId:
        if self._lost():
            raise DeviceError(GPU_IS_LOST, "GPU is lost")
        if not self._held:
            self._events_from_s = self._stage.now_s()
        self._held = True
        return self.card

    def release(self) -> None:
        self._held = False

    def probe(self) -> Mapping[str, Answer]:
        return {key: answer for tier in TIERS for key, answer in self.read(tier)[""].items()}

    def read(self, tier: str) -> Mapping[str, Mapping[str, Answer]]:
        if not self._held:
            raise DeviceError(UNINITIALIZED, "the handles were let go of")
        return {"": answers_of(self._device().at(self._stage.now_s()), tier)}

    def wait_event(self, timeout_s: float) -> RawEvent | None:
        """The next XID after the handles were taken, once; on a lost card it fails when there is none left."""
        now = self._stage.now_s()
        for at_s, number in self._stage.scenario.xids(self._index, self._stage.duration_s):
            if at_s <= self._events_from_s:
                continue
            wait_s = (at_s - now) / self._stage.speed
            if wait_s > timeout_s:
                break
            self._pause.wait(max(wait_s, 0.0))
            self._events_from_s = at_s
            return RawEvent("xid", number, self._stage.wall_ns(at_s))
        if self._lost():
            raise DeviceError(GPU_IS_LOST, "GPU is lost")
        self._pause.wait(timeout_s)
        return None

    def current(self) -> str:
        return ""

    def _device(self) -> SimulatedDevice:
        stage = self._stage
        return SimulatedDevice(stage.scenario, stage.duration_s, self._index, stage.seed, self._activity.read())

    def _lost(self) -> bool:
        return self._stage.scenario.lost(self._index, self._stage.fraction(self._stage.now_s()))


class SimulatedBackend:
    """The simulated machine's cards."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def list_cards(self) -> tuple[CardId, ...]:
        fraction = self._stage.fraction(self._stage.now_s())
        return tuple(
            SimulatedNvml(self._stage, index).card
            for index in range(self._stage.cards)
            if not self._stage.scenario.lost(index, fraction)
        )

    def open(self, uuid: str) -> SimulatedNvml:
        for index in range(self._stage.cards):
            device = SimulatedNvml(self._stage, index)
            if device.card.uuid == uuid:
                return device
        raise DeviceError(NOT_FOUND, f"no simulated card {uuid}")


def main(argv: list[str]) -> int:
    if len(argv) < 2:
        sys.stderr.write("usage: STAGE.json list | STAGE.json serve UUID\n")
        return 2
    stage = Stage.from_json(Path(argv[0]).read_bytes())
    return worker_main(SimulatedBackend(stage), argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
