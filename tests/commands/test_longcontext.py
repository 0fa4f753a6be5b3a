from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from soakd.commands.longcontext import doubling, tokens
from soakd.demo.launch import DemoServer
from soakd.errors import SoakdError


@pytest.mark.parametrize(("text", "count"), [("8192", 8192), ("8K", 8192), ("128k", 131_072), ("1.5K", 1536)])
def test_lengths_are_read_in_tokens(text: str, count: int) -> None:
    assert tokens("--to", text) == count


@pytest.mark.parametrize("text", ["", "8M", "-1", "0", "lots", "99999999K"])
def test_what_is_no_length_is_a_clear_error(text: str) -> None:
    with pytest.raises(SoakdError, match=r"--to: .* is not a length"):
        tokens("--to", text)


def test_lengths_double_and_end_with_the_longest() -> None:
    assert doubling(8192, 131_072) == (8192, 16_384, 32_768, 65_536, 131_072)
    assert doubling(1000, 5000) == (1000, 2000, 4000, 5000)
    assert doubling(512, 512) == (512,)
    with pytest.raises(SoakdError, match="below --from"):
        doubling(2, 1)


async def soakd(*arguments: str) -> tuple[int | None, str, str]:
    environment = {k: v for k, v in os.environ.items() if k != "SOAKD_TARGET"}
    code = "from soakd.cli import main; main()"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, "long-context", *arguments, stdout=PIPE, stderr=PIPE, env=environment
    )
    async with asyncio.timeout(120):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@pytest.mark.integration
async def test_the_first_length_beyond_the_context_is_named(demo_directory: Path) -> None:
    short = ("--from", "1K", "--to", "6K", "--documents", "1", "--answer-tokens", "8")
    async with DemoServer.start(demo_directory) as server:
        code, out, err = await soakd("--target", server.url, *short, "--background", "2")
        assert code == 0, err
        assert "fails first at 4,096 tokens: 2 of 2 requests failed: http_400" in out
        assert "background load: " in out
        assert "identical" in out
        code, out, err = await soakd("--target", server.url, *short, "--background", "0", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["first_failing"] == 4096
    assert [(length["tokens"], length["completed"]) for length in found["lengths"]] == [(1024, 2), (2048, 2), (4096, 0)]
