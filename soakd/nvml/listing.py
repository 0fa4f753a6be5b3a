"""Finding the cards: a process that lists them and ends, because listing can hang as any other call of the driver."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from soakd.nvml.device import CardId

_KILL_GRACE_S = 1.0
_DRIVER = "/sys/bus/pci/drivers/nvidia"


def device_files() -> Hashable:
    """What changes when a card comes or goes, or the driver is loaded: cheap, and no call of the driver."""
    found: list[str] = []
    for folder in ("/dev", _DRIVER):
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        found += [f"{folder}/{name}" for name in names if folder == _DRIVER or name.startswith("nvidia")]
    return frozenset(found)


class Listing:
    """Runs the listing process, one at a time: one that can't be killed is waited out, not joined by others."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)
        self._stuck: asyncio.subprocess.Process | None = None

    async def run(self, deadline_s: float) -> tuple[CardId, ...] | str:
        """The cards, or as text the reason why there is no list. Ends within the deadline and a second."""
        if self._stuck is not None and self._stuck.returncode is None:
            return "the process that lists the cards is stuck in the driver"
        self._stuck = None
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return f"can't start {self._command[0]}: {error.strerror}"
        try:
            async with asyncio.timeout(deadline_s):
                out, err = await process.communicate()
        except TimeoutError:
            return f"listing the cards did not end within {deadline_s:g} s"
        finally:
            await self._end(process)
        return _read(out, err, process.returncode)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is not None:
            return
        process.kill()
        try:
            async with asyncio.timeout(_KILL_GRACE_S):
                await process.communicate()
        except TimeoutError:
            self._stuck = process


def _read(out: bytes, err: bytes, code: int | None) -> tuple[CardId, ...] | str:
    try:
        message = json.loads(out)
        if "failed" in message:
            return str(message["why"])
        return tuple(card_from(record) for record in message["cards"])
    except (ValueError, KeyError, TypeError):
        words = err.decode(errors="replace").strip().splitlines()
        return f"the listing process gave no list (exit code {code}) {words[-1] if words else ''}".strip()


def card_from(record: Mapping[str, Any]) -> CardId:
    """The identity that a worker wrote. Raises KeyError or TypeError."""
    return CardId(
        str(record["uuid"]), str(record["bdf"]), str(record["serial"]), str(record["name"]),
        int(record["ordinal"]), tuple(str(m) for m in record["migs"]),
    )  # fmt: skip
