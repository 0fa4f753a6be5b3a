"""``soakd collect --record`` and ``--replay``: the cards of a host as files that can be shown to others, and back."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

from soakd.clock import RealClock
from soakd.commands.soaking import cards
from soakd.commands.terminal import print_json, run_async, say
from soakd.errors import SoakdError
from soakd.nvml.device import DeviceError
from soakd.nvml.recorder import record
from soakd.nvml.replay import load_recording
from soakd.nvml.sysfs_tree import write_sysfs
from soakd.ports import Roots


def record_cards(directory: Path, frames: int, *, as_json: bool) -> None:
    """A folder per card; their paths on stdout. Raises SoakdError: no card, or the folder can't be written."""
    paths = [str(path) for path in run_async(lambda: _record(directory, frames))]
    if as_json:
        print_json({"recordings": paths})
    else:
        typer.echo("\n".join(paths))
    say("UUIDs, serial numbers and process ids are replaced; look through it before you give it away")


async def _record(directory: Path, frames: int) -> tuple[Path, ...]:
    clock = RealClock()
    async with cards(clock) as pool:
        if pool.why_none:
            raise SoakdError("nothing to record", hint=pool.why_none)
        return await record(pool, clock, Roots().sys, directory, frames=frames)


@contextmanager
def replayed(recordings: Sequence[Path]) -> Iterator[tuple[tuple[str, ...], Roots]]:
    """What plays these recordings as NVML workers, and roots with their sysfs. Raises SoakdError."""
    trees: dict[str, dict[str, str]] = {}
    for path in recordings:
        try:
            load_recording(path)
            if (path / "sysfs.json").is_file():
                trees.update(json.loads((path / "sysfs.json").read_text()))
        except DeviceError as error:
            raise SoakdError(error.what, hint="give a folder that `soakd collect --record` made") from None
        except (OSError, ValueError) as error:
            raise SoakdError(f"{path / 'sysfs.json'}: {error}") from None
    with tempfile.TemporaryDirectory(prefix="soakd-replay-") as folder:
        roots = Roots(sys=write_sysfs(trees, Path(folder)))
        yield (sys.executable, "-m", "soakd.nvml.replay", *(str(path.absolute()) for path in recordings)), roots
