"""Journal to real databases through every kind of trouble; afterwards every point is compared."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from soakd.forward import Condition
from soakd.journal import JournalReader
from soakd.model import Event, Sample, Severity
from tests.support.databases import Influx, Victoria, missing, victoria
from tests.support.forwarding import RUN, Machine, arrive, compare, machine, spec
from tests.support.influx_shim import TOKEN, shim
from tests.support.readings import T0, TEMPERATURE, card

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("trouble", ["503", "429", "500", "401", "drop", "hang"])
async def test_after_an_outage_every_point_is_there(
    tmp_path: Path, database: Influx, trouble: str, outage_s: int
) -> None:
    name = f"outage_{trouble}"
    database.create(name)
    async with (
        shim(database.url) as server,
        machine(tmp_path, {"influx": spec(server.url, name)}) as host,
    ):
        await host.run(20)
        await arrive(server, host)
        server.mode = trouble
        await host.run(outage_s, seed=2)
        tried = server.requests
        await server.until(lambda: server.requests >= tried + 2)
        assert len(server.lines) < len(host.expected)
        server.mode = "ok"
        await host.run(10, seed=3)
        await arrive(server, host)
        compare(database, name, host)
        with JournalReader(tmp_path) as reader:
            kinds = [event.kind for event in reader.events(kind="forward")]
        assert kinds.count("forward.recovered") <= 1


async def test_a_slow_database_gets_everything_in_the_end(tmp_path: Path, database: Influx, outage_s: int) -> None:
    database.create("slow")
    async with shim(database.url) as server, machine(tmp_path, {"i": spec(server.url, "slow")}) as host:
        server.mode, server.slow_s = "slow", 0.4
        await host.run(outage_s)
        await arrive(server, host)
        compare(database, "slow", host)


async def test_a_database_that_takes_small_bodies_only_gets_small_ones(tmp_path: Path, database: Influx) -> None:
    database.create("small")
    async with shim(database.url) as server, machine(tmp_path, {"i": spec(server.url, "small")}) as host:
        server.largest = 20_000
        await host.run(60)
        await arrive(server, host)
        compare(database, "small", host)
        assert host.forwarder.status()[0].batch_rows < 5000


async def test_a_line_that_conflicts_is_set_aside_with_influxdbs_reason_and_the_rest_arrives(
    tmp_path: Path, database: Influx
) -> None:
    database.create("conflict")
    async with shim(database.url) as server:
        async with machine(tmp_path, {"i": spec(server.url, "conflict")}) as host:
            _write_raw(database, "conflict", f'{TEMPERATURE.name}_odd value="a string" {T0}')
            odd = replace(TEMPERATURE, name=f"{TEMPERATURE.name}_odd")
            host.journal.add([Sample.ok(odd, 1.0, T0 + 1, card(0)), Sample.ok(odd, 2.0, T0 + 2, card(0))], RUN)
            await host.run(20, seed=2)
            await server.until(lambda: host.forwarder.status()[0].rejected == 2)
            await arrive(server, host)
            await host.forwarder.stop()
            await host.journal.flush()
            with JournalReader(tmp_path) as reader:
                (lag,) = reader.summary().cursors
                aside = reader.set_aside()
        assert lag.set_aside == 2
        assert all("field type conflict" in one.reason for one in aside)
        found = database.points("conflict")
        assert {k: v for k, v in found.items() if k in host.expected} == host.expected


async def test_a_wrong_token_is_said_once_and_its_recovery(tmp_path: Path, database: Influx) -> None:
    database.create("token")
    async with shim(database.url) as server, machine(tmp_path, {"i": spec(server.url, "token")}) as host:
        server.mode = "401"
        await host.run(5)
        await server.until(lambda: server.requests >= 4)
        assert host.condition is Condition.REFUSED
        server.mode = "ok"
        await arrive(server, host)
        await host.forwarder.stop()
        await host.journal.flush()
        with JournalReader(tmp_path) as reader:
            events = reader.events(kind="forward")
        assert [event.kind for event in events] == ["forward.refused", "forward.recovered"]
        assert "401" in events[0].what
        assert TOKEN not in repr(events)


async def test_sinks_side_by_side_do_not_wait_for_each_other(tmp_path: Path, database: Influx) -> None:
    database.create("one")
    database.create("two")
    async with shim(database.url) as well, shim(database.url) as ill:
        ill.mode = "hang"
        sinks = {"one": spec(well.url, "one"), "two": spec(ill.url, "two")}
        async with machine(tmp_path, sinks) as host:
            await host.run(30)
            await arrive(well, host)
            compare(database, "one", host)
            assert not ill.lines
            ill.mode = "ok"
            await arrive(ill, host)
            compare(database, "two", host)


async def test_a_stop_is_quick_even_if_the_database_hangs(tmp_path: Path, database: Influx) -> None:
    database.create("hung")
    async with shim(database.url) as server:
        server.mode = "hang"
        sink = spec(server.url, "hung", timeout="60s")
        async with machine(tmp_path, {"i": sink}) as host:
            await host.run(2)
            async with asyncio.timeout(4):
                await host.forwarder.stop()


async def test_victoriametrics_takes_the_same_points(tmp_path: Path) -> None:
    if missing("victoria-metrics"):
        pytest.skip("victoria-metrics is not installed")
    with victoria(tmp_path) as server:
        await _through_victoria(tmp_path / "journal", server)


async def _through_victoria(directory: Path, server: Victoria) -> None:
    async with machine(directory, {"vm": spec(server.url, "soakd", texts=False)}) as host:
        await host.run(60)
        host.journal.add([Event("xid", T0, "text", Severity.INFO)])
        await host.journal.flush()
        await asyncio.to_thread(_drained, host)
    found = server.points()
    for (name, tags, at_ns), fields in host.expected.items():
        (key, value), *_ = fields.items()
        # VictoriaMetrics keeps milliseconds, and about twelve digits of a value
        assert found[(f"{name}_{key}", tags, at_ns // 1_000_000)] == pytest.approx(value, rel=1e-9)
    assert not any(name.endswith("_what") for name, _, _ in found)
    assert server.invalid_rows() == 0


def _drained(host: Machine, within_s: float = 30.0) -> None:
    until = time.monotonic() + within_s
    while host.forwarder.status()[0].rows < len(host.expected) + 1:
        assert time.monotonic() < until, host.forwarder.status()
        time.sleep(0.05)


def _write_raw(database: Influx, name: str, line: str) -> None:
    with urllib.request.urlopen(f"{database.url}/write?db={name}", data=line.encode(), timeout=10) as answer:
        assert answer.status == 204
