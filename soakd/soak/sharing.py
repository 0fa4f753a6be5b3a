"""Who else uses the target's cards: processes on them that are not in the target's process tree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from soakd.model import Event, Sample, Severity, labels
from soakd.ports import Item
from soakd.procfs import process_stat
from soakd.quantities import format_bytes

STRANGER = "gpu.stranger"
ON_A_CARD = "gpu_process_memory_bytes"
_PICKED = ("server.process", "server.restart")
_SIGHTINGS = 2
_DEEPEST = 64
_MOST = 1024


class CardSharing:
    """Fed with all that a run sees; names each stranger on each card once.

    A process counts as a stranger when it is seen twice, so that a server that has just been restarted is known by
    then. Nothing is said of a card on which the target itself was not seen, nor of a process that /proc does not have:
    NVML gives the process ids of the host, which mean nothing inside a container. Bounded by ``_MOST`` processes.
    """

    def __init__(self, proc: Path, root: int | None) -> None:
        self._proc = proc
        self._roots = {root} if root is not None else set()
        self._shared_with: dict[str, set[int]] = {}
        self._sightings: dict[tuple[str, int], int] = {}
        self._waiting: dict[str, list[Event]] = {}

    def step(self, items: Sequence[Item]) -> tuple[Event, ...]:
        """The strangers that are certain now. Reads a few small files of /proc when a process is new."""
        found: list[Event] = []
        for item in items:
            if isinstance(item, Event):
                pid = dict(item.attrs).get("pid", "")
                if item.kind in _PICKED and pid.isdigit():
                    self._roots.add(int(pid))
            elif item.metric.name == ON_A_CARD and self._roots:
                found += self._seen(item)
        return tuple(found)

    def _seen(self, sample: Sample) -> list[Event]:
        tags = dict(sample.labels)
        card, pid = tags.get("gpu", ""), tags.get("pid", "")
        key = (card, int(pid)) if pid.isdigit() else None
        if key is None or self._sightings.get(key, 0) >= _SIGHTINGS or len(self._sightings) >= _MOST:
            return []
        mine = self._is_mine(key[1])
        if mine is None:
            return []
        if mine:
            self._sightings[key] = _SIGHTINGS
            self._shared_with.setdefault(card, set()).add(key[1])
            return self._waiting.pop(card, [])
        self._sightings[key] = self._sightings.get(key, 0) + 1
        if self._sightings[key] < _SIGHTINGS:
            return []
        event = self._event(sample, tags, key[1])
        if card in self._shared_with:
            return [event]
        self._waiting.setdefault(card, []).append(event)
        return []

    def _is_mine(self, pid: int) -> bool | None:
        """Whether the process is the target's or below it; None when /proc does not have it."""
        here = process_stat(self._proc, pid)
        if here is None:
            return None
        for _ in range(_DEEPEST):
            if here.pid in self._roots:
                return True
            above = process_stat(self._proc, here.parent) if here.parent > 0 else None
            if above is None:
                return False
            here = above
        return False

    def _event(self, sample: Sample, tags: dict[str, str], pid: int) -> Event:
        stat = process_stat(self._proc, pid)
        name = f"{stat.command if stat else 'a process'} (pid {pid})"
        size = f" with {format_bytes(sample.value)}" if sample.value is not None else ""
        what = f"{name} uses the target's card {tags.get('bdf', '')}{size}"
        where = labels(gpu=tags.get("gpu"), bdf=tags.get("bdf"))
        return Event(STRANGER, sample.at_ns, what, Severity.WARNING, where, labels(process=name))


def strangers(events: Sequence[Event]) -> tuple[str, ...]:
    """The processes named in the events of a run, each once, with the cards they were on."""
    cards: dict[str, list[str]] = {}
    for event in events:
        if event.kind == STRANGER:
            cards.setdefault(dict(event.attrs).get("process", ""), []).append(dict(event.labels).get("bdf", ""))
    return tuple(f"{name} on {', '.join(sorted(set(where)))}" for name, where in cards.items())
