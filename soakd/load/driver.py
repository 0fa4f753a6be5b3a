"""The owner's side of the load engine: starts the workers, merges what they say, never hangs on one that died."""

from __future__ import annotations

from collections.abc import AsyncIterator

from soakd.load.messages import Message
from soakd.load.spec import LoadSpec


class LoadDriver:
    """One load at a time.

    ``start`` raises WorkerError when no worker can be started. ``messages`` ends after its `Done`, which always
    comes: workers that die make an event, and the load ends with what was collected.
    """

    async def start(self, spec: LoadSpec) -> None:
        raise NotImplementedError

    def messages(self) -> AsyncIterator[Message]:
        raise NotImplementedError

    async def stop(self, grace_s: float = 2.0) -> None:
        """End the load: nothing new is sent, what is in flight gets ``grace_s`` real seconds. `Done` follows."""
        raise NotImplementedError
