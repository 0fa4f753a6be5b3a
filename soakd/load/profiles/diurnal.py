"""A rate that goes up and down like a day: a cosine between a low and a high."""

from __future__ import annotations

import math

from pydantic import Field, model_validator

from soakd.fields import ConfigModel, Seconds
from soakd.load.arrivals import Open, Process
from soakd.load.spec import Stage

KIND = "diurnal"
_POINTS_A_PERIOD = 48
_MOST_POINTS = 50_000


class Config(ConfigModel):
    """Rates are in requests per real second, ``period`` is clock time. It begins at the low."""

    low: float = Field(1.0, ge=0, le=1_000_000)
    high: float = Field(10.0, gt=0, le=1_000_000)
    period: Seconds = Field(86_400.0, gt=0)
    process: Process = "poisson"

    @model_validator(mode="after")
    def _ordered(self) -> Config:
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


def build(config: Config, duration_s: float) -> tuple[Stage, ...]:
    points = min(_MOST_POINTS, max(2, math.ceil(duration_s / config.period * _POINTS_A_PERIOD) + 1))
    curve = tuple(
        (n / (points - 1), _rate(config, n / (points - 1) * duration_s / config.period)) for n in range(points)
    )
    return (Stage("diurnal", Open(curve, config.process), duration_s),)


def _rate(config: Config, periods: float) -> float:
    return config.low + (config.high - config.low) * (1 - math.cos(2 * math.pi * periods)) / 2
