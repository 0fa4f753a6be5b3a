"""What a sink and the forwarder agree on: how a write can fail, and how batches are cut and paced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Protocol

from pydantic import Field

from soakd.errors import SoakdError
from soakd.fields import ConfigModel, Seconds
from soakd.model import Event, Finding, Sample

Record = Sample | Event | Finding


class SinkError(SoakdError):
    """A write failed; nothing is known of how much of it arrived, so that it is repeated as a whole."""


class SinkUnavailableError(SinkError):
    """The database is down, slow or overloaded: the same write will do later. ``retry_after_s`` is its own wish."""

    def __init__(self, message: str, *, hint: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class SinkRefusedError(SinkError):
    """The token, the bucket or the address is wrong: a person has to act, until then every write fails."""


class SinkTooLargeError(SinkError):
    """The batch is larger than the database takes."""


class SinkRejectedError(SinkError):
    """Something in the batch will never be taken; ``str()`` is the database's reason."""


class DeliveryConfig(ConfigModel):
    """Keys that every sink has.

    ``batch_rows`` at most, and ``every`` so long, whichever comes first. What is older than ``live_within`` waits
    behind newer data and is caught up at ``catch_up_rows_per_s`` at most.
    """

    batch_rows: Annotated[int, Field(ge=1, le=50_000)] = 5_000
    every: Seconds = 1.0
    live_within: Seconds = 60.0
    catch_up_rows_per_s: Annotated[int, Field(ge=100)] = 100_000


class LineSink(Protocol):
    """A ``Sink`` that can show what it would write."""

    async def write(self, batch: Sequence[Record]) -> None:
        """Raises SinkError and nothing else."""
        ...

    async def close(self) -> None: ...

    def line(self, record: Record) -> str:
        """The record as the database gets it, for what is set aside."""
        ...
