"""Rates one after the other, each held as long as the others and each a stage of its own."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from soakd.fields import ConfigModel
from soakd.load.arrivals import Open, Process, flat
from soakd.load.spec import Stage

KIND = "step"

Rate = Annotated[float, Field(gt=0, le=1_000_000)]


class Config(ConfigModel):
    """``rates`` are in requests per real second."""

    rates: tuple[Rate, ...] = Field(min_length=1, max_length=1000)
    process: Process = "poisson"


def build(config: Config, duration_s: float) -> tuple[Stage, ...]:
    each = duration_s / len(config.rates)
    return tuple(
        Stage(f"step {number} at {rate:g}/s", Open(flat(rate), config.process), each)
        for number, rate in enumerate(config.rates, 1)
    )
