"""A child that has no pipe to its parent still dies with it."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE

import psutil
import pytest

pytestmark = pytest.mark.integration

PARENT = """
import os, subprocess, sys, time
code = "import os, sys, time; from soakd.demo.lifeline import die_with_parent; die_with_parent(int(sys.argv[1])); "
code += "print(os.getpid(), flush=True); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", code, sys.argv[1] or str(os.getpid())], stdin=subprocess.DEVNULL)
child.wait()
"""


async def test_the_kernel_kills_it_when_the_parent_is_killed() -> None:
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, "", stdout=PIPE)
    assert parent.stdout is not None
    child = psutil.Process(int(await parent.stdout.readline()))
    assert child.is_running()
    parent.kill()
    _, alive = await asyncio.to_thread(psutil.wait_procs, [child], 10)
    assert not alive
    await parent.wait()


async def test_it_ends_at_once_when_the_parent_is_already_another() -> None:
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, "1", stdout=PIPE)
    out, _ = await asyncio.wait_for(parent.communicate(), 10)
    assert out == b""
