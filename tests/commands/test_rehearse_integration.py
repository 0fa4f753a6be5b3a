"""Each rehearsal ends as its scenario says: `healthy` passes, every other one fails and names what happened.

Shortened for the suite: an hour or less of simulated time at speed 120. At full length each is two hours at speed 60.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration


async def rehearse(scenario: str, duration: str, directory: Path) -> tuple[int, dict[str, object], str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from soakd.cli import main; main()", "rehearse", "--scenario", scenario, "--duration",
        duration, "--speed", "120", "--data-dir", str(directory), "--json", stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    async with asyncio.timeout(240):
        out, err = await process.communicate()
    assert process.returncode is not None
    assert out, err.decode()
    return process.returncode, json.loads(out), err.decode()


def named(report: dict[str, object], outcome: str) -> dict[str, dict[str, object]]:
    return {line["name"]: line for line in report["limits"] if line["outcome"] == outcome}  # type: ignore[attr-defined]


async def test_healthy_passes_and_says_that_it_is_simulated(tmp_path: Path) -> None:
    code, report, err = await rehearse("healthy", "1h", tmp_path)
    assert named(report, "FAIL") == {}
    # a machine that is busy beside the tests may leave the run open; it must never fail it
    opened = set(named(report, "INCONCLUSIVE"))
    assert code == 0 or opened, report["why"]
    assert report["simulated"]
    assert "SIMULATED" in err
    folder = tmp_path / "runs" / str(report["run_id"])
    for name in ("report.html", "report.md"):
        assert "SIMULATED" in (folder / name).read_text()


@pytest.mark.parametrize("scenario", ["leak", "staircase"])
async def test_growth_names_the_metric_the_card_and_the_slope(scenario: str, tmp_path: Path) -> None:
    code, report, _ = await rehearse(scenario, "2h", tmp_path)
    failed = named(report, "FAIL")
    assert code == 1, report["why"]
    assert set(failed) == {"vram_leak_max"}
    labels = failed["vram_leak_max"]["labels"]
    assert isinstance(labels, dict)
    assert labels["series"] in ("gpu_memory_used_bytes", "gpu_process_memory_bytes")
    assert labels["gpu"] in {g["uuid"] for g in report["gpus"]}  # type: ignore[attr-defined]
    assert "MiB/h" in str(failed["vram_leak_max"]["why"])


async def test_a_thermal_drift_names_the_card(tmp_path: Path) -> None:
    code, report, _ = await rehearse("thermal-drift", "2h", tmp_path)
    assert code == 1, report["why"]
    failed = named(report, "FAIL")
    assert set(failed) == {"thermal_drift_max"}
    assert "not explained by power" in str(failed["thermal_drift_max"]["why"])


async def test_a_crash_is_an_outage_with_its_recovery(tmp_path: Path) -> None:
    code, report, _ = await rehearse("server-crash", "20m", tmp_path)
    assert code == 1, report["why"]
    assert "outages_max" in named(report, "FAIL")
    outages = report["outages"]
    assert isinstance(outages, list)
    assert [bool(o["first_success"]) for o in outages] == [True]
    assert not {"vram_leak_max", "host_memory_leak_max"} & set(named(report, "FAIL"))


async def test_a_burst_of_ecc_errors_names_the_card(tmp_path: Path) -> None:
    code, report, _ = await rehearse("ecc-burst", "20m", tmp_path)
    assert code == 1, report["why"]
    failed = named(report, "FAIL")
    assert "ecc_uncorrected_max" in failed
    assert isinstance(failed["ecc_uncorrected_max"]["labels"], dict)
    assert failed["ecc_uncorrected_max"]["labels"]["gpu"]


async def test_a_lost_card_is_named_and_ends_the_run_safely(tmp_path: Path) -> None:
    code, report, _ = await rehearse("gpu-lost", "20m", tmp_path)
    assert code == 1, report["why"]
    kinds = {e["kind"] for e in report["events"]}  # type: ignore[attr-defined]
    assert {"gpu.lost", "xid"} <= kinds
    lost = {g["uuid"]: g["state"] for g in report["gpus"]}  # type: ignore[attr-defined]
    assert "lost" in lost.values()


async def test_silent_corruption_names_the_first_answer_that_changed(tmp_path: Path) -> None:
    code, report, _ = await rehearse("garbled", "30m", tmp_path)
    assert code == 1, report["why"]
    canary = report["canary"]
    assert isinstance(canary, dict)
    assert canary["changed"] + canary["garbled"] > 0
    assert canary["first_change"].startswith("canary c")
    assert canary["first_changed_at"]
    assert "canary_identical_min" in named(report, "FAIL")
