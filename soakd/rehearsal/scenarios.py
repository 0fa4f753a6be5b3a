"""What goes wrong in a rehearsal, when, and what the verdict must then say.

Every fault is a pure function of time as a fraction of the run's length, so that any duration shows the same story.
Times in ``*_s`` are simulated seconds since the rehearsal began.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from soakd.errors import SoakdError

CARD_BYTES = 32 * 2**30
PAGE_BYTES = 2 * 2**20
"""NVML's memory figures move in steps of 2 MiB."""

_LEAST_LEAK_PAGES = 60
_MOST_LEAK_PAGES = 2000


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the verdict must name. ``source`` is a metric or an event kind; ``card`` the index of the card at fault.

    ``from_s`` to ``until_s`` is when it shows. ``value`` is the truth in ``unit`` (a slope, a count, an XID).
    """

    source: str
    what: str
    card: int | None = None
    from_s: float = 0.0
    until_s: float | None = None
    value: float | None = None
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Leak:
    """Memory of one card grows in a straight line while the server works: ``percent_per_hour`` of the card, more in
    a run too short to show it and less in one so long that the card would overflow."""

    card: int = 1
    percent_per_hour: float = 0.5

    def bytes_per_hour(self, duration_s: float) -> float:
        hours = duration_s / 3600
        wanted = CARD_BYTES * self.percent_per_hour / 100
        return min(max(wanted, _LEAST_LEAK_PAGES * PAGE_BYTES / hours), _MOST_LEAK_PAGES * PAGE_BYTES / hours)


@dataclass(frozen=True, slots=True)
class Staircase:
    """Memory of one card grows in steps spread over the whole run and never comes back.

    ``steps`` are (fraction of the run, pages). Thirteen steps at uneven times: no warm-up, which thins out, has them,
    and so many prove growth even where the card is one of ten series that are judged together.
    """

    card: int = 1
    steps: tuple[tuple[float, int], ...] = (
        (0.13, 24), (0.19, 28), (0.27, 25), (0.33, 27), (0.41, 26), (0.47, 23), (0.53, 29), (0.61, 25), (0.67, 27),
        (0.74, 24), (0.81, 26), (0.88, 28), (0.94, 25),
    )  # fmt: skip

    def bytes_at(self, fraction: float) -> int:
        return PAGE_BYTES * sum(pages for at, pages in self.steps if fraction >= at)


@dataclass(frozen=True, slots=True)
class ThermalDrift:
    """One card grows warmer at unchanged power: ``celsius_per_hour`` from a point of the run on, within bounds that
    keep a short run visible and a long one below the slowdown temperature."""

    card: int = 1
    from_fraction: float = 0.0
    celsius_per_hour: float = 4.0
    least_celsius: float = 6.0
    most_celsius: float = 12.0

    def rise_celsius(self, duration_s: float) -> float:
        hours = duration_s * (1 - self.from_fraction) / 3600
        return min(max(self.celsius_per_hour * hours, self.least_celsius), self.most_celsius)

    def celsius_at(self, fraction: float, duration_s: float) -> float:
        share = (fraction - self.from_fraction) / (1 - self.from_fraction)
        return self.rise_celsius(duration_s) * min(max(share, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class Crash:
    """The server's process is killed and comes back after a part of the run, at least ``least_down_s`` of real time."""

    at_fraction: float = 0.45
    down_fraction: float = 0.03
    least_down_s: float = 2.0

    def down_s(self, duration_s: float, speed: float) -> float:
        """Simulated seconds between its death and its restart."""
        return max(self.down_fraction * duration_s, self.least_down_s * speed)


@dataclass(frozen=True, slots=True)
class EccBurst:
    """One double-bit error (XID 48, page retired: XID 63) and a burst of corrected ones on one card."""

    card: int = 1
    at_fraction: float = 0.5
    corrected: int = 64
    over_fraction: float = 0.03

    def corrected_at(self, fraction: float) -> int:
        share = (fraction - self.at_fraction) / self.over_fraction
        return int(self.corrected * min(max(share, 0.0), 1.0))

    def uncorrected_at(self, fraction: float) -> int:
        return int(fraction >= self.at_fraction)


@dataclass(frozen=True, slots=True)
class CardLoss:
    """One card falls off the bus: XID 79, NVML answers 15 (GPU is lost), and the server fails every request."""

    card: int = 1
    at_fraction: float = 0.6


