"""A fixed number of streams, each sending its next request when the last one ended."""

from __future__ import annotations

from pydantic import Field

from soakd.fields import ConfigModel, Seconds
from soakd.load.arrivals import Closed
from soakd.load.spec import Stage

KIND = "closed"


class Config(ConfigModel):
    """``think`` is the pause between an answer and the next request, random (exponential) with ``think_random``;
    starts are spread over ``stagger``. Both are real time, also in a rehearsal."""

    concurrency: int = Field(8, ge=1, le=100_000)
    think: Seconds = 0.0
    think_random: bool = False
    stagger: Seconds = 1.0


def build(config: Config, duration_s: float) -> tuple[Stage, ...]:
    arrivals = Closed(config.concurrency, config.think, config.think_random, config.stagger)
    return (Stage("hold", arrivals, duration_s),)
