"""Staged arrivals from a configuration file to the report, against llama.cpp's real server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from soakd.demo.launch import DemoServer
from tests.support.daemons import outcome, soakd

pytestmark = pytest.mark.integration
CONFIG = """load:
  idle_before: 1s
  idle_after: 1s
  arrivals:
    kind: staged
    stages:
      - {name: warm-up, kind: rate, duration: 3s, rate: 2, process: constant, measured: false}
      - {name: ramp, kind: rate, duration: 6s, from_rate: 1, rate: 3, process: constant}
      - {name: spike, kind: rate, duration: 2s, rate: 6, process: constant}
      - {name: streams, kind: closed, duration: 4s, concurrency: 2}
"""


async def test_stages_run_one_after_the_other_and_only_the_measured_ones_count(
    llama_server: DemoServer, tmp_path: Path
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(CONFIG)
    where = ("-c", str(config), "--target", llama_server.url, "--data-dir", str(tmp_path / "data"))
    _, out, err = await outcome(await soakd("run", *where, "--json"))
    report = json.loads(out)
    assert [(s["name"], s["start_s"], s["measured"]) for s in report["stages"]] == [
        ("idle before", 0, False), ("warm-up", 1, False), ("ramp", 4, True), ("spike", 10, True),
        ("streams", 12, True), ("idle after", 16, False),
    ], err  # fmt: skip
    assert report["load"]["mode"] == "staged"
    # a ramp of 1 to 3 a second over 6 s and 6 a second for 2 s; the closed loop adds what the server's pace makes of it
    assert report["load"]["offered"] > 12 + 12
    assert report["load"]["completed"] + report["load"]["failed"] <= report["load"]["offered"]
    assert report["wanted_duration_s"] == 17


async def test_a_duration_on_the_command_line_that_contradicts_the_stages_is_an_error(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(CONFIG)
    process = await soakd("run", "-c", str(config), "--target", "http://127.0.0.1:9", "--duration", "2h")
    code, _, err = await outcome(process)
    assert code == 2
    assert "contradicts the stages, which last 15s in all" in err
    assert "stretch: true" in err