@dataclass(frozen=True, slots=True)
class Garble:
    """Answers turn silently wrong: first some words change, then nothing but garbage comes."""

    at_fraction: float = 0.5
    garbage_fraction: float = 0.6


Fault = Leak | Staircase | ThermalDrift | Crash | EccBurst | CardLoss | Garble


@dataclass(frozen=True, slots=True)
class Scenario:
    """At most one fault, so that a verdict can be checked against it."""

    name: str
    summary: str
    fault: Fault | None = None

    def expects(self, duration_s: float, speed: float = 1.0) -> tuple[Expectation, ...]:
        """What the verdict must name; empty for ``healthy``, which must PASS."""
        match self.fault:
            case Leak() as leak:
                slope = leak.bytes_per_hour(duration_s)
                return (Expectation("gpu_memory_used_bytes", "VRAM grows without end", leak.card,
                                    value=slope, unit="bytes/hour"),)  # fmt: skip
            case Staircase() as stairs:
                slope = stairs.bytes_at(1.0) / (duration_s / 3600)
                first = stairs.steps[0][0] * duration_s
                return (Expectation("gpu_memory_used_bytes", "VRAM grows in steps", stairs.card, from_s=first,
                                    value=slope, unit="bytes/hour"),)  # fmt: skip
            case ThermalDrift() as drift:
                start = drift.from_fraction * duration_s
                slope = drift.rise_celsius(duration_s) / ((duration_s - start) / 3600)
                return (Expectation("gpu_temperature_celsius", "rise not explained by power", drift.card,
                                    from_s=start, value=slope, unit="celsius/hour"),)  # fmt: skip
            case Crash() as crash:
                start = crash.at_fraction * duration_s
                end = start + crash.down_s(duration_s, speed)
                return (Expectation("load.outage", "the server died and came back", None, start, end),)
            case EccBurst() as burst:
                start = burst.at_fraction * duration_s
                return (
                    Expectation("gpu_ecc_errors_total", "uncorrected ECC error", burst.card, start, value=1.0),
                    Expectation("xid", "double-bit ECC error", burst.card, start, value=48.0),
                )
            case CardLoss() as loss:
                start = loss.at_fraction * duration_s
                return (
                    Expectation("gpu.lost", "the card fell off the bus", loss.card, start),
                    Expectation("xid", "the card fell off the bus", loss.card, start, value=79.0),
                )
            case Garble() as garble:
                start = garble.at_fraction * duration_s
                return (Expectation("canary.mismatch", "an answer changed", None, start),)
            case None:
                return ()

    def xids(self, card: int, duration_s: float) -> tuple[tuple[float, int], ...]:
        """XID events of a card as (simulated second, number), in order."""
        match self.fault:
            case EccBurst(card=at) as burst if at == card:
                return ((burst.at_fraction * duration_s, 48), (burst.at_fraction * duration_s + 1.0, 63))
            case CardLoss(card=at) as loss if at == card:
                return ((loss.at_fraction * duration_s, 79),)
            case _:
                return ()

    def lost(self, card: int, fraction: float) -> bool:
        """Whether the card is off the bus."""
        return isinstance(self.fault, CardLoss) and self.fault.card == card and fraction >= self.fault.at_fraction

    def target_fails(self, fraction: float) -> bool:
        """Whether the server answers every request with an error: it can't go on without its card."""
        return isinstance(self.fault, CardLoss) and fraction >= self.fault.at_fraction


SCENARIOS: Mapping[str, Scenario] = {
    s.name: s
    for s in (
        Scenario("healthy", "nothing goes wrong"),
        Scenario("leak", "VRAM of one card grows in a straight line", Leak()),
        Scenario("staircase", "VRAM of one card grows in steps", Staircase()),
        Scenario("thermal-drift", "one card grows warmer at unchanged power", ThermalDrift()),
        Scenario("server-crash", "the server's process dies and comes back", Crash()),
        Scenario("ecc-burst", "a double-bit ECC error and a burst of corrected ones", EccBurst()),
        Scenario("gpu-lost", "a card falls off the bus", CardLoss()),
        Scenario("garbled", "answers turn silently wrong", Garble()),
    )
}


def find_scenario(name: str) -> Scenario:
    """Raises SoakdError with the names there are."""
    if name not in SCENARIOS:
        raise SoakdError(f"unknown scenario {name!r}", hint=f"one of {', '.join(SCENARIOS)}")
    return SCENARIOS[name]
