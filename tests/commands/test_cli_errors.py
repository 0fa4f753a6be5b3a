"""Every error of a user: a clear message on stderr, exit code 2, nothing on stdout, no traceback."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from soakd import __version__, share
from soakd.cli import _run
from soakd.journal.lock import DirectoryLock
from soakd.journal.schema import open_writable


class Answers(BaseHTTPRequestHandler):
    """A server that is no LLM server."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><html>hello</html>")

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def html_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def no_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOAKD_TARGET", raising=False)


def refused(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    assert _run(arguments) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert "Traceback" not in err
    return err


def test_the_version_is_told_without_a_command(capfd: pytest.CaptureFixture[str]) -> None:
    assert _run(["--version"]) == 0
    assert capfd.readouterr().out == f"soakd {__version__}\n"


def test_a_fault_of_soakd_itself_is_exit_2_and_its_traceback_is_in_a_file() -> None:
    code = "from soakd import cli; cli.logs = None; cli.main()"
    ended = subprocess.run(
        [sys.executable, "-c", code, "runs"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "Traceback" not in ended.stderr
    path = Path(ended.stderr.partition("report it with ")[2].partition(";")[0])
    assert "Traceback" in path.read_text()
    path.unlink()


STREAMS = {
    "read no further": ("| true", 0),
    "stdout closed": (">&-", 0),
    "stderr closed": ("2>&-", 0),
    "stdin closed": ("<&-", 0),
    "all closed": ("<&- >&- 2>&-", 0),
    "stdout full": (">/dev/full", 2),
    "stderr full": ("2>/dev/full", 0),
}


@pytest.mark.parametrize(("redirection", "code"), STREAMS.values(), ids=STREAMS.keys())
def test_streams_that_are_closed_or_full_change_no_exit_code(redirection: str, code: int, tmp_path: Path) -> None:
    open_writable(tmp_path / "journal.sqlite").close()
    line = f"{sys.executable} -m soakd runs --data-dir {tmp_path} {redirection}; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == code, ended.stderr
    assert "soakd itself failed" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_error_keeps_its_code_when_nobody_hears_it() -> None:
    line = f"{sys.executable} -m soakd run --target http://127.0.0.1:1 >&- 2>&-"
    assert subprocess.run(["bash", "-c", line], timeout=60, check=False).returncode == 2


@pytest.mark.parametrize("option", ["--html", "--junit"])
@pytest.mark.parametrize("place", ["missing/report", "."])
def test_a_file_that_could_not_be_written_is_said_before_the_load(
    option: str, place: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    said = refused(["run", "--target", "http://127.0.0.1:1", option, str(tmp_path / place)], capfd)
    assert "give a file that can be written" in said


def test_a_run_without_a_target(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said = refused(["run", "--data-dir", str(tmp_path)], capfd)
    assert "no target" in said
    assert "--target URL" in said


def test_a_target_where_nothing_listens(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    said = refused(["run", "--target", f"http://127.0.0.1:{port}", "--data-dir", str(tmp_path)], capfd)
    assert "connection refused" in said


def test_a_target_that_answers_with_a_page(tmp_path: Path, html_server: str, capfd: pytest.CaptureFixture[str]) -> None:
    said = refused(["run", "--target", html_server, "--data-dir", str(tmp_path)], capfd)
    assert "a web page" in said


def test_tls_where_there_is_none(tmp_path: Path, html_server: str, capfd: pytest.CaptureFixture[str]) -> None:
    address = html_server.replace("http:", "https:")
    said = refused(["run", "--target", address, "--data-dir", str(tmp_path)], capfd)
    assert "TLS" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "--target", "127.0.0.1:8000"], "http://127.0.0.1:8000"),
        (["run", "--target", "http://127.0.0.1:1", "--duration", "60"], "such as 90s"),
        (["run", "--target", "http://127.0.0.1:1", "--profile", "nonesuch"], "customer-service"),
        (["run", "--demo", "--target", "http://127.0.0.1:1"], "do not go together"),
        (["run", "--frobnicate"], "No such option"),
        (["rehearse", "--scenario", "nonesuch"], "healthy"),
        (["rehearse", "--speed", "0"], "speed"),
        (["check-config", "/nonexistent/soakd.yaml"], "/nonexistent/soakd.yaml"),
        (["report", "/nonexistent/report.json"], "/nonexistent/report.json"),
        (["report", "latest", "--data-dir", "/nonexistent"], "/nonexistent"),
        (["gpu", "release", "--data-dir", "/nonexistent"], "no daemon"),
        (["compare", "one"], "name two or more"),
    ],
)
def test_wrong_usage(
    arguments: list[str], says: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert says in refused(arguments, capfd)


def test_a_configuration_with_faults_names_each_with_its_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "soakd.yaml"
    path.write_text("target:\n  url: http://x\nlimit:\n  e2e_p95: 1s\nload:\n  duration: 5\n")
    said = refused(["check-config", str(path)], capfd)
    assert f"{path}:3: limit: unknown key" in said
    assert f"{path}:6: load.duration:" in said


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("load: {window: 0s}", "load.window"),
        ("load: {timeouts: {stall: 0s}}", "load.timeouts.stall"),
        ("load: {seed: -1}", "load.seed"),
        ("load: {workers: 100000}", "load.workers"),
        ("load: {workload: {kind: nonesuch}}", "workload"),
        ("load: {workload: {kind: mixture, bands: []}}", "workload"),
        ("collectors: {host: {interval: 0s}}", "collectors.host.interval"),
        ("canary: {interval: 0s}", "canary.interval"),
    ],
)
def test_what_no_run_could_use_is_said_by_check_config(
    text: str, key: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    assert key in refused(["check-config", str(path)], capfd)


def test_rule_files_are_checked_with_the_configuration_that_names_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules:\n  - name: Hot\n    kind: threshold\n    severity: warning\n    sumary: hot\n")
    path = tmp_path / "c.yaml"
    path.write_text(f"rules: [{rules}]\n")
    said = refused(["check-config", str(path)], capfd)
    assert f"{rules}:5: rules[0].sumary: unknown key" in said


def test_check_config_says_how_many_rules_there_are_and_whom_they_tell(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("notifiers: {alertmanager: {urls: ['http://127.0.0.1:9093']}}\n")
    assert _run(["check-config", str(path)]) == 0
    said = capfd.readouterr().out
    assert re.search(r"alert rules [1-9]\d* of \d+ files", said)
    assert "tells       alertmanager" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "load:\n  arrivals:\n    kind: staged\n    stages:\n      - {kind: rate, duration: 9s, rate: -1}\n",
            [":5: load.arrivals.stages[0].rate: found -1; Input should be greater than or equal to 0"],
        ),
        ("load:\n  arrivals: {kind: staged, stages: []}\n", [":2: load.arrivals.stages: empty; give at least one"]),
        (
            "load:\n  workload:\n    kind: mixture\n    bands:\n      - {share: 1, low: 9, width: 3}\n",
            [
                ":5: load.workload.bands[0].high: missing; it has no default",
                ":5: load.workload.bands[0].width: unknown key; see `soakd init` for every key there is",
            ],
        ),
        ("load:\n  workload:\n    kind: dataset\n", [":2: load.workload.file: missing; it has no default"]),
        (
            "target: {replicas: ['http://a:1', 'http://a:1/']}\n",
            [":1: target.replicas: found a value; one address"],
        ),
        ("data_dir: ''\n", [":1: data_dir: found ''; give a folder; `.` is this one"]),
    ],
)
def test_each_fault_is_told_once_with_its_line_and_key(
    text: str, said: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    lines = refused(["check-config", str(path)], capfd).strip().splitlines()
    assert len(lines) == len(said)
    assert all(f"{path}{one}" in line for line, one in zip(lines, said, strict=True))


def test_a_data_directory_that_cannot_be_written(
    tmp_path: Path, html_server: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    said = refused(["rehearse", "--duration", "1m", "--data-dir", str(tmp_path / "file" / "data")], capfd)
    assert "Not a directory" in said


def test_a_data_directory_in_use(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(f"data_dir: {tmp_path / 'data'}\nweb: {{listen: '127.0.0.1:0'}}\n")
    lock = DirectoryLock(tmp_path / "data")
    try:
        said = refused(["daemon", "-c", str(config)], capfd)
    finally:
        lock.release()
    assert "in use by process" in said


def test_a_port_in_use(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config = tmp_path / "c.yaml"
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        config.write_text(f"data_dir: {tmp_path / 'data'}\nweb: {{listen: '{listen}'}}\n")
        said = refused(["daemon", "-c", str(config)], capfd)
    assert f"can't listen on {listen}" in said


def test_a_secret_that_is_not_there(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("target: {url: 'http://127.0.0.1:1', api_key_env: SOAKD_TEST_NO_SUCH_KEY}\n")
    said = refused(["run", "-c", str(config), "--data-dir", str(tmp_path / "data")], capfd)
    assert "SOAKD_TEST_NO_SUCH_KEY: not set" in said


def test_init_writes_everything_and_never_overwrites(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "made"
    assert _run(["init", str(target)]) == 0
    profile = target / "configs" / "profiles" / "smoke.yaml"
    assert profile.is_file()
    profile.write_text("mine: true\n")
    assert _run(["init", str(target)]) == 0
    assert profile.read_text() == "mine: true\n"
    assert "left as they were" in capfd.readouterr().err


def test_every_shipped_example_configuration_is_good(capfd: pytest.CaptureFixture[str]) -> None:
    examples = sorted((share.root() / "configs" / "examples").glob("*.yaml"))
    assert examples
    for path in examples:
        assert _run(["check-config", str(path)]) == 0, capfd.readouterr().err
