"""A client loop like that of `vllm bench serve`, as a peer. OWN CODE, written from a description of it; it is not vLLM.

What it shares with it: aiohttp on the standard event loop, a first request to try the server, one task per request made
up front behind a semaphore, answers split on blank lines and parsed with ``json``, a list of floats per request kept to
the end, percentiles by numpy.

``python -m bench.load.vllm_like --url URL --streams N --seconds S`` prints one JSON document.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import time
from dataclasses import dataclass, field

import aiohttp
import numpy as np


@dataclass
class Output:
    """One request, as this kind of loop keeps it."""

    success: bool = False
    ttft: float = 0.0
    latency: float = 0.0
    tokens: int = 0
    itl: list[float] = field(default_factory=list)


async def request(session: aiohttp.ClientSession, url: str) -> Output:
    payload = {
        "model": "known-timing", "messages": [{"role": "user", "content": "w1 " * 16}], "stream": True,
        "temperature": 0.0, "max_completion_tokens": 64, "stream_options": {"include_usage": True},
    }  # fmt: skip
    output = Output()
    start = latest = time.perf_counter()
    async with session.post(url, json=payload) as response:
        if response.status != 200:
            return output
        rest = b""
        async for data in response.content.iter_any():
            *events, rest = (rest + data).split(b"\n\n")
            for event in events:
                text = event.decode().removeprefix("data: ").strip()
                if not text or text == "[DONE]":
                    continue
                now = time.perf_counter()
                document = json.loads(text)
                if choices := document["choices"]:
                    if not choices[0]["delta"].get("content"):
                        continue
                    if output.ttft == 0.0:
                        output.ttft = now - start
                    else:
                        output.itl.append(now - latest)
                    latest = now
                elif usage := document.get("usage"):
                    output.tokens = usage["completion_tokens"]
    output.latency = latest - start
    output.success = True
    return output


async def run(url: str, streams: int, seconds: float) -> dict[str, object]:
    """As many requests as ``streams`` bring in ``seconds`` at the pace of the first one."""
    gate = asyncio.Semaphore(streams)
    connector = aiohttp.TCPConnector(limit=streams, limit_per_host=streams)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=6 * 3600)) as session:

        async def limited() -> Output:
            async with gate:
                return await request(session, url)

        tried = await request(session, url)
        count = max(streams, round(streams * seconds / tried.latency)) if tried.success else streams
        began = time.perf_counter()
        outputs = await asyncio.gather(*(asyncio.create_task(limited()) for _ in range(count)))
        took = time.perf_counter() - began
    good = [output for output in outputs if output.success]
    return {
        "ttft_ms": _percentiles([output.ttft for output in good]),
        "itl_ms": _percentiles([gap for output in good for gap in output.itl]),
        "tokens_per_s": sum(output.tokens for output in good) / took,
        "requests_per_s": len(good) / took,
        "concurrency": sum(output.latency for output in good) / took,
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "failed": len(outputs) - len(good),
    }


def _percentiles(seconds: list[float]) -> dict[str, float | None]:
    return {
        name: float(np.percentile(seconds, q)) * 1e3 if seconds else None
        for name, q in (("p50", 50), ("p95", 95), ("p99", 99))
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="a client loop like that of vllm bench serve (own code)")
    parser.add_argument("--url", required=True)
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    url = f"{options.url}/v1/chat/completions"
    print(json.dumps(asyncio.run(run(url, options.streams, options.seconds))))


if __name__ == "__main__":
    main()
