"""What the simulated server did and when: the only thing that links it to the simulated hardware.

The server appends a line per change to a file; a card reads it and derives its load, heat and memory. So the state of a
card is a pure function of this log and the time, and a worker that is restarted answers as before.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_MAX_CHANGES = 4000
_STEADY_PID = 4242


@dataclass(frozen=True, slots=True)
class Change:
    """From ``at_s`` (simulated seconds) on: ``pid`` serves (None: no server runs), and whether it works."""

    at_s: float
    pid: int | None
    busy: bool


@dataclass(frozen=True, slots=True)
class Activity:
    """Changes in order of time. Before the first one no server runs."""

    changes: tuple[Change, ...]

    @classmethod
    def steady(cls, busy_from_s: float = 0.0) -> Activity:
        """A server that was started long before, and works from ``busy_from_s`` on without an end."""
        return cls((Change(-3600.0, _STEADY_PID, False), Change(busy_from_s, _STEADY_PID, True)))

    def at(self, at_s: float) -> Change:
        """The state at a time."""
        state = Change(float("-inf"), None, False)
        for change in self.changes:
            if change.at_s > at_s:
                break
            state = change
        return state

    def spans(self, until_s: float) -> Iterator[tuple[float, float, Change]]:
        """(from, to, state) up to a time."""
        for i, change in enumerate(self.changes):
            end = min(self.changes[i + 1].at_s, until_s) if i + 1 < len(self.changes) else until_s
            if end > change.at_s:
                yield change.at_s, end, change

    def busy_s(self, at_s: float) -> float:
        """Simulated seconds of work of the process that serves at that time."""
        pid = self.at(at_s).pid
        return 0.0 if pid is None else sum(end - start for start, end, c in self.spans(at_s) if c.busy and c.pid == pid)


class ActivityLog:
    """The file. Appending is atomic for lines this short; several processes may write."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = 0

    def append(self, change: Change) -> None:
        """Note a change. After 4,000 of them only the coming and going of the process is kept."""
        if self._written >= _MAX_CHANGES and change.pid is not None:
            return
        self._written += 1
        line = json.dumps([round(change.at_s, 3), change.pid, change.busy]).encode() + b"\n"
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, line)
        finally:
            os.close(handle)


class ActivityReader:
    """Reads the file again only when it has grown."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = -1
        self._activity = Activity(())

    def read(self) -> Activity:
        try:
            size = self._path.stat().st_size
            if size != self._size:
                self._activity = parse(self._path.read_bytes().splitlines())
                self._size = size
        except FileNotFoundError:
            pass
        return self._activity


def parse(lines: Sequence[bytes]) -> Activity:
    """An activity from the lines of its file; a last line that is not complete is left out."""
    changes: list[Change] = []
    for line in lines:
        try:
            at_s, pid, busy = json.loads(line)
        except ValueError:
            continue
        changes.append(Change(float(at_s), pid, bool(busy)))
    return Activity(tuple(sorted(changes, key=lambda c: c.at_s)))
