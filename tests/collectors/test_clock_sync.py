from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.collectors.clock_sync import ClockSyncCollector, Config
from soakd.kernel_clock import (
    KernelClock,
    parse_timedatectl,
    parse_tracking,
    read_kernel_clock,
    run_command,
)
from soakd.model import State
from tests.support.proc_tree import HandClock, context, events, roots, samples, values

CHRONY = "C0A80101,ntp.example,3,1764558000.1,0.000250000,-0.00001,0.00003,-12.3,0.001,0.02,0.004,0.0007,64.2,Normal\n"


def collector(
    tmp_path: Path, clock: HandClock, kernel: KernelClock | OSError, answers: dict[str, str] | None = None
) -> ClockSyncCollector:
    async def run(arguments: Sequence[str], timeout_s: float) -> str | None:
        return (answers or {}).get(arguments[0])

    def read() -> KernelClock:
        if isinstance(kernel, OSError):
            raise kernel
        return kernel

    return ClockSyncCollector(Config(), context(roots(tmp_path), clock), read, run)


GOOD = KernelClock(True, 0.0002, 0.0001, 0.01)


async def test_the_daemons_own_figure_wins(tmp_path: Path) -> None:
    items = await collector(tmp_path, HandClock(), KernelClock(False, 0, 16, 16), {"chronyc": CHRONY}).collect()
    assert values(items, "clock_offset_seconds", source="chronyc") == [-0.00025]
    assert values(items, "clock_synchronised") == [1]
    assert values(items, "clock_max_error_seconds") == [16]


async def test_the_kernel_alone(tmp_path: Path) -> None:
    items = await collector(tmp_path, HandClock(), GOOD).collect()
    assert values(items, "clock_offset_seconds", source="adjtimex") == [-0.0002]
    assert values(items, "clock_synchronised") == [1]


async def test_an_unsynchronised_clock_has_no_offset_of_zero(tmp_path: Path) -> None:
    items = await collector(tmp_path, HandClock(), KernelClock(False, 0.0, 16, 16)).collect()
    assert values(items, "clock_synchronised") == [0]
    assert samples(items, "clock_offset_seconds")[0].state is State.ABSENT


async def test_timedatectl_is_the_last_resort(tmp_path: Path) -> None:
    refused = OSError(1, "Operation not permitted")
    items = await collector(tmp_path, HandClock(), refused, {"timedatectl": "NTPSynchronized=yes\n"}).collect()
    assert values(items, "clock_synchronised") == [1]
    assert samples(items, "clock_offset_seconds")[0].state is State.UNSUPPORTED
    nothing = await collector(tmp_path, HandClock(), refused).collect()
    assert samples(nothing, "clock_synchronised")[0].state is State.UNSUPPORTED


@pytest.mark.parametrize(
    ("step_s", "steps", "told"), [(0.05, 0, 0), (0.2, 1, 1), (-0.2, 1, 1), (3600.0, 1, 0), (-5.0, 1, 0)]
)
async def test_steps(tmp_path: Path, step_s: float, steps: int, told: int) -> None:
    clock = HandClock()
    watched = collector(tmp_path, clock, GOOD)
    await watched.collect()
    clock.pass_(60)
    clock.wall += int(step_s * 1e9)
    items = await watched.collect()
    assert values(items, "clock_steps_total") == [steps]
    assert len(events(items, "clock.step")) == told, "steps of half a second and more are told by the scheduler"
    clock.pass_(60)
    assert not events(await watched.collect())


@given(st.text(max_size=200))
def test_any_text_of_a_daemon(text: str) -> None:
    parse_tracking(text)
    parse_timedatectl(text)
    assert parse_tracking(CHRONY.replace("0.000250000", "x")) is None
    assert parse_tracking(CHRONY.replace("Normal", "Not synchronised")) is not None


def test_the_real_kernel_answers_or_refuses() -> None:
    try:
        found = read_kernel_clock()
    except OSError:
        return
    assert found.max_error_s >= 0


async def test_commands_are_bounded() -> None:
    assert await run_command((sys.executable, "-c", "print('yes')"), 20.0) == "yes\n"
    assert await run_command((sys.executable, "-c", "raise SystemExit(3)"), 20.0) is None
    assert await run_command(("/nowhere/chronyc",), 1.0) is None
    assert await run_command(("sleep", "60"), 0.05) is None
