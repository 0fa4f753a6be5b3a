"""A drill that kills llama.cpp's real server in mid-soak, by `soakd run` and by the daemon."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from soakd.demo.launch import DemoServer
from tests.support.daemons import configured, daemon, outcome, soakd

pytestmark = pytest.mark.integration
DOWN_S = 3.0
"""How long the server stays away: the fault itself. Within a second it would be failed requests and a restart."""


@pytest.mark.parametrize(("planned", "outages_max"), [(True, "PASS"), (False, "FAIL")])
async def test_a_drill_that_kills_the_server_is_the_cause_of_its_outage(
    demo_directory: Path, tmp_path: Path, planned: bool, outages_max: str
) -> None:
    async with DemoServer.start(demo_directory) as server:
        config = tmp_path / "c.yaml"
        config.write_text(
            "load: {profile: smoke, duration: 24s, warmup: 2s, idle_before: 1s, idle_after: 1s}\n"
            "limits: {error_rate_max: null}\n"
            "drill:\n"
            f"  - {{at: 6s, command: [kill, -9, {server.pid}], planned: {str(planned).lower()}}}\n"
        )
        process = await soakd(
            "run", "-c", str(config), "--target", server.url, "--data-dir", str(tmp_path), "--json"
        )  # fmt: skip
        async with asyncio.timeout(120):
            await server.ended()
            await asyncio.sleep(DOWN_S)
            await server.restart()
            out, err = await process.communicate()
    report = json.loads(out)
    found = {line["name"]: line["outcome"] for line in report["limits"]}
    assert found["outages_max"] == outages_max, err.decode()
    (outage,) = report["outages"]
    assert outage["planned"] is planned
    assert outage["cause"].startswith("drill 1: kill -9")
    assert outage["first_success"] is not None
    events = {e["kind"]: e for e in report["events"]}
    began, ended = events["drill.started"], events["drill.ended"]
    assert began["t_s"] == pytest.approx(1 + 2 + 6, abs=1.5)
    assert ended["attrs"]["exit_code"] == "0"
    assert began["t_s"] <= outage["start_s"] <= began["t_s"] + 5
    if planned:
        assert "FAIL" not in {found["outages_max"], found["restarts_max"]}
        assert report["outcome"] != "FAIL"


async def test_the_daemon_runs_the_drills_of_its_file_and_takes_none_by_order(
    demo_directory: Path, tmp_path: Path
) -> None:
    async with DemoServer.start(demo_directory) as server:
        config = configured(
            tmp_path,
            target={"url": server.url},
            load={"profile": "smoke", "duration": "14s", "warmup": "2s"},
            drill=[{"at": "3s", "command": ["sh", "-c", f"kill -9 {server.pid}; echo api_key=hush-hush"]}],
        )
        async with daemon(config) as running:
            for key, value in (("drill", [{"at": "1s", "command": ["true"]}]), ("drill.0.command", ["true"])):
                order = {"config": str(config), "sets": {key: value}}
                _, answer = await running.post("/soaks", order)
                assert "can't bring drills" in str(answer)
            process = await soakd("run", "-c", str(config), "--json")
            async with asyncio.timeout(60):
                await server.ended()
            await asyncio.sleep(DOWN_S)
            await server.restart()
            _, out, err = await outcome(process)
    assert "the daemon at" in err
    report = json.loads(out)
    assert [o["planned"] for o in report["outages"]] == [True]
    assert {line["name"]: line["outcome"] for line in report["limits"]}["outages_max"] == "PASS"
    (ended,) = [e for e in report["events"] if e["kind"] == "drill.ended"]
    assert ended["attrs"]["output"] == "api_key=[hidden]"
    assert b"hush-hush" not in out
