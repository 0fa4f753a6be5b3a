"""A recovery drill as it stands in a configuration."""

from __future__ import annotations

from pydantic import Field, field_validator

from soakd.fields import ConfigModel, Seconds


class DrillConfig(ConfigModel):
    """The operator's own command, run once in mid-soak without a shell: a restart, a failover, a pulled cable.

    ``at`` counts from the start of the measured part on the run's clock, ``timeout`` is real time. An outage that a
    ``planned`` drill brings is no unplanned outage.
    """

    at: Seconds
    command: tuple[str, ...] = Field(min_length=1, max_length=256)
    timeout: Seconds = 60.0
    planned: bool = True

    @field_validator("at", "timeout")
    @classmethod
    def _forward(cls, value: float) -> float:
        if value <= 0:
            raise ValueError("give a time above 0s")
        return value

    @field_validator("command", mode="before")
    @classmethod
    def _numbers(cls, value: object) -> object:
        """YAML reads ``-9`` and a port as numbers."""
        if not isinstance(value, list | tuple):
            return value
        return [str(part) if isinstance(part, int) and not isinstance(part, bool) else part for part in value]

    @field_validator("command")
    @classmethod
    def _program(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value[0] or any("\0" in part for part in value):
            raise ValueError("give a program and its arguments, such as [systemctl, restart, vllm]")
        return value
