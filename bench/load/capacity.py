"""What one core of client sustains with its figures still within 5 %: streamed tokens/s and requests/s.

``python -m bench.load.capacity [--seconds 6] [--tries 3] [--peers]`` raises the number of streams step by step, on one
server of known timing (ITL 10 ms, 64 tokens), until TTFT P50 is off by more than 5 % or the server itself is late;
requests/s by answers of one token. The last step that held is the capacity. JSON goes to bench/out/capacity.json.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence

from bench.load import peers
from bench.load.harness import KnownServer, Measured, known_server, pick_cores, save, soakd_run
from soakd.load.arrivals import Closed
from soakd.load.spec import TransportKind

Client = Callable[[KnownServer, int, float, int], Measured]
TOKENS = (("tokens/s", ("--tokens", "64"), (32, 64, 128, 256, 384, 512, 768, 1024, 1536)),)
REQUESTS = (("requests/s", ("--tokens", "1", "--ttft-ms", "50"), (16, 32, 64, 128, 256, 384, 512, 768, 1024)),)
WITHIN = 0.05
SERVER_LATE_MS = 60.0


def soakd(transport: TransportKind) -> Client:
    def run(server: KnownServer, streams: int, seconds: float, core: int) -> Measured:
        return asyncio.run(soakd_run(server, Closed(streams), seconds, core, transport))[1]

    return run


def step(client: Client, unit: str, options: Sequence[str], streams: int, seconds: float) -> dict[str, object]:
    """One number of streams. Raises Unavailable."""
    cores = pick_cores()
    with known_server(cores.server, *options) as server:
        found = client(server, streams, seconds, cores.client)
        truth = server.truth()["ttft_ms"]
    p50 = found.ttft_ms["p50"]
    ratio = p50 / truth["p50"] if p50 and truth["p50"] else None
    rate = found.tokens_per_s if unit == "tokens/s" else found.requests_per_s
    why = "" if ratio is not None and abs(ratio - 1) <= WITHIN else "off by more than 5 %"
    if truth["p50"] > SERVER_LATE_MS:
        why = "the server is the limit"
    print(
        f"| {found.client} | {streams} | {rate or 0:,.0f} {unit} | {ratio or 0:.3f} | {truth['p50']:.1f} ms | {why} |",
        flush=True,
    )
    return {
        "client": found.client, "streams": streams, "unit": unit, "rate": rate, "ratio": ratio,
        "truth_p50_ms": truth["p50"], "why": why,
    }  # fmt: skip


def climb(
    client: Client, unit: str, options: Sequence[str], steps: Sequence[int], seconds: float, tries: int
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for streams in steps:
        for _ in range(tries):
            try:
                rows.append(step(client, unit, options, streams, seconds))
            except peers.Unavailable as error:
                print(f"skipped: {error}", file=sys.stderr)
                return rows
            if not rows[-1]["why"]:
                break
        else:
            break
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="capacity of one core of load engine")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--tries", type=int, default=3, help="runs of a step before it counts as not held")
    options = parser.parse_args()
    clients: list[Client] = [soakd("raw"), soakd("aiohttp"), peers.vllm_like]
    if options.peers:
        clients += [peers.guidellm, peers.aiperf]
    print("| client | streams | rate | TTFT p50 over truth | truth p50 | |\n|---|---|---|---|---|---|", flush=True)
    rows: list[dict[str, object]] = []
    for unit, arguments, steps in (*TOKENS, *REQUESTS):
        for client in clients:
            rows += climb(client, unit, arguments, steps, options.seconds, options.tries)
    print(save("capacity.json", rows), file=sys.stderr)


if __name__ == "__main__":
    main()
