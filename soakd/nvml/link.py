"""PCIe link arithmetic and judgement. Pure."""

from __future__ import annotations

import enum
import math
import re
from dataclasses import dataclass

_SPEED = re.compile(r"\s*(\d+(?:\.\d+)?)\s*GT/s(?:\s+PCIe)?\s*", re.ASCII)
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
_SPEEDS = {generation: speed for speed, generation in _GENERATIONS.items()}


def parse_link_speed(text: str) -> float | None:
    """GT/s of ``8 GT/s`` (kernel up to 5.6) or ``8.0 GT/s PCIe``; None for ``Unknown``, ``Unknown speed`` and so on."""
    match = _SPEED.fullmatch(text)
    if match is None:
        return None
    speed = float(match.group(1))
    return speed if 0 < speed < math.inf else None


def generation_of(speed_gts: float) -> int | None:
    """PCIe generation (1 to 6) of a link speed in GT/s; None for a speed that is no PCIe speed."""
    return _GENERATIONS.get(speed_gts)


def speed_of(generation: int) -> float | None:
    """GT/s per lane of a PCIe generation."""
    return _SPEEDS.get(generation)


def replay_limit_per_minute(max_speed_gts: float, lanes: int) -> int:
    """Replays in a minute that are more than chance: ceil(GT/s x 0.06 x lanes), 8/16/31 for gen3/4/5 x16.

    Give the speed the link runs at under load (the most that card and path can do), not that of an idle link.
    Source: the threshold in use in data centre health checks, from the bit error rate of 1e-12 that PCIe allows.
    """
    return math.ceil(round(max_speed_gts * 0.06 * lanes, 9))


class LinkState(enum.Enum):
    """IDLE: not judged, because a link at low speed on an idle card is normal. SETTLING: below what it can do under
    load, but not yet for long enough to be a fault. UNKNOWN: not enough was read."""

    FULL = "full"
    DEGRADED = "degraded"
    SETTLING = "settling"
    IDLE = "idle"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Link:
    """Speed in GT/s and width in lanes, each None when not known."""

    speed_gts: float | None
    lanes: int | None


@dataclass(frozen=True, slots=True)
class LinkWatch:
    """What the judgement remembers: since when (monotonic ns) the link is below what it can do under load."""

    below_since_ns: int | None = None


def expected_link(card_max: Link, path_max: Link) -> Link:
    """The most that the card and the port above it can both do; a part that isn't known doesn't bound it."""
    speeds = [s for s in (card_max.speed_gts, path_max.speed_gts) if s]
    lanes = [n for n in (card_max.lanes, path_max.lanes) if n]
    return Link(min(speeds, default=None), min(lanes, default=None))


def judge_link(
    watch: LinkWatch, current: Link, expected: Link, busy: bool, now_ns: int, hold_s: float = 10.0
) -> tuple[LinkWatch, LinkState]:
    """One step. DEGRADED only under load and after ``hold_s`` below the expected speed or width."""
    if not busy:
        return LinkWatch(), LinkState.IDLE
    speed_known = current.speed_gts is not None and expected.speed_gts is not None
    lanes_known = current.lanes is not None and expected.lanes is not None
    if not speed_known and not lanes_known:
        return LinkWatch(), LinkState.UNKNOWN
    slow = speed_known and (current.speed_gts or 0) < (expected.speed_gts or 0)
    narrow = lanes_known and (current.lanes or 0) < (expected.lanes or 0)
    if not slow and not narrow:
        known = speed_known and lanes_known
        return LinkWatch(), LinkState.FULL if known else LinkState.UNKNOWN
    since = watch.below_since_ns if watch.below_since_ns is not None else now_ns
    held = now_ns - since >= hold_s * 1e9
    return LinkWatch(since), LinkState.DEGRADED if held else LinkState.SETTLING
