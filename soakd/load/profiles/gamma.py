"""Requests that come in bursts (or more evenly than at random): a gamma process."""

from __future__ import annotations

from pydantic import Field

from soakd.fields import ConfigModel
from soakd.load.arrivals import Open, flat
from soakd.load.spec import Stage

KIND = "gamma"


class Config(ConfigModel):
    """``rate`` is the mean, in requests per real second; ``burstiness`` the squared coefficient of variation of the
    gaps: 1 is Poisson, above 1 bursts, below 1 is more even."""

    rate: float = Field(1.0, gt=0, le=1_000_000)
    burstiness: float = Field(4.0, gt=0, le=1000)


def build(config: Config, duration_s: float) -> tuple[Stage, ...]:
    return (Stage("hold", Open(flat(config.rate), "gamma", config.burstiness), duration_s),)
