"""Saves what the cards of this machine answer, and their sysfs tree, as recordings that can be shown to others.

One directory per card: ``recording.json`` (``soakd.recording/1``, played by ``replay``) and ``sysfs.json``
(``sysfs_tree``). UUIDs, serial numbers and process ids are replaced; host names and process names are never read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from soakd.errors import SoakdError
from soakd.model import GpuIdentity, State
from soakd.nvml.card import EVENTS_KEY
from soakd.nvml.pool import GpuProbe
from soakd.nvml.replay import SCHEMA
from soakd.nvml.sysfs_tree import record_sysfs
from soakd.ports import Clock, GpuReply

_MAX_FRAMES = 3600
_Units = dict[str, dict[str, list[object]]]


class Recordable(Protocol):
    """The part of GpuPool that a recording needs."""

    async def ask(self, tier: str) -> Sequence[GpuReply]: ...
    async def probe(self) -> Sequence[GpuProbe]: ...


class Redaction:
    """Replaces what identifies a machine, the same thing always by the same stand-in."""

    def __init__(self) -> None:
        self._stand_ins: dict[tuple[str, str], int] = {}

    def _number(self, kind: str, value: str) -> int:
        return self._stand_ins.setdefault((kind, value), len([k for k in self._stand_ins if k[0] == kind]))

    def uuid(self, uuid: str) -> str:
        """``GPU-...`` or ``MIG-...`` with its last digits counting up."""
        if not uuid:
            return ""
        prefix = uuid.partition("-")[0]
        return f"{prefix}-00000000-0000-0000-0000-{self._number('uuid', uuid):012d}"

    def serial(self, serial: str) -> str:
        """Empty stays empty: a board without a serial number is a fact of its own."""
        return f"{self._number('serial', serial):013d}" if serial else ""

    def value(self, key: str, value: object) -> object:
        """An answer; process ids in it are replaced."""
        if key.endswith("_processes") and isinstance(value, list):
            return [{**p, "pid": 1000 + self._number("pid", str(p.get("pid")))} for p in value]
        return value


async def record(
    source: Recordable, clock: Clock, sys: Path, directory: Path, *, frames: int = 1, interval_s: float = 1.0
) -> tuple[Path, ...]:
    """Read ``frames`` times, ``interval_s`` apart, and write a directory per card. Returns their paths.

    Raises SoakdError when there is no card, or the directory can't be written.
    """
    redact = Redaction()
    probes = {p.gpu.uuid: p for p in await source.probe()}
    cards: dict[str, GpuIdentity] = {}
    taken: dict[str, list[dict[str, Any]]] = {}
    started_ns = clock.monotonic_ns()
    for n in range(min(frames, _MAX_FRAMES)):
        if n:
            await clock.sleep(interval_s)
        at_s = round((clock.monotonic_ns() - started_ns) / 1e9, 3)
        moment = {tier: _by_card(await source.ask(tier)) for tier in ("fast", "slow")}
        for uuid, replies in moment["fast"].items():
            cards[uuid] = next((r.gpu for r in replies if not r.gpu.mig), replies[0].gpu)
            frame = _frame(replies, moment["slow"].get(uuid, ()), probes.get(uuid), redact)
            taken.setdefault(uuid, []).append({"at_s": at_s, **frame})
    if not cards:
        raise SoakdError("nothing to record", hint="no GPU answered")
    tree = record_sysfs(sys)
    paths = []
    for n, (uuid, card) in enumerate(sorted(cards.items(), key=lambda item: item[1].bdf)):
        migs = sorted({unit for frame in taken[uuid] for unit in frame.get("fast", {}) if unit})
        data = {
            "schema": SCHEMA,
            "by_hand": False,
            "card": {
                "uuid": redact.uuid(uuid), "bdf": card.bdf, "serial": redact.serial(card.serial), "name": card.name,
                "ordinal": card.index, "migs": migs,
            },
            "frames": _without_repetitions(taken[uuid]),
        }  # fmt: skip
        paths.append(_write(directory / f"gpu-{n}", data, _path_of(tree, card.bdf)))
    return tuple(paths)


def _by_card(replies: Sequence[GpuReply]) -> Mapping[str, list[GpuReply]]:
    grouped: dict[str, list[GpuReply]] = {}
    for reply in replies:
        grouped.setdefault(reply.gpu.uuid, []).append(reply)
    return grouped


def _frame(
    fast: Sequence[GpuReply], slow: Sequence[GpuReply], probe: GpuProbe | None, redact: Redaction
) -> dict[str, Any]:
    states = {reply.state for reply in fast if not reply.gpu.mig}
    if State.LOST in states:
        return {"fault": "lost"}
    return {"fast": _units(fast, probe, redact), "slow": _units(slow, probe, redact)}


def _units(replies: Sequence[GpuReply], probe: GpuProbe | None, redact: Redaction) -> _Units:
    latency = {key: q.us for key, q in probe.queries.items()} if probe is not None else {}
    return {
        redact.uuid(reply.gpu.mig): {
            key: [answer.code, redact.value(key, answer.value), latency.get(key, 0)]
            for key, answer in reply.answers.items()
            if key != EVENTS_KEY
        }
        for reply in replies
        if reply.state is State.OK
    }


def _without_repetitions(frames: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A frame states what changed since the one before; playing it back fills in the rest."""
    last: dict[tuple[str, str, str], object] = {}
    written = []
    for frame in frames:
        kept: dict[str, Any] = {k: v for k, v in frame.items() if k not in ("fast", "slow")}
        for tier in ("fast", "slow"):
            changed: _Units = {}
            for unit, answers in frame.get(tier, {}).items():
                new = {k: a for k, a in answers.items() if last.get((tier, unit, k)) != a}
                last.update({(tier, unit, k): a for k, a in new.items()})
                if new:
                    changed[unit] = new
            if changed:
                kept[tier] = changed
        written.append(kept)
    return written


def _path_of(tree: Mapping[str, Mapping[str, str]], bdf: str) -> dict[str, Mapping[str, str]]:
    own = tree.get(bdf)
    if own is None:
        return {}
    return {name: tree[name] for name in (*own.get("above", "").split(), bdf) if name in tree}


def _write(directory: Path, data: Mapping[str, Any], tree: Mapping[str, Mapping[str, str]]) -> Path:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "recording.json").write_text(json.dumps(data, indent=1) + "\n")
        (directory / "sysfs.json").write_text(json.dumps(tree, indent=1) + "\n")
    except OSError as error:
        raise SoakdError(f"can't write the recording to {directory}: {error.strerror}") from None
    return directory
