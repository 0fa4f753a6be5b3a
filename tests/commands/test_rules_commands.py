"""``soakd test-rules``, ``soakd rules`` and ``soakd alert test``: exit codes and what they say."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from soakd import share
from soakd.cli import app
from soakd.errors import ConfigError, SoakdError
from soakd.journal import Journal, RunRecord
from soakd.metrics import catalogue
from soakd.model import Event, RunState, Sample, Severity, labels

RUNNER = CliRunner()


@pytest.fixture(autouse=True)
def _logs_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line sets logging up for its own stderr, which here is closed after each command."""
    monkeypatch.setattr("soakd.logs.configure", lambda **_: None)


TESTS = share.root() / "alerts" / "host_test.yaml"


def test_tests_that_hold_and_tests_that_do_not(tmp_path: Path) -> None:
    assert RUNNER.invoke(app, ["test-rules", str(TESTS)]).exit_code == 0
    broken = tmp_path / "broken_test.yaml"
    broken.write_text(
        TESTS.read_text().replace("[host.yaml]", f"[{TESTS.parent / 'host.yaml'}]").replace("820x20", "700x20")
    )
    done = RUNNER.invoke(app, ["test-rules", str(broken)])
    assert done.exit_code == 1
    assert "HostOpenFilesHigh is not firing" in done.stderr


def test_a_wrong_test_file_is_an_error_with_its_line(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong_test.yaml"
    wrong.write_text(
        f"rules: [{TESTS.parent / 'host.yaml'}]\ntests:\n  - {{name: a, rule: HostRebootet, silent: true}}\n"
    )
    with pytest.raises(ConfigError, match=r"wrong_test.yaml:3: tests\[0\].rule"):
        RUNNER.invoke(app, ["test-rules", str(wrong)], catch_exceptions=False)


def test_rules_are_listed() -> None:
    done = RUNNER.invoke(app, ["rules", "--json"])
    assert {"GpuLost", "GpuMemoryLeak"} <= {r["name"] for r in orjson.loads(done.stdout)}


async def test_a_recorded_run_is_replayed(tmp_path: Path) -> None:
    hot, start = catalogue().by_name["gpu_temperature_celsius"], 1_700_000_000_000_000_000
    card = labels(gpu="G", bdf="b", sensor="core")
    journal = Journal.open(tmp_path)
    journal.start_run(RunRecord("run-1", start, RunState.RUNNING))
    for second in range(0, 1500, 5):
        at_ns = start + second * 10**9
        up = Sample.ok(catalogue().by_name["collector_up"], 1, at_ns, labels(collector="gpu_thermal"))
        journal.add([Sample.ok(hot, 90 if second < 900 else 60, at_ns, card), up], "run-1")
        journal.add([Sample.ok(hot, 99, at_ns, labels(gpu="other", bdf="c", sensor="core"))])
    lost = Event("gpu.lost", start + 1_200 * 10**9, "gone", Severity.CRITICAL, labels(gpu="G", bdf="b"))
    journal.add([lost], "run-1")
    journal.finish_run("run-1", RunState.FINISHED, None, start + 1500 * 10**9, None)
    await journal.flush()
    await journal.close()
    done = RUNNER.invoke(app, ["rules", "--replay", "run-1", "--data-dir", str(tmp_path), "--json"])
    found = {e["name"]: e for e in orjson.loads(done.stdout)}
    assert set(found) == {"GpuTemperatureHigh", "GpuLost"}
    high = found["GpuTemperatureHigh"]
    assert (high["fired_ns"] - start) / 1e9 == pytest.approx(600, abs=10)
    assert (high["ended_ns"] - start) / 1e9 == pytest.approx(1020, abs=15)
    assert found["GpuLost"]["ended_ns"] is None


def test_a_test_alert_needs_channels_and_tells_which_failed(tmp_path: Path) -> None:
    with pytest.raises(SoakdError, match="no notifiers"):
        RUNNER.invoke(app, ["alert", "test"], catch_exceptions=False)
    config = tmp_path / "soakd.yaml"
    config.write_text("notifiers:\n  alertmanager: {urls: ['http://127.0.0.1:9'], timeout: 1s}\n")
    done = RUNNER.invoke(app, ["alert", "test", "-c", str(config), "--json"])
    assert done.exit_code == 1
    (result,) = orjson.loads(done.stdout)
    assert (result["channel"], result["delivered"]) == ("alertmanager 127.0.0.1:9", False)
