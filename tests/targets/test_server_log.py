from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from soakd.errors import ConfigError
from soakd.targets.redaction import redact_command, redact_text
from soakd.targets.server_log import LogSource, tail


async def test_the_last_lines_of_a_file(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("".join(f"line {i}\n" for i in range(1000)))
    found = await tail(LogSource(file=log), 3)
    assert found.lines == ("line 997", "line 998", "line 999")
    assert (found.source, found.problem) == ("file server.log", "")


async def test_a_huge_file_is_read_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with log.open("wb") as file:
        file.seek(5 * 2**30)
        file.write(b"\n" + b"".join(b"%d %s\n" % (i, b"x" * 990) for i in range(1000)))
    found = await tail(LogSource(file=log), 5000)
    assert 200 < len(found.lines) < 300
    assert found.lines[-1].startswith("999 ")
    assert all(line.split()[0].isdigit() for line in found.lines)


async def test_just_after_a_rotation_the_old_file_comes_first(tmp_path: Path) -> None:
    (tmp_path / "s.log.1").write_text("old 1\nold 2\nold 3\n")
    (tmp_path / "s.log").write_text("new 1\n")
    assert (await tail(LogSource(file=tmp_path / "s.log"), 3)).lines == ("old 2", "old 3", "new 1")


async def test_what_can_not_be_read_is_said(tmp_path: Path) -> None:
    assert "No such file" in (await tail(LogSource(file=tmp_path / "none"))).problem
    (tmp_path / "empty").touch()
    assert (await tail(LogSource(file=tmp_path / "empty"))).problem == "the file is empty"
    assert (await tail(LogSource())).problem == "no log is configured (target.log)"
    os.mkfifo(tmp_path / "fifo")
    assert (await tail(LogSource(file=tmp_path / "fifo"))).lines == ()


async def test_keys_are_taken_out(tmp_path: Path) -> None:
    log = tmp_path / "s.log"
    log.write_text("GET / Authorization: Bearer abcdef123456\napi_key=topsecret x\nmy own key hunter22 here\n")
    text = "\n".join((await tail(LogSource(file=log), secrets=("hunter22",))).lines)
    for secret in ("abcdef123456", "topsecret", "hunter22"):
        assert secret not in text
    assert text.count("[hidden]") == 3


async def test_long_lines_bad_bytes_and_progress_bars(tmp_path: Path) -> None:
    log = tmp_path / "s.log"
    log.write_bytes(b"a" * 5000 + b"\n10%\r50%\r100% done\n\xff\x00bad\r\n")
    lines = (await tail(LogSource(file=log))).lines
    assert (len(lines[0]), lines[1], lines[2]) == (2000, "100% done", "\ufffdbad")


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


async def test_journald_and_containers_are_asked_by_their_own_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program(tmp_path, "journalctl", 'echo "$@"; echo last')
    program(tmp_path, "docker", "echo 'permission denied' >&2; exit 1")
    program(tmp_path, "podman", 'echo out; echo "err $@" >&2')
    unit = await tail(LogSource(unit="vllm.service"), 20)
    assert unit.lines == ("-u vllm.service -n 20 --no-pager -o short-iso", "last")
    box = await tail(LogSource(container="qwen"), 20)
    assert box.lines == ("out", "err logs --tail 20 --timestamps qwen")
    program(tmp_path, "podman", "exit 3")
    assert "podman ended with code 3" in (await tail(LogSource(container="qwen"))).problem


async def test_a_tool_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "journalctl: No such file" in (await tail(LogSource(unit="x"))).problem


def test_one_source_only_and_no_options_for_names() -> None:
    with pytest.raises(ConfigError, match="one of them"):
        LogSource(file=Path("/x"), unit="y")
    with pytest.raises(ConfigError, match="unit"):
        LogSource(unit="--rotate")


def test_command_lines_lose_keys_and_keep_counts() -> None:
    line = "vllm serve q --api-key k1 k2 --max-num-batched-tokens 8192 --hf-token=hf_abc --max-tokens 5 --port 8000"
    wanted = line.replace("k1 k2", "[hidden] [hidden]").replace("hf_abc", "[hidden]")
    assert " ".join(redact_command(line.split())) == wanted


@pytest.mark.parametrize(
    "text", ["http://user:pw12@host/", 'password: "pw12"', "token hf_pw12pw12pw12pw12", "OPENAI_API_KEY=pw12"]
)
def test_text_loses_what_looks_like_a_key(text: str) -> None:
    assert "pw12" not in redact_text(text)


def test_plain_log_lines_stay_as_they_are() -> None:
    line = "prompt eval time = 12.3 ms / 45 tokens (0.27 ms per token); n_tokens: 45, key: value"
    assert redact_text(line) == line
