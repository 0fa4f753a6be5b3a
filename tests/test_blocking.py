from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from soakd.blocking import BlockingReader, StillBlockedError

STUCK = """
import asyncio, threading
from soakd.blocking import BlockingReader
async def main():
    reader = BlockingReader("x")
    try:
        async with asyncio.timeout(0.05):
            await reader.call(threading.Event().wait)
    except TimeoutError:
        print("on time")
asyncio.run(main())
"""


async def test_results_and_errors_come_back() -> None:
    reader = BlockingReader("t")
    assert await reader.call(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await reader.call(lambda: 1 // 0)
    assert [await reader.call(threading.get_ident) for _ in range(3)].count(threading.get_ident()) == 0
    reader.close()


async def test_while_a_call_is_stuck_the_next_is_refused_and_later_works_again() -> None:
    reader, gate = BlockingReader("t"), threading.Event()
    stuck = asyncio.create_task(reader.call(gate.wait))
    await asyncio.sleep(0)
    with pytest.raises(StillBlockedError, match="t: the read before"):
        await reader.call(lambda: 1)
    gate.set()
    assert await stuck
    assert await reader.call(lambda: 2) == 2
    reader.close()


def test_a_stuck_call_does_not_keep_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout == "on time\n"
