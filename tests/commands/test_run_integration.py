"""`soakd run` against llama.cpp's real server: the contract of output, exit codes, interruption, outage and kill -9."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from soakd.demo.launch import DemoServer

pytestmark = pytest.mark.integration
SHORT = ("--profile", "smoke", "--duration", "12s")


async def soakd(*arguments: str) -> Process:
    environment = {k: v for k, v in os.environ.items() if k != "SOAKD_TARGET"}
    code = "from soakd.cli import main; main()"
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, *arguments, stdout=PIPE, stderr=PIPE, env=environment
    )


async def outcome(process: Process, within_s: float = 120.0) -> tuple[int, bytes, str]:
    async with asyncio.timeout(within_s):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out, err.decode()


async def until_load(process: Process, stage: str) -> None:
    """Until the progress on stderr says that the stage has begun."""
    assert process.stderr is not None
    async with asyncio.timeout(90):
        while line := await process.stderr.readline():
            if f"| {stage} |" in line.decode():
                return
    raise AssertionError(f"no progress line of stage {stage}")


def limits(report: dict[str, object]) -> dict[str, str]:
    return {line["name"]: line["outcome"] for line in report["limits"]}  # type: ignore[attr-defined]


async def test_a_run_ends_in_a_verdict_with_json_alone_on_stdout(llama_server: DemoServer, tmp_path: Path) -> None:
    code, out, err = await outcome(
        await soakd("run", "--target", llama_server.url, *SHORT, "--data-dir", str(tmp_path), "--json")
    )
    report = json.loads(out)
    assert report["schema"] == "soakd.report/1"
    assert code == {"PASS": 0, "FAIL": 1, "INCONCLUSIVE": 3}[report["outcome"]], err
    found = limits(report)
    assert found["error_rate_max"] == found["canary_identical_min"] == found["outages_max"] == "PASS"
    assert "FAIL" not in found.values()
    assert report["load"]["completed"] > 20
    assert report["load"]["failed"] == 0
    assert report["load"]["ttft_s"]["count"] > 20
    agreed = {a["what"]: a["outcome"] for a in report["agreement"]}
    assert agreed["output tokens"] == "agree"
    assert not report["simulated"]
    folder = tmp_path / "runs" / report["run_id"]
    assert json.loads((folder / "report.json").read_bytes()) == report
    assert {p.name for p in folder.iterdir()} == {"report.json", "report.html", "report.md"}

    code, out, _ = await outcome(await soakd("report", "latest", "--data-dir", str(tmp_path), "--json"))
    assert code == 0
    assert json.loads(out) == report


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_an_interrupted_run_ends_in_seconds_with_its_report(
    llama_server: DemoServer, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    process = await soakd(
        "run", "--target", llama_server.url, "--duration", "10m", "--data-dir", str(tmp_path), "--json",
        "--profile", "smoke",
    )  # fmt: skip
    await until_load(process, "warm-up")
    process.send_signal(number)
    found, out, err = await outcome(process, within_s=30)
    assert found == code, err
    report = json.loads(out)
    assert report["interrupted"]
    assert report["outcome"] == "INCONCLUSIVE"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_an_interrupt_before_the_load_ends_at_once_without_a_traceback(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    asked = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        process = await soakd("run", "--target", url, "--data-dir", str(tmp_path / "data"), "--json")
        async with asyncio.timeout(60):
            await asked.wait()
        process.send_signal(number)
        found, out, err = await outcome(process, within_s=15)
    assert (found, out) == (code, b""), err
    assert "interrupted" in err
    assert "Traceback" not in err


async def test_an_interrupt_while_the_modules_load_leaves_no_traceback() -> None:
    # what started these tests may have had it ignored (nohup, a job in the background), which is inherited
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-X", "importtime", "-m", "soakd", "runs", stdout=PIPE, stderr=PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert process.stderr is not None
    async with asyncio.timeout(60):
        while b"soakd.errors" not in await process.stderr.readline():
            continue
    process.send_signal(signal.SIGINT)
    found, _, err = await outcome(process)
    assert found == -signal.SIGINT
    assert "Traceback" not in err


async def test_a_server_that_dies_and_returns_is_an_outage_and_a_fail(demo_directory: Path, tmp_path: Path) -> None:
    async with DemoServer.start(demo_directory) as server:
        process = await soakd(
            "run", "--target", server.url, "--profile", "smoke", "--duration", "30s", "--data-dir", str(tmp_path),
            "--json",
        )  # fmt: skip
        await until_load(process, "hold")
        await server.kill()
        await asyncio.sleep(3.0)  # the length of the fault itself
        await server.restart()
        code, out, err = await outcome(process)
    report = json.loads(out)
    assert (code, report["outcome"]) == (1, "FAIL"), err
    assert limits(report)["outages_max"] == "FAIL"
    (outage,) = report["outages"]
    assert outage["first_success"] is not None
    assert outage["requests_lost"] > 0
    assert report["load"]["completed"] > 20
    assert "server.restart" in {e["kind"] for e in report["events"]}


async def test_a_run_that_was_killed_is_shown_as_interrupted_and_still_judged(
    llama_server: DemoServer, tmp_path: Path
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("load: {profile: smoke, duration: 12s, idle_after: 60s}\n")
    where = ("--data-dir", str(tmp_path / "data"))
    process = await soakd("run", "-c", str(config), "--target", llama_server.url, *where)
    await until_load(process, "idle after")
    process.kill()
    await process.wait()
    code, out, _ = await outcome(await soakd("runs", *where, "--json"))
    (run,) = json.loads(out)
    assert (code, run["state"]) == (0, "interrupted")
    code, out, err = await outcome(await soakd("report", "latest", *where, "--json"))
    assert code == 0, err
    report = json.loads(out)
    assert report["interrupted_by"] == "killed"
    assert report["outcome"] == "INCONCLUSIVE"
    assert report["load"]["completed"] > 0
