"""Stages one after the other: ``warm-up 5m, ramp to 30/s 10m, hold 2h, spike``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from soakd.fields import ConfigModel, Seconds
from soakd.load.arrivals import Arrivals, Closed, Idle, Open, Process, flat
from soakd.load.spec import Stage

KIND = "staged"

_Rate = Annotated[float, Field(ge=0, le=1_000_000)]


class Streams(ConfigModel):
    """A closed loop for some time."""

    kind: Literal["closed"]
    name: str = "hold"
    duration: Seconds
    measured: bool = True
    concurrency: int = Field(ge=1, le=100_000)
    think: Seconds = 0.0

    def arrivals(self) -> Arrivals:
        return Closed(self.concurrency, self.think)


class Rate(ConfigModel):
    """A rate that goes evenly from ``from_rate`` to ``rate`` (or stays at ``rate``), in requests per real second."""

    kind: Literal["rate"]
    name: str = "hold"
    duration: Seconds
    measured: bool = True
    rate: _Rate
    from_rate: _Rate | None = None
    process: Process = "poisson"
    burstiness: float = Field(1.0, gt=0, le=1000)

    def arrivals(self) -> Arrivals:
        curve = flat(self.rate) if self.from_rate is None else ((0.0, self.from_rate), (1.0, self.rate))
        return Open(curve, self.process, self.burstiness)


class Pause(ConfigModel):
    """No load."""

    kind: Literal["idle"]
    name: str = "idle"
    duration: Seconds
    measured: bool = False

    def arrivals(self) -> Arrivals:
        return Idle()


Part = Annotated[Streams | Rate | Pause, Field(discriminator="kind")]


class Config(ConfigModel):
    """Durations are clock time, and their sum is the length of the load. With ``stretch`` they are shares of the
    run's ``duration``: all are stretched or shortened alike."""

    stages: tuple[Part, ...] = Field(min_length=1, max_length=1000)
    stretch: bool = False

    @property
    def length_s(self) -> float:
        return sum(part.duration for part in self.stages)


def build(config: Config, duration_s: float) -> tuple[Stage, ...]:
    scale = duration_s / config.length_s if config.length_s else 1.0
    return tuple(
        Stage(part.name, part.arrivals(), part.duration * scale, part.measured)
        for part in config.stages
        if part.duration > 0
    )
