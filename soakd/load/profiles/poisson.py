"""Requests at random, independent of each other: what many users together look like."""

from __future__ import annotations

from pydantic import Field

from soakd.fields import ConfigModel
from soakd.load.arrivals import Open, flat
from soakd.load.spec import Stage

KIND = "poisson"


class Config(ConfigModel):
    """``rate`` is the mean, in requests per real second."""

    rate: float = Field(1.0, gt=0, le=1_000_000)


def build(config: Config, duration_s: float) -> tuple[Stage, ...]:
    return (Stage("hold", Open(flat(config.rate), "poisson"), duration_s),)
