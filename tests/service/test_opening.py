"""A restart of the host while nobody watched, and the retention that the configuration asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from soakd.config import Loaded, load_config
from soakd.journal import JournalReader, RunRecord
from soakd.model import RunState
from soakd.ports import Roots
from soakd.service.opening import knowing_last_boot, open_journal, reboot_between_runs


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    return load_config(None, sets={"data_dir": str(tmp_path / "data")})


def booted(tmp_path: Path, boot: str) -> Roots:
    place = tmp_path / boot / "sys/kernel/random"
    place.mkdir(parents=True, exist_ok=True)
    (place / "boot_id").write_text(f"{boot}\n")
    return Roots(proc=tmp_path / boot)


def told(loaded: Loaded) -> str:
    return str(getattr(loaded.collectors["host_pressure"].options, "last_boot_id"))  # noqa: B009


async def test_a_restart_is_found_once_by_the_owner_that_comes_after(loaded: Loaded, tmp_path: Path) -> None:
    found = []
    for boot in ("first", "first", "second", "second"):
        journal = open_journal(loaded)
        found.append([dict(e.attrs) for e in reboot_between_runs(loaded, journal, booted(tmp_path, boot), 7)])
        await journal.close()
    assert found == [[], [], [{"boot_id": "second", "boot_id_before": "first"}], []]


async def test_a_journal_without_a_note_goes_by_its_newest_run(loaded: Loaded, tmp_path: Path) -> None:
    journal = open_journal(loaded)
    journal.start_run(RunRecord("old", 1, RunState.FINISHED, boot_id="zeroth"))
    journal.start_run(RunRecord("new", 2, RunState.FINISHED, boot_id="first"))
    await journal.flush()
    assert told(knowing_last_boot(loaded, journal, booted(tmp_path, "second"))) == "first"
    await journal.flush()
    assert told(knowing_last_boot(loaded, journal, booted(tmp_path, "third"))) == "second"
    await journal.close()


async def test_an_unknown_boot_is_no_restart(loaded: Loaded, tmp_path: Path) -> None:
    journal = open_journal(loaded)
    assert reboot_between_runs(loaded, journal, booted(tmp_path, "first"), 7) == ()
    await journal.flush()
    assert reboot_between_runs(loaded, journal, Roots(proc=tmp_path / "nothing"), 7) == ()
    await journal.close()


async def test_the_configured_cap_holds(tmp_path: Path) -> None:
    sets = {"data_dir": str(tmp_path), "retention.max_bytes": "64MiB", "retention.raw": "1h"}
    journal = open_journal(load_config(None, sets=sets))
    assert journal._cap == 64 * 2**20
    assert journal._retention._policy.raw_ns == 3_600_000_000_000
    await journal.close()


async def test_brief_runs_leave_the_reports_where_they_are(loaded: Loaded) -> None:
    journal = open_journal(loaded)
    for n in range(5):
        journal.start_run(RunRecord(f"run{n}", n, RunState.FINISHED, config=b"{}", report=b"x" * 1000))
    await journal.flush()
    with JournalReader(loaded.config.data_dir) as reader:
        assert [(r.id, r.report) for r in reader.runs(limit=2, brief=True)] == [("run4", b""), ("run3", b"")]
        assert len(reader.run("run1").report) == len(reader.run("latest").report) == 1000
    await journal.close()


def test_the_disk_of_the_data_directory_is_watched(loaded: Loaded, tmp_path: Path) -> None:
    assert loaded.collectors["host"].options.model_dump()["disks"] == (Path("/"), tmp_path / "data")
