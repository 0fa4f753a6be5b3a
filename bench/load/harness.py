"""What the load benches share: the server of known timing, soakd's own engine pinned to a core, a loop to beat."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import resource
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from soakd.load.arrivals import Arrivals, Closed
from soakd.load.driver import LoadDriver
from soakd.load.messages import Done, Tick
from soakd.load.prompts import make_spec
from soakd.load.spec import LoadSpec, Stage, TargetSpec, TransportKind
from soakd.load.worker_process import COMMAND

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "out"
WARM_S = 2.0
QUANTILES = (("p50", 0.50), ("p95", 0.95), ("p99", 0.99))


@dataclass(frozen=True, slots=True)
class Cores:
    """One core for the client, another for the server; None where the machine has but one."""

    client: int
    server: int | None


def pick_cores() -> Cores:
    found = sorted(os.sched_getaffinity(0))
    return Cores(found[0], found[1] if len(found) > 1 else None)


class KnownServer:
    """The server process; its truth is asked over HTTP."""

    def __init__(self, url: str) -> None:
        self.url = url

    def truth(self) -> dict[str, dict[str, float]]:
        return self._ask("/truth")

    def reset(self) -> None:
        self._ask("/reset")

    def _ask(self, path: str) -> dict[str, dict[str, float]]:
        with urllib.request.urlopen(self.url + path, timeout=20) as answer:
            document: dict[str, dict[str, float]] = json.load(answer)
        return document


@functools.cache
def server_command() -> tuple[str, ...]:
    """The server of known timing: in C where this machine has a compiler, since the one in Python is the limit from
    about 512 streams on."""
    source = HERE.parent / "servers" / "known_timing.c"
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        print("no C compiler: the server is known_timing.py, which is late from 512 streams on", file=sys.stderr)
        return sys.executable, str(source.with_suffix(".py"))
    OUT.mkdir(parents=True, exist_ok=True)
    program = OUT / "known_timing"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        subprocess.run([compiler, "-O2", "-o", str(program), str(source)], check=True)
    return (str(program),)


@contextlib.contextmanager
def known_server(core: int | None, *options: str) -> Iterator[KnownServer]:
    command = [*server_command(), *options]
    if core is not None:
        command += ["--core", str(core)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield KnownServer(json.loads(process.stdout.readline())["url"])
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(10)


@dataclass(frozen=True, slots=True)
class Measured:
    """What a client reported: milliseconds by quantile, and what it really did."""

    client: str
    streams: int
    ttft_ms: dict[str, float | None]
    itl_ms: dict[str, float | None]
    tokens_per_s: float | None
    requests_per_s: float | None
    concurrency: float | None
    rss_mib: float | None
    note: str = ""


async def soakd_run(
    server: KnownServer, arrivals: Arrivals, seconds: float, core: int, transport: TransportKind = "auto"
) -> tuple[Done, Measured]:
    """Warm up, measure, and have the server's truth begin where the measurement does."""
    pin = ("taskset", "-c", str(core)) if shutil.which("taskset") else ()
    driver = LoadDriver((*pin, *COMMAND))
    spec = LoadSpec(
        TargetSpec((server.url,), model="known-timing"),
        (Stage("warm-up", arrivals, WARM_S, False), Stage("measured", arrivals, seconds)),
        make_spec("mixture", {}, context_tokens=512),
        transport=transport,
        workers=1,
        max_in_flight=20_000,
        records=False,
        drain_s=3.0,
    )
    await driver.start(spec)
    done: Done | None = None
    reset = False
    async for message in driver.messages():
        if isinstance(message, Tick) and not reset and message.elapsed_s >= WARM_S:
            server.reset()
            reset = True
        elif isinstance(message, Done):
            done = message
    assert done is not None
    total = done.total
    streams = arrivals.concurrency if isinstance(arrivals, Closed) else 0
    return done, Measured(
        f"soakd ({transport})" if transport != "auto" else "soakd",
        streams,
        {name: _ms(total.histograms.ttft.quantile_s(q)) for name, q in QUANTILES},
        {name: _ms(total.histograms.itl.quantile_s(q)) for name, q in QUANTILES},
        total.output_tokens_per_s,
        total.rate_per_s,
        total.concurrency,
        done.worker_rss_bytes / 2**20 if done.worker_rss_bytes else None,
        done.bottleneck,
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def errors(measured: dict[str, float | None], truth: dict[str, float]) -> dict[str, float | None]:
    """The client's figure less the server's, in ms."""
    return {name: None if (value := measured.get(name)) is None else value - truth[name] for name, _ in QUANTILES}


def shown(values: dict[str, float | None]) -> str:
    return "/".join("-" if values.get(name) is None else f"{values[name]:.1f}" for name, _ in QUANTILES)


def save(name: str, document: object) -> Path:
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / name
    path.write_text(json.dumps(document, indent=1, default=str) + "\n")
    return path


def children_cpu_s() -> float:
    """Processor time of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
