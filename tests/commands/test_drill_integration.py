"""A drill that kills llama.cpp's real server in mid-soak, by `soakd run` and by the daemon."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from soakd.demo.launch import DemoServer

pytestmark = pytest.mark.integration


async def soakd(*arguments: str) -> Process:
    environment = {k: v for k, v in os.environ.items() if k != "SOAKD_TARGET"}
    code = "from soakd.cli import main; main()"
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, *arguments, stdout=PIPE, stderr=PIPE, env=environment
    )


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
