"""The demo server runs for real: it answers, repeats itself, comes back on its port, and never outlives its parent."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import signal
import socket
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import aiohttp
import orjson
import psutil
import pytest

from soakd.demo.launch import DemoServer
from soakd.errors import SoakdError

PARENT = """
import asyncio, sys
from pathlib import Path
from soakd.demo.launch import DemoServer
async def main():
    async with DemoServer.start(Path(sys.argv[1])) as server:
        print(server.pid, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


async def ask(session: aiohttp.ClientSession, url: str, text: str, tokens: int = 48) -> tuple[str, int, int]:
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": tokens, "temperature": 0}
    async with session.post(f"{url}/v1/chat/completions", json=body) as response:
        assert response.status == 200
        answer = await response.json()
    usage = answer["usage"]
    return answer["choices"][0]["message"]["content"], usage["prompt_tokens"], usage["completion_tokens"]


@pytest.mark.integration
async def test_greedy_answers_are_equal_alone_and_in_a_crowd(llama_server: DemoServer) -> None:
    prompts = [f"tell me about order {n} and why it is late" for n in range(8)]
    async with aiohttp.ClientSession() as session:
        alone = [await ask(session, llama_server.url, p) for p in prompts]
        for _ in range(3):
            crowd = await asyncio.gather(*(ask(session, llama_server.url, p) for p in prompts))
            assert crowd == alone
    assert len({text for text, _, _ in alone}) == len(prompts)
    assert all(re.fullmatch(r"[A-Za-z ,.]+", text) for text, _, _ in alone)
    assert {tokens for _, _, tokens in alone} == {48}


@pytest.mark.integration
async def test_it_offers_what_a_soak_reads(llama_server: DemoServer) -> None:
    async with aiohttp.ClientSession(llama_server.url) as session:
        async with session.get("/metrics") as response:
            assert "llamacpp:requests_processing" in await response.text()
        async with session.get("/v1/models") as response:
            assert (await response.json())["data"][0]["id"] == llama_server.model
        async with session.get("/slots") as response:
            slots = await response.json()
        assert [slot["n_ctx"] for slot in slots] == [4096] * 4
        async with session.post("/tokenize", json={"content": "hello there"}) as response:
            assert len((await response.json())["tokens"]) > 1


@pytest.mark.integration
async def test_it_comes_back_on_its_port_after_a_kill(tmp_path: Path) -> None:
    async with DemoServer.start(tmp_path, slots=1, context=512) as server, aiohttp.ClientSession() as session:
        before, port, pid = await ask(session, server.url, "hello"), server.port, server.pid
        os.kill(pid, signal.SIGKILL)
        await server.kill()
        with pytest.raises(SoakdError, match="not running"):
            _ = server.pid
        await server.restart()
        assert (server.port, await ask(session, server.url, "hello")) == (port, before)
        last = psutil.Process(server.pid)
    assert not last.is_running()


@pytest.mark.integration
async def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    child = psutil.Process(int(await parent.stdout.readline()))
    parent.kill()
    await parent.wait()
    _, alive = await asyncio.to_thread(psutil.wait_procs, [child], 10)
    assert not alive


@pytest.mark.integration
@pytest.mark.parametrize("how", ["stdin", "sigterm"])
async def test_it_ends_by_itself_when_asked(tmp_path: Path, how: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "soakd.demo.server", "--cache", str(tmp_path)), stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert orjson.loads(await process.stdout.readline())["pid"] == process.pid
    if how == "stdin":
        process.stdin.close()
    else:
        process.terminate()
    assert await asyncio.wait_for(process.wait(), 10) == 0


@pytest.mark.integration
async def test_a_taken_port_is_a_clear_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(SoakdError) as error:
            async with DemoServer.start(tmp_path, port=port):
                pass
    assert "Traceback" not in str(error.value)


async def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SoakdError, match=r"xllamacpp and gguf.*pip install 'soakd\[demo\]'"):
        async with DemoServer.start(tmp_path):
            pass
