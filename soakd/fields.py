"""Types of configuration fields that read units: ``Seconds`` takes ``2h``, ``Bytes`` ``32GiB``, ``Ratio`` ``1%``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from soakd.quantities import parse_duration, parse_size


class ConfigModel(BaseModel):
    """Base of every configuration model: unknown keys fail, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, allow_inf_nan=False)


def _duration(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is not a duration; write it with a unit, such as 90s, 10m or 2h")
    return parse_duration(value)


def _size(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is not a size; write it as 32GiB, 28GB or a number of bytes")
    return parse_size(value)


def _ratio(value: object) -> float:
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            value = float(value.strip()[:-1]) / 100
        except ValueError:
            raise ValueError(f"{value!r} is not a share; write it as 1% or 0.01") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{value!r} is not a share between 0 and 1; write it as 1% or 0.01")
    return float(value)


def _percent(value: object) -> float:
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            return float(value.strip()[:-1])
        except ValueError:
            pass
    elif not isinstance(value, bool | str) and isinstance(value, int | float):
        return float(value)
    raise ValueError(f"{value!r} is not a percentage; write it as 0.05%")


Seconds = Annotated[float, BeforeValidator(_duration)]
"""A duration with its unit (``90s``, ``1h30m``, ``800ms``), held in seconds."""

SomeSeconds = Annotated[Seconds, Field(gt=0)]
"""A duration that can't be 0: an interval, a deadline, a patience."""

Bytes = Annotated[int, BeforeValidator(_size)]
"""A size (``32GiB``, ``28GB``, a plain number of bytes), held in bytes."""

Ratio = Annotated[float, BeforeValidator(_ratio)]
"""A share from 0 to 1, also written as a percentage (``1%``)."""

Percent = Annotated[float, BeforeValidator(_percent)]
"""A percentage, written ``0.05%`` or ``0.05``, held in percent."""

FilePath = Path
