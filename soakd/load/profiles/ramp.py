"""A rate that rises (or falls) evenly, and then holds."""

from __future__ import annotations

from pydantic import Field

from soakd.fields import ConfigModel, Ratio
from soakd.load.arrivals import Open, Process
from soakd.load.spec import Stage

KIND = "ramp"


class Config(ConfigModel):
    """Rates are in requests per real second; ``ramp_share`` of the stage is the ramp, the rest holds ``to_rate``."""

    from_rate: float = Field(0.0, ge=0, le=1_000_000)
    to_rate: float = Field(10.0, gt=0, le=1_000_000)
    ramp_share: Ratio = 1.0
    process: Process = "poisson"


def build(config: Config, duration_s: float) -> tuple[Stage, ...]:
    top = config.ramp_share
    curve = ((0.0, config.from_rate), (top, config.to_rate), (1.0, config.to_rate))
    return (Stage("ramp", Open(curve, config.process), duration_s),)
