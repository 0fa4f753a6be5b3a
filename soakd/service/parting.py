"""The end of the daemon's parts: side by side, so that one which hangs costs the others nothing, and in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

_WITHIN_S = 2.5
log = structlog.get_logger(__name__)


class Parting:
    """Parts are added as they start; ``stop`` ends those that did."""

    def __init__(self, within_s: float = _WITHIN_S) -> None:
        self._within_s = within_s
        self._parts: list[tuple[str, Callable[[], Awaitable[object]]]] = []

    def add(self, name: str, stop: Callable[[], Awaitable[object]]) -> None:
        self._parts.append((name, stop))

    async def stop(self) -> None:
        """Ends all parts. What fails or does not end in time is logged; nothing is raised for it."""
        tasks = {asyncio.ensure_future(stop()): name for name, stop in self._parts}
        if not tasks:
            return
        done, late = await asyncio.wait(tasks, timeout=self._within_s)
        for task in late:
            log.warning("did not end in time and is left behind", part=tasks[task])
            task.cancel()
        for task in done:
            if not task.cancelled() and (error := task.exception()):
                log.error("ended with an error", part=tasks[task], error=repr(error))
