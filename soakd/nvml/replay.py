"""A recording played back as a device, for tests, benches and `collect --record` users.

A recording is a directory with ``recording.json`` (``soakd.recording/1``, see ``recorder``) or a single file in the
form of the raw H200 reading (NVML calls by their Python text, ``field_values`` by name).
``python -m soakd.nvml.replay [--copies N] PATH... list|serve UUID`` is a worker module over recordings.

Frames are played in order, one for each fast read; the last one stays. A frame may carry a ``fault``: ``lost`` (code
15 for all), ``hang`` (the read never comes back), ``exit`` (the worker dies), ``denied`` (code 4).
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from soakd.nvml import queries
from soakd.nvml.decode import field_answer, sysfs_bdf
from soakd.nvml.device import (
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_FOUND,
    SUCCESS,
    Answer,
    Answers,
    CardId,
    DeviceError,
    RawEvent,
)

SCHEMA = "soakd.recording/1"
_FAULT_CODES = {"lost": GPU_IS_LOST, "denied": NO_PERMISSION}


class Frame(NamedTuple):
    """One moment: the answers of both tiers, of the card (``""``) and its MIG instances, or a fault."""

    fast: Mapping[str, Answers]
    slow: Mapping[str, Answers]
    fault: str = ""


class Recording(NamedTuple):
    """``events`` are handed out in order, one after each fast read from the frame ``after`` on."""

    card: CardId
    frames: tuple[Frame, ...]
    events: tuple[tuple[int, RawEvent], ...] = ()
    by_hand: bool = False


def load_recording(path: Path) -> Recording:
    """Read a recording of either form. Raises DeviceError (NOT_FOUND) with what is wrong."""
    file = path / "recording.json" if (path / "recording.json").is_file() else path
    file = file / "nvml.json" if file.is_dir() else file
    try:
        data = json.loads(file.read_text())
        return _from_raw(data) if "field_values" in data else _from_frames(data)
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise DeviceError(NOT_FOUND, f"{file} is not a recording: {type(error).__name__}: {error}") from None


def _from_frames(data: Mapping[str, Any]) -> Recording:
    if data["schema"] != SCHEMA:
        raise ValueError(f"schema {data['schema']!r}, expected {SCHEMA!r}")
    card = data["card"]
    identity = CardId(
        card["uuid"], card["bdf"], card["serial"], card["name"], card["ordinal"], tuple(card.get("migs", ()))
    )
    frames: list[Frame] = []
    for item in data["frames"]:
        # a frame repeats what it does not state, so that recordings written by hand stay short
        last = frames[-1] if frames else Frame({}, {})
        frames.append(
            Frame(_units(item.get("fast"), last.fast), _units(item.get("slow"), last.slow), item.get("fault", ""))
        )
    if not frames:
        raise ValueError("no frames")
    events = tuple((e["after"], RawEvent(e["kind"], e["data"])) for e in data.get("events", ()))
    return Recording(identity, tuple(frames), events, data.get("by_hand", False))


def _units(stated: Mapping[str, Any] | None, last: Mapping[str, Answers]) -> Mapping[str, Answers]:
    units = {unit: dict(answers) for unit, answers in last.items()}
    for unit, answers in (stated or {}).items():
        units.setdefault(unit, {}).update({key: Answer(*value) for key, value in answers.items()})
    return units


def _from_raw(data: Mapping[str, Any]) -> Recording:
    """The raw reading of a card: ``{"nvmlDeviceGetName": {"value": ...}, ..., "field_values": {...}}``."""
    card = CardId(
        data["nvmlDeviceGetUUID"]["value"],
        sysfs_bdf(data["nvmlDeviceGetPciInfo"]["value"]["busId"]),
        data["nvmlDeviceGetSerial"].get("value", ""),
        data["nvmlDeviceGetName"]["value"],
        data["nvmlDeviceGetIndex"]["value"],
    )
    tiers = []
    for tier in ("fast", "slow"):
        answers = {q.key: _raw_answer(q, data) for q in queries.calls(tier)}
        for name in queries.fields(tier):
            if (field := data["field_values"].get(f"NVML_FI_{name}")) is not None:
                value = field["d"] if field["type"] == 0 else field["ull"]
                answers[name] = field_answer(name, field["ret"], field["type"], value or 0, field["lat_us"])
        tiers.append({key: answer for key, answer in answers.items() if answer is not None})
    return Recording(card, (Frame({"": tiers[0]}, {"": tiers[1]}),))


def _raw_answer(query: queries.Query, data: Mapping[str, Any]) -> Answer | None:
    if query.function in ("nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion"):
        return Answer(SUCCESS, data["driver" if "Driver" in query.function else "nvml"])
    name = f"{query.function}{query.args!r}" if query.args else query.function
    if query.key == "memory":
        name = next((key for key in data if key.startswith("nvmlDeviceGetMemoryInfo(")), query.function)
    found = data.get(name)
    if found is None:
        return None
    us = int(found.get("ms", 0) * 1000)
    if "value" not in found:
        return Answer(found.get("code", FUNCTION_NOT_FOUND), None, us)
    value = found["value"]
    if query.key == "memory":
        kept = {k: value[k] for k in ("total", "reserved", "used", "free") if k in value}
        return Answer(SUCCESS, {"version": 2 if "reserved" in kept else 1, **kept}, us)
    if query.names and isinstance(value, list):
        value = dict(zip(query.names, value, strict=False))
    elif query.names:
        value = {part: value[part] for part in query.names}
    elif query.shape == "count":
        value = len(value)
    return Answer(SUCCESS, value, us)


class ReplayDevice:
    """Plays one recording. ``card`` replaces the recorded identity, so that one recording can stand for many cards."""

    def __init__(self, recording: Recording, card: CardId | None = None) -> None:
        self._recording = recording
        self._card = card or recording.card
        self._position = -1
        self._events = list(recording.events)
        self._played = threading.Condition()
        self._current = ""

    def acquire(self) -> CardId:
        if self._recording.frames[0].fault == "lost":
            raise DeviceError(GPU_IS_LOST, "GPU is lost")
        return self._card

    def release(self) -> None:
        return

    def current(self) -> str:
        return self._current

    def probe(self) -> Answers:
        frame = self._recording.frames[max(self._position, 0)]
        return {**frame.fast.get("", {}), **frame.slow.get("", {})}

    def read(self, tier: str) -> Mapping[str, Answers]:
        if tier == "fast":
            with self._played:
                self._position = min(self._position + 1, len(self._recording.frames) - 1)
                self._played.notify_all()
        frame = self._recording.frames[max(self._position, 0)]
        self._act(frame.fault)
        units = frame.fast if tier == "fast" else frame.slow
        code = _FAULT_CODES.get(frame.fault)
        if code is None:
            return units
        return {unit: {key: Answer(code) for key in answers} for unit, answers in units.items()}

    def wait_event(self, timeout_s: float) -> RawEvent | None:
        with self._played:
            if not self._due():
                self._played.wait(timeout_s)
            return self._events.pop(0)[1] if self._due() else None

    def _due(self) -> bool:
        return bool(self._events) and self._events[0][0] <= self._position

    def _act(self, fault: str) -> None:
        if fault == "hang":
            self._current = "nvmlDeviceGetFieldValues"
            threading.Event().wait()
        if fault == "exit":
            os._exit(3)


class ReplayBackend:
    """Recordings as the cards of a machine; ``copies`` of each, with UUIDs, addresses and serials of their own."""

    def __init__(self, paths: Sequence[Path], copies: int = 1) -> None:
        self._cards: dict[str, tuple[Recording, CardId]] = {}
        for path in paths:
            recording = load_recording(path)
            for n in range(copies):
                card = recording.card if n == 0 else _copy(recording.card, n)
                self._cards[card.uuid] = (recording, card)

    def list_cards(self) -> tuple[CardId, ...]:
        return tuple(card for recording, card in self._cards.values() if recording.frames[0].fault != "lost")

    def open(self, uuid: str) -> ReplayDevice:
        if uuid not in self._cards:
            raise DeviceError(NOT_FOUND, f"no recorded card {uuid}")
        return ReplayDevice(*self._cards[uuid])


def _copy(card: CardId, n: int) -> CardId:
    bus = int(card.bdf[5:7], 16) + n
    return card._replace(
        uuid=f"{card.uuid}-{n}", bdf=f"{card.bdf[:5]}{bus:02x}{card.bdf[7:]}", serial=f"{card.serial}-{n}", ordinal=n
    )


def main(argv: Sequence[str]) -> int:
    """``[--copies N] PATH... list`` or ``[--copies N] PATH... serve UUID``."""
    from soakd.nvml import worker

    rest, copies = list(argv), 1
    if rest[:1] == ["--copies"] and len(rest) > 1:
        copies, rest = int(rest[1]), rest[2:]
    verb_at = next((i for i, word in enumerate(rest) if word in ("list", "serve")), None)
    if not verb_at:
        sys.stderr.write("usage: [--copies N] PATH... list | serve UUID\n")
        return 2
    try:
        backend = ReplayBackend([Path(p) for p in rest[:verb_at]], copies)
        return worker.main(backend, rest[verb_at:])
    except DeviceError as error:
        sys.stderr.write(f"{error.what}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
