"""Recordings as a GpuSource without worker processes: the same answers at the same frame, deterministically.

For tests and for looking at a recording. A live source is ``pool.GpuPool``.
"""

from __future__ import annotations

from collections.abc import Sequence

from soakd.model import Event, GpuIdentity, State
from soakd.nvml.card import EVENTS_KEY, event_of
from soakd.nvml.device import GPU_IS_LOST, SUCCESS
from soakd.nvml.readings import why_of
from soakd.nvml.replay import Recording
from soakd.ports import Clock, GpuReply, NvmlAnswer


class ReplaySource:
    """Every ask answers from the present frame; ``step`` goes to the next one (the last one stays)."""

    def __init__(self, recordings: Sequence[Recording], clock: Clock, why_none: str = "") -> None:
        self._recordings = tuple(recordings)
        self._clock = clock
        self._frame = 0
        self._taken = 0
        self._why_none = why_none

    @property
    def why_none(self) -> str:
        return "" if self._recordings else self._why_none or "no GPU found: the recording has none"

    def step(self) -> None:
        self._frame += 1

    async def ask(self, tier: str) -> Sequence[GpuReply]:
        return tuple(reply for recording in self._recordings for reply in self._replies(recording, tier))

    async def take_events(self) -> Sequence[Event]:
        """The recorded events of the frames since the last call, without losses and returns (those are the pool's)."""
        first, self._taken = self._taken, self._frame + 1
        return tuple(
            event_of(_identity(recording, ""), event.kind, event.data, self._clock.wall_ns())
            for recording in self._recordings
            for after, event in recording.events
            if first <= after < self._taken
        )

    def _replies(self, recording: Recording, tier: str) -> list[GpuReply]:
        frame = recording.frames[min(self._frame, len(recording.frames) - 1)]
        units = frame.fast if tier == "fast" else frame.slow
        now = self._clock.wall_ns()
        if frame.fault == "lost":
            return [GpuReply(_identity(recording, u), State.LOST, now, {}, why_of(GPU_IS_LOST)) for u in units]
        if frame.fault == "hang":
            why = "no answer within the deadline"
            return [GpuReply(_identity(recording, u), State.TIMEOUT, now, {}, why) for u in units]
        replies = []
        for unit, answers in units.items():
            given = {key: NvmlAnswer(a.code, a.value) for key, a in answers.items()}
            if not unit:
                given[EVENTS_KEY] = NvmlAnswer(SUCCESS)
            replies.append(GpuReply(_identity(recording, unit), State.OK, now, given))
        return replies


def _identity(recording: Recording, mig: str) -> GpuIdentity:
    card = recording.card
    return GpuIdentity(card.uuid, card.bdf, card.serial, card.name, card.ordinal, mig)
