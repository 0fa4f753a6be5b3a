from __future__ import annotations

import os
import subprocess
import sys

import pytest

_COUNT = """
import os, soakd.cli
import numpy as np
a = np.ones((600, 600))
a @ a
print(len(os.listdir("/proc/self/task")))
"""

_JUDGE_AND_FORK = """
import subprocess, threading
import soakd.cli
import numpy as np
from soakd.analysis.slope import fit_growth

done = threading.Event()
x = np.arange(400.0)
y = np.random.default_rng(0).standard_normal(400)

def judge():
    for _ in range(40):
        fit_growth(x, y, np.column_stack([x % 7, x % 11]))
    done.set()

threading.Thread(target=judge, daemon=True).start()
while not done.is_set():
    subprocess.run(["true"], preexec_fn=lambda: None)  # makes it a plain fork, as uvloop's is
print("both went on")
"""


def _run(code: str, timeout_s: float) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=timeout_s, check=True
    )
    return ran.stdout.strip()


def test_blas_has_one_thread_in_a_process_of_soakd() -> None:
    assert _run(_COUNT, 60) == "1"


@pytest.mark.integration
def test_judging_on_a_thread_and_starting_commands_do_not_hang_each_other() -> None:
    assert _run(_JUDGE_AND_FORK, 120) == "both went on"
