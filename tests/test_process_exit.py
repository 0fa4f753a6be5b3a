from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from soakd.process_exit import ExitCause, ExitWatch, judge_exit


@pytest.mark.parametrize(
    ("status", "kills", "cause"),
    [
        (9, 1, ExitCause.OOM_KILL),
        (9, 0, ExitCause.EXTERNAL_KILL),
        (9, None, ExitCause.EXTERNAL_KILL),
        (15, 3, ExitCause.EXTERNAL_KILL),
        (11, 0, ExitCause.CRASH),
        (6 | 0x80, 0, ExitCause.CRASH),
        (1 << 8, 0, ExitCause.ERROR_EXIT),
        (137 << 8, 1, ExitCause.OOM_KILL),
        (139 << 8, 0, ExitCause.CRASH),
        (0, 0, ExitCause.CLEAN_EXIT),
        (None, 1, ExitCause.OOM_KILL),
        (None, 0, ExitCause.UNKNOWN),
        (None, None, ExitCause.UNKNOWN),
    ],
)
def test_what_ended_it(status: int | None, kills: int | None, cause: ExitCause) -> None:
    assert judge_exit(status, kills).cause is cause


def test_only_a_sigkill_without_an_oom_kill_says_so() -> None:
    assert "no OOM kill" in judge_exit(9, 0).text
    assert "no OOM kill" not in judge_exit(9, None).text


@pytest.mark.integration
def test_the_kernel_tells_how_a_process_that_is_not_ours_ended() -> None:
    shell = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess; c = subprocess.Popen(['sleep', '30']); print(c.pid, flush=True); c.wait()",
        ],
        stdout=subprocess.PIPE,
    )
    assert shell.stdout is not None
    grandchild = int(shell.stdout.readline())
    watch = ExitWatch(grandchild)
    assert watch.status() is None
    subprocess.run(["kill", "-SEGV", str(grandchild)], check=True)
    shell.wait(10)
    status = watch.status()
    watch.close()
    assert status in (None, int(signal.SIGSEGV), int(signal.SIGSEGV) | 0x80), "None before Linux 6.15"


def test_a_process_that_is_not_there() -> None:
    watch = ExitWatch(2**22 - 1)
    assert watch.status() is None
    watch.close()
