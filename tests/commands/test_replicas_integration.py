"""One soak of two replicas, each a real llama.cpp server: what each took, and one of them lost in mid-run."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

import pytest

from soakd.demo.launch import DemoServer

pytestmark = pytest.mark.integration


async def soakd(*arguments: str) -> Process:
    environment = {k: v for k, v in os.environ.items() if k != "SOAKD_TARGET"}
    code = "from soakd.cli import main; main()"
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, *arguments, stdout=PIPE, stderr=PIPE, env=environment
    )


def configured(folder: Path, first: DemoServer, second: DemoServer, workers: str, more: str = "") -> Path:
    config = folder / "c.yaml"
    config.write_text(
        f"target: {{url: '{first.url}', replicas: ['{second.url}']}}\n"
        "load:\n  profile: smoke\n  duration: 16s\n  warmup: 2s\n  idle_before: 1s\n  idle_after: 1s\n"
        f"  workload: {{kind: multi_turn}}\n  workers: {workers}\n"
        f"{more}"
    )
    return config


async def report_of(config: Path, folder: Path) -> dict[str, Any]:
    process = await soakd("run", "-c", str(config), "--data-dir", str(folder / "data"), "--json")
    async with asyncio.timeout(120):
        out, err = await process.communicate()
    assert out, err.decode()
    report: dict[str, Any] = json.loads(out)
    return report


async def test_each_replica_s_share_is_in_the_report(demo_directory: Path, tmp_path: Path) -> None:
    async with DemoServer.start(demo_directory, slots=4) as first, DemoServer.start(tmp_path, slots=4) as second:
        report = await report_of(configured(tmp_path, first, second, "auto"), tmp_path)
    load = report["load"]
    assert [r["name"] for r in load["replicas"]] == [first.url, second.url]
    assert sum(r["completed"] for r in load["replicas"]) == load["completed"] > 20
    for replica in load["replicas"]:
        assert replica["share"] == pytest.approx(0.5, abs=0.1)
        assert 0 < replica["ttft_p95_s"] <= replica["e2e_p95_s"]
        assert replica["output_tokens_per_s"] > 0
    # four streams need no more than one worker
    assert report["self_check"]["workers"] == 1
    assert report["self_check"]["worker_rss_peak_bytes"] > 2**20
    # both servers' counters are read, so that client and server agree on the sum
    assert {a["what"]: a["outcome"] for a in report["agreement"]}["output tokens"] == "agree"
    ratios = [r for r in report["server_ratios"] if r["name"] == "prefix_cache_hits"]
    assert len(ratios) == 2
    # a conversation's later turns are told from its first
    assert load["ttft_cold_s"]["count"] + load["ttft_warm_s"]["count"] == load["completed"]
    assert load["ttft_warm_s"]["count"] > load["ttft_cold_s"]["count"] > 0


async def test_an_outage_of_one_replica_is_its_own(demo_directory: Path, tmp_path: Path) -> None:
    async with DemoServer.start(demo_directory) as first, DemoServer.start(tmp_path) as second:
        drill = f"drill: [{{at: 5s, command: [kill, -9, {second.pid}], planned: false}}]\n"
        report = await report_of(configured(tmp_path, first, second, "2", drill), tmp_path)
    lost, kept = (next(r for r in report["load"]["replicas"] if r["name"] == s.url) for s in (second, first))
    assert report["self_check"]["workers"] == 2
    assert lost["failed"] > 0 == kept["failed"]
    assert report["outcome"] == "FAIL"
    (outage,) = report["outages"]
    assert outage["first_success"] is None
    assert second.url in {e["labels"].get("url") for e in report["events"] if e["kind"] == "load.outage"}
