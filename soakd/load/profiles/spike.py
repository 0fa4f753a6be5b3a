"""A base rate with one spike in it; the time before, in and after the spike are stages of their own."""

from __future__ import annotations

from pydantic import Field

from soakd.fields import ConfigModel, Ratio
from soakd.load.arrivals import Open, Process, flat
from soakd.load.spec import Stage

KIND = "spike"


class Config(ConfigModel):
    """Rates are in requests per real second; the spike begins ``at`` and lasts ``width``, as shares of the whole."""

    base: float = Field(1.0, gt=0, le=1_000_000)
    peak: float = Field(10.0, gt=0, le=1_000_000)
    at: Ratio = 0.5
    width: Ratio = 0.05
    process: Process = "poisson"


def build(config: Config, duration_s: float) -> tuple[Stage, ...]:
    begin, end = config.at, min(1.0, config.at + config.width)
    parts = (
        ("before the spike", config.base, begin),
        ("spike", config.peak, end - begin),
        ("after the spike", config.base, 1.0 - end),
    )
    return tuple(
        Stage(name, Open(flat(rate), config.process), share * duration_s) for name, rate, share in parts if share > 0
    )
