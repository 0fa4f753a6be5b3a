"""Tells whoever ordered a soak how it goes, without ever holding up the soak."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

Tell = Callable[[dict[str, object]], Awaitable[None]]
_REPORT_WITHIN_S = 5.0
log = structlog.get_logger(__name__)


class Teller:
    """Passes messages on: at most one progress message waits; one who does not read gets the report or is left."""

    def __init__(self, tell: Tell, within_s: float = _REPORT_WITHIN_S) -> None:
        self._tell = tell
        self._within_s = within_s
        self._task: asyncio.Task[None] | None = None

    def put(self, message: dict[str, object]) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send(message))

    async def finish(self, message: dict[str, object]) -> None:
        """The last message, after the one under way. Bounded in time."""
        try:
            async with asyncio.timeout(self._within_s):
                if self._task:
                    await self._task
                await self._send(message)
        except TimeoutError:
            log.warning("who ordered the soak does not read; the report is in the journal")

    async def _send(self, message: dict[str, object]) -> None:
        try:
            await self._tell(message)
        except (ConnectionError, RuntimeError) as error:  # who asked has hung up; the run goes on
            log.info("nobody listens to the soak's progress any more", why=str(error))


async def nobody(_message: dict[str, object]) -> None:
    """For a soak that no one waits for."""
