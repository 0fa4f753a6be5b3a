"""Whoever ordered a soak hears of it, and can't hold it up."""

from __future__ import annotations

import asyncio

from soakd.service.parting import Parting
from soakd.service.telling import Teller


async def test_progress_that_finds_the_line_busy_is_left_out_and_the_report_comes_last() -> None:
    heard: list[object] = []
    reads = asyncio.Event()

    async def tell(message: dict[str, object]) -> None:
        await reads.wait()
        heard.append(message["n"])

    teller = Teller(tell)
    for n in range(5):
        teller.put({"n": n})
        await asyncio.sleep(0)
    reads.set()
    await teller.finish({"n": "report"})
    assert heard == [0, "report"]


async def test_one_who_never_reads_is_left() -> None:
    async def tell(_message: dict[str, object]) -> None:
        await asyncio.Event().wait()

    teller = Teller(tell, within_s=0.01)
    teller.put({"n": 1})
    async with asyncio.timeout(5):
        await teller.finish({"n": "report"})


async def test_one_who_has_hung_up_is_no_fault() -> None:
    async def tell(_message: dict[str, object]) -> None:
        raise ConnectionResetError("gone")

    teller = Teller(tell)
    teller.put({"n": 1})
    await teller.finish({"n": "report"})


async def test_parts_end_side_by_side_and_one_that_hangs_or_fails_costs_the_others_nothing() -> None:
    ended: list[str] = []

    async def hang() -> None:
        await asyncio.Event().wait()

    async def fail() -> None:
        raise RuntimeError("no")

    async def end() -> None:
        ended.append("good")

    parting = Parting(within_s=0.01)
    for name, stop in (("hangs", hang), ("fails", fail), ("good", end)):
        parting.add(name, stop)
    async with asyncio.timeout(5):
        await parting.stop()
    assert ended == ["good"]
