"""A daemon under clients that ask too much, send too much, or do not read; and one that forwards to a real database."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from soakd.demo.launch import DemoServer
from soakd.journal import JournalReader
from tests.support.daemons import configured, daemon, replayed
from tests.support.databases import influxd, missing
from tests.support.influx_shim import TOKEN, shim

pytestmark = pytest.mark.integration


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_many_who_ask_at_once_and_a_huge_body_cost_it_neither_memory_nor_readings(tmp_path: Path) -> None:
    async with daemon(configured(tmp_path), replayed("h200", copies=8)) as running, aiohttp.ClientSession() as client:
        await running.get("/metrics")
        before = resident(running.process.pid)

        async def get(path: str) -> int:
            async with client.get(running.url + path) as answer:
                await answer.read()
                return answer.status

        paths = ["/metrics", "/status", "/runs", "/healthz"] * 100
        assert set(await asyncio.gather(*(get(path) for path in paths))) == {200}
        huge = b"x" * (64 * 2**20)
        for headers, expected in ((running.headers, 413), ({}, 401)):
            try:
                async with client.post(running.url + "/soaks", data=huge, headers=headers) as answer:
                    assert answer.status == expected
            except aiohttp.ClientOSError:  # it hung up in the middle of what it had refused
                pass
        assert resident(running.process.pid) - before < 64 * 2**20
        assert (await running.get("/healthz"))[0] == 200
        async with asyncio.timeout(30):  # eight workers take their time to start
            while 'collector_missed_total{collector="gpu_thermal"' not in (await running.get("/metrics"))[1]:  # noqa: ASYNC110  # another process: no event to wait for
                await asyncio.sleep(0.5)


async def test_one_who_orders_a_soak_and_never_reads_holds_up_nothing(llama_server: DemoServer, tmp_path: Path) -> None:
    config = configured(tmp_path, target={"url": llama_server.url}, load={"profile": "smoke", "duration": "8s"})
    async with daemon(config) as running:
        host, _, port = running.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1)
        body = orjson.dumps({})
        head = f"POST /soaks HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + f"Authorization: {running.headers['Authorization']}\r\n\r\n".encode() + body)
        await running.until_said("soak ended")
        async with asyncio.timeout(15):
            while (await running.get("/status"))[1]["soak_state"] != "idle":
                await running.until_said("who ordered the soak does not read; the report is in the journal", 10)
        writer.close()
        del reader
        began = time.monotonic()
        running.kill(signal.SIGTERM)
        assert await running.ended(10.0) == 0
        assert time.monotonic() - began < 10


@pytest.mark.skipif(missing("influxd"), reason="InfluxDB is not installed")
async def test_what_it_sees_is_in_the_database_also_after_an_outage_and_kill_9(tmp_path: Path) -> None:
    with influxd(tmp_path) as influx:
        influx.create("soakd")
        async with shim(influx.url) as front:
            sink = {
                "kind": "influx",
                "url": front.url,
                "org": "o",
                "bucket": "soakd",
                "token_env": "TEST_INFLUX",
                "every": "1s",
            }
            config = configured(tmp_path, sinks={"lab": sink})
            environment = {**replayed("h200"), "TEST_INFLUX": TOKEN}
            async with daemon(config, environment) as running:
                await front.until(lambda: len(front.lines) > 100, 60)
                front.mode = "503"
                await asyncio.sleep(4)  # of readings that have nowhere to go
                assert (await running.get("/healthz"))[0] == 200, "an outage of a database is no fault of the host's"
                status: dict[str, Any] = (await running.get("/status"))[1]
                (shown,) = status["sinks"]
                assert shown["name"] == "lab"
                assert TOKEN not in json.dumps(status)
                running.kill(signal.SIGKILL)
                await running.ended(5.0)
            front.mode = "ok"
            taken = len(front.lines)
            async with daemon(config, environment) as running:
                await front.until(lambda: len(front.lines) > taken + 300, 60)
                running.kill(signal.SIGTERM)
                assert await running.ended(10.0) == 0
        points = {at_ns for name, _, at_ns in influx.points("soakd") if name == "gpu_power_watts"}
    with JournalReader(tmp_path / "data") as reader:
        kept = {at for k in reader.series("gpu_power_watts") for at in reader.read(k.metric.name, k.labels).at_ns}
    sure = {at_ns for at_ns in kept if at_ns < max(kept) - 3 * 10**9}
    assert len(sure) >= 4
    assert sure <= points <= kept


async def test_it_ends_in_time_while_everything_around_it_hangs(tmp_path: Path) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    sink = {"kind": "influx", "url": url, "org": "o", "bucket": "b", "token_env": "TEST_INFLUX", "every": "1s"}
    config = configured(tmp_path, target={"url": url}, sinks={"lab": sink}, notifiers={"alertmanager": {"urls": [url]}})
    async with daemon(config, {"TEST_INFLUX": TOKEN}) as running:
        assert (await running.get("/status"))[1]["target"] is None
        began = time.monotonic()
        running.kill(signal.SIGTERM)
        assert await running.ended(15.0) == 0
        assert time.monotonic() - began < 10
    server.close()
