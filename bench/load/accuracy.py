"""How far a load engine's figures are from the truth: TTFT and ITL at P50/P95/P99 against a server that logs its own.

``python -m bench.load.accuracy [--streams 16,64,256,512] [--seconds 8] [--itl-ms 10] [--repeat 1] [--peers]``

It runs soakd's engine on both transports, a loop like that of vllm bench serve (own code) and, with ``--peers``,
guidellm and AIPerf from environments of their own under bench/out. Client and server are pinned to different cores; all
figures of a row are of one run. A table goes to stdout, JSON to bench/out/accuracy.json.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import sys
from collections.abc import Callable

from bench.load import peers
from bench.load.harness import Cores, KnownServer, Measured, errors, known_server, pick_cores, save, shown, soakd_run
from soakd.load.arrivals import Closed
from soakd.load.spec import TransportKind

Client = Callable[[KnownServer, int, float, int], Measured]


def soakd(transport: TransportKind) -> Client:
    def run(server: KnownServer, streams: int, seconds: float, core: int) -> Measured:
        return asyncio.run(soakd_run(server, Closed(streams), seconds, core, transport))[1]

    return run


def row(client: Client, cores: Cores, streams: int, seconds: float, itl_ms: float) -> dict[str, object] | None:
    with known_server(cores.server, "--itl-ms", str(itl_ms)) as server:
        try:
            found = client(server, streams, seconds, cores.client)
        except peers.Unavailable as error:
            print(f"skipped: {error}", file=sys.stderr)
            return None
        truth = server.truth()
    ttft, itl = errors(found.ttft_ms, truth["ttft_ms"]), errors(found.itl_ms, truth["itl_ms"])
    true_ttft, true_itl = (shown(dict(truth[name])) for name in ("ttft_ms", "itl_ms"))
    tokens = f"{found.tokens_per_s:,.0f}" if found.tokens_per_s else "-"
    achieved = f"{found.concurrency:.1f}" if found.concurrency is not None else str(truth["peak_streams"])
    rss = f"{found.rss_mib:.0f}" if found.rss_mib else "-"
    print(
        f"| {found.client} | {streams} | {achieved} | {shown(found.ttft_ms)} | {true_ttft} | {shown(ttft)} "
        f"| {shown(found.itl_ms)} | {true_itl} | {shown(itl)} | {tokens} | {rss} |",
        flush=True,
    )
    if found.note:
        print(f"  {found.client} at {streams}: {found.note}", file=sys.stderr)
    return {**dataclasses.asdict(found), "truth": truth, "ttft_error_ms": ttft, "itl_error_ms": itl}


def main() -> None:
    parser = argparse.ArgumentParser(description="accuracy of load engines against a server of known timing")
    parser.add_argument("--streams", default="16,64,256,512")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--itl-ms", type=float, default=10.0, help="of the server; 50 is 20 tokens/s a stream")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--peers", action="store_true", help="install and run guidellm and AIPerf too")
    options = parser.parse_args()
    cores = pick_cores()
    clients: list[Client] = [soakd("raw"), soakd("aiohttp"), peers.vllm_like]
    if options.peers:
        clients += [peers.guidellm, peers.aiperf]
    print(
        "| client | asked | achieved | TTFT ms p50/p95/p99 | truth | error | ITL ms | truth | error | tokens/s | MiB |"
    )
    print("|" + "---|" * 11, flush=True)
    rows = []
    for streams in map(int, options.streams.split(",")):
        for client in clients:
            for _ in range(options.repeat):
                if (found := row(client, cores, streams, options.seconds, options.itl_ms)) is not None:
                    rows.append(found)
    print(save("accuracy.json", rows), file=sys.stderr)


if __name__ == "__main__":
    main()
