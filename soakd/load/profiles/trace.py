"""Requests at the times of a recorded trace."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from soakd.fields import ConfigModel
from soakd.load.arrivals import Trace
from soakd.load.spec import Stage

KIND = "trace"


class Config(ConfigModel):
    """``file`` has one time in seconds a line, or JSON lines with ``field``; real time, divided by ``speedup``."""

    file: Path
    field: str = "timestamp"
    speedup: float = Field(1.0, gt=0, le=1_000_000)
    repeat: bool = False


def build(config: Config, duration_s: float) -> tuple[Stage, ...]:
    arrivals = Trace(str(config.file.resolve()), config.field, config.speedup, config.repeat)
    return (Stage("trace", arrivals, duration_s),)
