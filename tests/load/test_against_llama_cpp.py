"""The load engine against llama.cpp's real server with a tiny Qwen3."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from soakd.demo.launch import DemoServer
from soakd.load.arrivals import Closed
from soakd.load.canary import CanaryResult, plan_canary
from soakd.load.driver import LoadDriver
from soakd.load.messages import Done, LoadEvent, Message, Tick, Window
from soakd.load.prompts import make_spec
from soakd.load.records import decode
from soakd.load.spec import LoadSpec, Stage, TargetSpec, TransportKind

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]
PROMPTS = make_spec("mixture", {}, context_tokens=1024)


async def soak(spec: LoadSpec) -> tuple[Done, list[Message]]:
    driver = LoadDriver()
    async with asyncio.timeout(60):
        await driver.start(spec)
        messages = [message async for message in driver.messages()]
    assert isinstance(messages[-1], Done)
    return messages[-1], messages


async def generated(url: str) -> float:
    """The server's own count of generated tokens."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as response:
        for line in (await response.text()).splitlines():
            if line.startswith("llamacpp:tokens_predicted_total "):
                return float(line.split()[1])
    raise AssertionError("no token counter in /metrics")


@pytest.mark.parametrize(
    ("adapter", "transport"),
    [
        ("openai_chat", "raw"), ("openai_chat", "aiohttp"), ("openai_completions", "raw"), ("llamacpp", "raw"),
    ],
)  # fmt: skip
async def test_tokens_agree_with_the_server_s_counter(
    llama_server: DemoServer, adapter: str, transport: TransportKind
) -> None:
    before = await generated(llama_server.url)
    spec = LoadSpec(
        TargetSpec((llama_server.url,), adapter=adapter, model=llama_server.model),
        (Stage("hold", Closed(4, stagger_s=0.2), 3.0),),
        PROMPTS,
        transport=transport,
        window_s=1.0,
        workers=1,
    )
    done, messages = await soak(spec)
    counts = done.total.counts
    assert (counts.failed, counts.usage_missing, counts.errors) == (0, 0, ())
    assert counts.completed > 0
    assert counts.tokens_in > 0
    assert counts.tokens_out + await _lost_to_the_end(messages) == pytest.approx(
        await generated(llama_server.url) - before, rel=0.01
    )
    for name in ("ttft", "itl", "e2e"):
        histogram = getattr(done.total.histograms, name)
        assert histogram.count > 0
    assert done.total.histograms.ttft.count == counts.completed
    assert sum(n for _, n in counts.finishes) == counts.completed


async def _lost_to_the_end(messages: list[Message]) -> int:
    """Tokens of requests that were cut off by the end of the run: the server counted them, no usage told of them."""
    records = [record for m in messages if isinstance(m, Window) for record in decode(m.records)]
    return sum(record.chunks for record in records if record.tokens_out is None)


@pytest.mark.parametrize("adapter", ["openai_chat", "openai_completions", "llamacpp"])
async def test_canaries_on_a_real_server_are_complete_and_are_judged(llama_server: DemoServer, adapter: str) -> None:
    spec = LoadSpec(
        TargetSpec((llama_server.url,), adapter=adapter, model=llama_server.model),
        (Stage("hold", Closed(2), 6.0),),
        PROMPTS,
        canary=plan_canary(6.0, target_kind="llamacpp", prompts=2, max_tokens=16),
        workers=1,
    )
    done, messages = await soak(spec)
    assert len([m for m in messages if isinstance(m, CanaryResult)]) >= 6
    assert done.canary is not None
    assert done.canary.answers >= 6
    assert done.canary.mode in ("exact", "garbage-only")
    assert done.canary.failed == 0
    # what came back is text, not an empty or broken answer taken for one
    assert done.canary.garbled == 0
    assert done.canary.judged > 0


async def test_canaries_that_fail_are_counted_apart(llama_server: DemoServer) -> None:
    target = TargetSpec((llama_server.url,), model=llama_server.model, path="/v1/no/such/thing")
    canary = plan_canary(3.0, target_kind="llamacpp", prompts=2)
    done, messages = await soak(
        LoadSpec(target, (Stage("hold", Closed(1, think_s=0.5), 3.0),), PROMPTS, canary=canary, workers=1)
    )
    assert done.canary is not None
    assert done.canary.failed >= 4
    assert (done.canary.answers, done.canary.judged) == (0, 0)
    assert not [m for m in messages if isinstance(m, CanaryResult)]
    assert f"0 canary answers ({done.canary.failed} questions failed)" in done.canary.note


async def test_a_wrong_path_is_an_http_error_with_the_server_s_words(llama_server: DemoServer) -> None:
    target = TargetSpec((llama_server.url,), model=llama_server.model, path="/v1/no/such/thing")
    done, _ = await soak(LoadSpec(target, (Stage("hold", Closed(1), 1.0),), PROMPTS, workers=1))
    assert {name for name, _ in done.total.counts.errors} == {"http_404"}


async def test_a_server_killed_in_mid_run_and_restarted(tmp_path: Path) -> None:
    async with DemoServer.start(tmp_path) as server:

        async def come_back() -> None:
            await asyncio.sleep(3.0)  # the length of the fault itself
            await server.restart()

        spec = LoadSpec(
            TargetSpec((server.url,), model=server.model), (Stage("hold", Closed(4), 20.0),), PROMPTS, window_s=1.0,
            workers=1,
        )  # fmt: skip
        driver = LoadDriver()
        events: list[LoadEvent] = []
        done: Done | None = None
        restarting: asyncio.Task[None] | None = None
        async with asyncio.timeout(60):
            await driver.start(spec)
            async for message in driver.messages():
                if isinstance(message, Tick) and message.elapsed_s == 5.0:
                    await server.kill()
                    restarting = asyncio.create_task(come_back())
                elif isinstance(message, LoadEvent):
                    events.append(message)
                elif isinstance(message, Done):
                    done = message
        assert restarting is not None
        await restarting
    assert done is not None
    assert done.incomplete == ""
    outage = done.outages[0]
    assert outage.first_success_ns is not None
    assert outage.requests_lost >= 4
    assert [e.kind for e in events if e.kind != "load.backoff"][:2] == ["load.outage", "load.first_success"]
    assert done.total.counts.completed > 20
