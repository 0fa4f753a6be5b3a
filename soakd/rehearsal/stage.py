"""What every process of a rehearsal must agree on: scenario, length, seed and clock. Passed on as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from soakd.clock import FastClock
from soakd.errors import SoakdError
from soakd.rehearsal.scenarios import Scenario, find_scenario

MIN_CARDS, MAX_CARDS = 2, 4


@dataclass(frozen=True, slots=True)
class Stage:
    """``duration_s`` is the run's length in simulated seconds; ``speed`` simulated seconds per real one."""

    scenario_name: str
    duration_s: float
    seed: int
    cards: int
    directory: str
    wall_origin_ns: int
    monotonic_origin_ns: int
    speed: float

    def __post_init__(self) -> None:
        find_scenario(self.scenario_name)
        if not self.duration_s > 0:
            raise SoakdError(f"a rehearsal of {self.duration_s:g} s", hint="give a duration above zero, such as 2h")
        if not 0 < self.speed <= 10_000:
            raise SoakdError(f"a rehearsal at speed {self.speed:g}", hint="give a speed above 0 and up to 10000")
        if not MIN_CARDS <= self.cards <= MAX_CARDS:
            raise SoakdError(f"a rehearsal with {self.cards} cards", hint=f"{MIN_CARDS} to {MAX_CARDS} are simulated")

    @property
    def scenario(self) -> Scenario:
        return find_scenario(self.scenario_name)

    @property
    def clock(self) -> FastClock:
        return FastClock(self.wall_origin_ns, self.monotonic_origin_ns, self.speed)

    @property
    def activity_path(self) -> Path:
        return Path(self.directory) / "activity.jsonl"

    def now_s(self) -> float:
        """Simulated seconds since the rehearsal began."""
        return (self.clock.monotonic_ns() - self.monotonic_origin_ns) / 1e9

    def wall_ns(self, at_s: float) -> int:
        """Simulated wall clock at a simulated second."""
        return self.wall_origin_ns + int(at_s * 1e9)

    def fraction(self, at_s: float) -> float:
        return at_s / self.duration_s

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Stage:
        return cls(**json.loads(text))
