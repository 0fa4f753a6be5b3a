"""One XID from two sources is one; two XIDs of one source are two. Pure, in bounded memory."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sighting:
    """An XID as one source (``nvml`` or ``kmsg``) told it."""

    bdf: str
    code: int
    source: str
    at_ns: int


class XidPairs:
    """Pairs what NVML and the kernel log tell of the same XID, so that it counts once.

    A sighting is a repetition when the *other* source told the same code of the same card within ``window_s`` and that
    telling is not paired yet. A second XID of the same code is told twice by each source and so stays visible.
    """

    __slots__ = ("_open", "_window_ns")

    def __init__(self, window_s: float, most: int = 256) -> None:
        self._window_ns = int(window_s * 1e9)
        self._open: deque[Sighting] = deque(maxlen=most)

    def is_new(self, sighting: Sighting) -> bool:
        for other in self._open:
            same = (other.bdf, other.code) == (sighting.bdf, sighting.code)
            near = abs(other.at_ns - sighting.at_ns) <= self._window_ns
            if same and near and other.source != sighting.source:
                self._open.remove(other)
                return False
        self._open.append(sighting)
        return True
