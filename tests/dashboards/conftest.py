"""An InfluxDB that two SIMULATED hosts have filled through soakd's own journal, forwarder and sink."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from soakd.forward import Forwarder, SinkSpec
from soakd.journal import Journal, JournalTail
from soakd.model import labels
from soakd.sinks import influx
from tests.support.databases import Influx, influxd, missing
from tests.support.grafana import View
from tests.support.influx_shim import TOKEN, Shim, shim

DATABASE = "soakd"
SCENARIOS = {"crashing": "server-crash", "losing": "gpu-lost"}
"""Host to scenario: one brings failed requests and an outage, the other XIDs and a card that is lost."""
_REHEARSAL = ("--duration", "20m", "--speed", "120", "--json")


@dataclass(frozen=True, slots=True)
class Filled:
    """``runs`` is the run of each host."""

    url: str
    from_ns: int
    to_ns: int
    runs: dict[str, str]

    def view(self, **chosen: list[str] | None) -> View:
        return View(self.from_ns, self.to_ns, {"host": None, "gpu": None, "run": None, **chosen})


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    if missing("influxd"):
        if os.environ.get("SOAKD_REQUIRE_SERVICES") == "1":
            pytest.fail("influxd is not installed, and SOAKD_REQUIRE_SERVICES is set")
        pytest.skip("influxd is not installed")
    with influxd(tmp_path_factory.mktemp("influx")) as server:
        server.create(DATABASE)
        folders = {host: tmp_path_factory.mktemp(host) for host in SCENARIOS}
        yield asyncio.run(_fill(server, folders))


async def _fill(server: Influx, folders: dict[str, Path]) -> Filled:
    await asyncio.gather(*(_rehearse(SCENARIOS[host], folder) for host, folder in folders.items()))
    times: list[int] = []
    runs: dict[str, str] = {}
    async with shim(server.url) as front:
        front.keep_lines = False
        for host, folder in folders.items():
            run, seen = await _forward(front, host, folder)
            runs[host] = run
            times += seen
    return Filled(server.url, min(times) - 60 * 10**9, max(times) + 60 * 10**9, runs)


async def _rehearse(scenario: str, folder: Path) -> None:
    arguments = ("rehearse", "--scenario", scenario, *_REHEARSAL, "--data-dir", str(folder))
    process: Process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from soakd.cli import main; main()", *arguments, stdout=DEVNULL, stderr=PIPE
    )
    _, said = await process.communicate()
    assert process.returncode in (0, 1, 3), said.decode()


async def _forward(front: Shim, host: str, folder: Path) -> tuple[str, tuple[int, int]]:
    """Run, and first and last time, of what was sent."""
    tail = JournalTail(folder)
    items = tail.window(0, tail.latest(), 10**9).items
    tail.close()
    os.environ["SOAKD_TEST_TOKEN"] = TOKEN
    config = influx.Config.model_validate({"url": front.url, "bucket": DATABASE, "token_env": "SOAKD_TEST_TOKEN"})
    spec = SinkSpec(config, lambda: influx.build(config, labels(host=host)))
    journal = Journal.open(folder)
    forwarder = Forwarder(journal, folder, {"influx": spec})
    forwarder.start()
    try:
        await front.until(lambda: bool(forwarder.status()) and forwarder.status()[0].rows >= len(items))
    finally:
        await forwarder.stop()
        await journal.close()
    (run,) = {dict(item.labels)["run"] for item in items if "run" in dict(item.labels)}
    return run, (min(item.at_ns for item in items), max(item.at_ns for item in items))
