"""The v2 shim before InfluxDB 1.6 as a process: prints its address and serves until it is ended."""

from __future__ import annotations

import asyncio
import sys

from tests.support.influx_shim import shim


async def main(upstream: str) -> None:
    async with shim(upstream) as server:
        server.keep_lines = False
        print(server.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
