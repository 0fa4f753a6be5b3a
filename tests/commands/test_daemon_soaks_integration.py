"""Soaks that a real daemon runs against llama.cpp's real server: by order, by cron, refused, interrupted."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from soakd.demo.launch import DemoServer
from soakd.journal import JournalReader
from tests.support.daemons import Daemon, configured, daemon, outcome, soakd

pytestmark = pytest.mark.integration
SHORT: dict[str, object] = {"profile": "smoke", "duration": "10s"}


def soaking(tmp_path: Path, server: DemoServer, **sections: object) -> Path:
    return configured(tmp_path, target={"url": server.url}, load=SHORT, **sections)


async def first_progress(running: Daemon, client: aiohttp.ClientSession) -> aiohttp.ClientResponse:
    """An order whose load runs; what it streams is not read further."""
    body = {"sets": {"load.duration": "300s"}}
    answer = await client.post(running.url + "/soaks", json=body, headers=running.headers)
    assert answer.status == 200, await answer.text()
    async with asyncio.timeout(60):
        async for line in answer.content:
            if json.loads(line)["progress"]["completed"]:
                return answer
    raise AssertionError("no progress")


async def test_run_asks_the_daemon_and_ends_as_the_run_does(llama_server: DemoServer, tmp_path: Path) -> None:
    config = soaking(tmp_path, llama_server)
    async with daemon(config) as running:
        code, out, err = await outcome(await soakd("run", "-c", str(config), "--json"))
        report = json.loads(out)
        assert f"the daemon at {running.url} does the run" in err
        assert code == {"PASS": 0, "FAIL": 1, "INCONCLUSIVE": 3}[report["outcome"]]
        assert report["load"]["completed"] > 10
        status = (await running.get("/status"))[1]
        assert (status["soak_state"], status["soak"]) == ("idle", None)
        assert status["last_soak"]["run_id"] == report["run_id"]
        assert status["last_soak"]["outcome"] == report["outcome"]
        metrics = (await running.get("/metrics"))[1]
        assert "soak_state{" in metrics
        assert "soak_outcome{" in metrics
        assert 'metric="soak_growth_bytes_per_hour"' in metrics, "ten seconds tell no slope, and that is told"
        assert json.loads((tmp_path / "data/runs" / report["run_id"] / "report.json").read_bytes()) == report
        running.kill(signal.SIGTERM)
        assert await running.ended(10.0) == 0
    async with daemon(config) as again:
        assert (await again.get("/status"))[1]["last_soak"]["run_id"] == report["run_id"]
        assert "soak_outcome{" in (await again.get("/metrics"))[1]


async def test_a_failed_limit_is_exit_1_through_the_daemon_too(llama_server: DemoServer, tmp_path: Path) -> None:
    config = soaking(tmp_path, llama_server, limits={"e2e_p95": "1ms"})
    async with daemon(config):
        code, out, _ = await outcome(await soakd("run", "-c", str(config), "--json"))
        assert (code, json.loads(out)["outcome"]) == (1, "FAIL")


async def test_ctrl_c_of_the_client_leaves_the_run_to_the_daemon(llama_server: DemoServer, tmp_path: Path) -> None:
    config = soaking(tmp_path, llama_server)
    async with daemon(config) as running:
        client = await soakd("run", "-c", str(config))
        assert client.stderr is not None
        async with asyncio.timeout(60):
            while "|" not in (line := (await client.stderr.readline()).decode()):
                assert line
        client.send_signal(signal.SIGINT)
        code, _, err = await outcome(client)
        assert code == 130
        assert "the run goes on in the daemon" in err
        status = (await running.get("/status"))[1]
        assert status["soak_state"] == "running"
        ended = await running.until_said("soak ended")
        assert ended["outcome"] in ("PASS", "INCONCLUSIVE")


async def test_sigterm_in_a_soak_ends_within_ten_seconds_with_the_report(
    llama_server: DemoServer, tmp_path: Path
) -> None:
    async with daemon(soaking(tmp_path, llama_server)) as running, aiohttp.ClientSession() as client:
        answer = await first_progress(running, client)
        running.kill(signal.SIGTERM)
        lines = [json.loads(line) async for line in answer.content]
        assert await running.ended(10.0) == 0
    assert lines[-1]["exit_code"] == 143
    report: dict[str, Any] = lines[-1]["report"]
    assert report["outcome"] != "PASS"
    assert (tmp_path / "data/runs" / report["run_id"] / "report.html").is_file()
    with JournalReader(tmp_path / "data") as reader:
        (run,) = reader.runs()
        assert json.loads(run.report) == report


async def test_kill_9_in_a_soak_leaves_a_run_that_can_be_judged(llama_server: DemoServer, tmp_path: Path) -> None:
    config = soaking(tmp_path, llama_server)
    async with daemon(config) as running, aiohttp.ClientSession() as client:
        await first_progress(running, client)
        running.kill(signal.SIGKILL)
        await running.ended(5.0)
    async with daemon(config) as again:
        (run,) = (await again.get("/runs"))[1]["runs"]
        assert (run["state"], run["outcome"]) == ("interrupted", None)
        code, out, err = await outcome(await soakd("report", "latest", "-c", str(config), "--json"))
        assert code == 0, err
        assert json.loads(out)["outcome"] != "PASS"
        assert (await again.get("/status"))[1]["soak_state"] == "idle"


async def test_a_second_order_is_refused_and_the_first_goes_on(llama_server: DemoServer, tmp_path: Path) -> None:
    config = soaking(tmp_path, llama_server)
    async with daemon(config) as running, aiohttp.ClientSession() as client:
        await first_progress(running, client)
        code, _, err = await outcome(await soakd("run", "-c", str(config)))
        assert code == 2
        assert "a soak is running already" in err
        status, refused = await running.post("/gpu/release")
        assert (status, refused["error"]) == (409, "a soak is running; its telemetry needs the cards")
        status = (await running.get("/status"))[1]
        assert status["soak_state"] == "running"


async def test_what_can_not_be_run_is_said_with_exit_2(llama_server: DemoServer, tmp_path: Path) -> None:
    config = soaking(tmp_path, llama_server)
    other = tmp_path / "other.yaml"
    other.write_text(f"data_dir: {tmp_path}/data\ntarget: {{url: '{llama_server.url}'}}\nload: {{duration: 5}}\n")
    async with daemon(config) as running:
        status, refused = await running.post("/soaks", {"config": str(other)})
        assert status == 409
        assert f"{other}:3: load.duration" in refused["error"]
        status, refused = await running.post("/soaks", {"sets": {"load.duratoin": "5s"}})
        assert status == 409
        assert "duratoin" in refused["error"]
        for url, says in (("http://127.0.0.1:9", "connection refused"), (running.url, "OpenAI-compatible")):
            code, _, err = await outcome(await soakd("run", "-c", str(config), "--target", url))
            assert code == 2
            assert says in err
        wrong = {"SOAKD_TOKEN": "wrong"}
        code, _, err = await outcome(await soakd("run", "-c", str(config), environment=wrong))
        assert code == 2
        assert "needs the daemon's token" in err
        assert (await running.post("/soaks", {}, headers={}))[0] == 401
        assert (await running.get("/status"))[1]["soak_state"] == "idle"


async def test_a_soak_by_cron_and_one_that_can_not_take_place(llama_server: DemoServer, tmp_path: Path) -> None:
    soaks = [{"cron": "* * * * *", "duration": "4s", "profile": "smoke"}, {"cron": "* * * * *"}]
    async with daemon(soaking(tmp_path, llama_server, soaks=soaks)) as running:
        await running.until_said("a scheduled soak did not take place", within_s=75)
        assert (await running.until_said("soak ended", within_s=75))["run"]
        events = (await running.get("/status"))[1]["events"]
        (refused,) = [e for e in events if e["kind"] == "soak.refused"][:1]
        assert "a soak is running already" in refused["what"]
