"""The simulated target over HTTP: the OpenAI shape, counters that match what the client got, and its faults."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from soakd.rehearsal.stage import Stage
from soakd.rehearsal.target import MODEL_NAME, SimulatedTarget, TargetOptions

pytestmark = pytest.mark.integration

FAST = TargetOptions(ttft_s=0.001, itl_s=0.0, slots=2, context=200)


def stage(scenario: str = "healthy", at_fraction: float = 0.0) -> Stage:
    """A stage whose clock stands, for all practical purposes, at that part of the run."""
    now = time.monotonic_ns()
    return Stage(scenario, 1e9, 1, 2, "unused", time.time_ns(), now - int(at_fraction * 1e9 * 1e9), 1.0)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


class Served:
    """A target on a port of its own, and what it said about being busy."""

    def __init__(self, at: Stage, options: TargetOptions = FAST) -> None:
        self.busy: list[bool] = []
        self._server = TestServer(SimulatedTarget(at, options, self.busy.append).application())

    async def __aenter__(self) -> Served:
        await self._server.start_server()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.close()

    def url(self, path: str) -> str:
        return str(self._server.make_url(path))


def body(text: str = "hello", **fields: Any) -> dict[str, Any]:
    return {"model": MODEL_NAME, "messages": [{"role": "user", "content": text}], "temperature": 0, **fields}


async def stream(session: aiohttp.ClientSession, served: Served, **fields: Any) -> list[dict[str, Any]]:
    asked = body(stream=True, stream_options={"include_usage": True}, **fields)
    async with session.post(served.url("/v1/chat/completions"), json=asked) as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        payloads = (await response.text()).strip().split("\n\n")
    assert payloads[-1] == "data: [DONE]"
    return [json.loads(p.removeprefix("data: ")) for p in payloads[:-1]]


async def metrics(session: aiohttp.ClientSession, served: Served) -> dict[str, float]:
    async with session.get(served.url("/metrics")) as response:
        text = await response.text()
    found = re.findall(r"^vllm:(\w+)\{([^}]*)\} (\S+)$", text, re.M)
    reason = re.compile(r'finished_reason="(\w+)"')
    return {name + (f".{m[1]}" if (m := reason.search(tags)) else ""): float(value) for name, tags, value in found}


async def metrics_once(session: aiohttp.ClientSession, served: Served, name: str, value: float) -> dict[str, float]:
    """The metrics once one of them has reached a value."""
    async with asyncio.timeout(10):
        while (counted := await metrics(session, served))[name] != value:
            pass
    return counted


async def test_a_stream_has_the_shape_that_clients_know(session: aiohttp.ClientSession) -> None:
    async with Served(stage()) as served:
        events = await stream(session, served, max_tokens=12)
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    content = [e["choices"][0]["delta"]["content"] for e in events[1:-1]]
    assert len(content) == 12
    assert events[-2]["choices"][0]["finish_reason"] == "length"
    assert events[-1]["choices"] == []
    assert events[-1]["usage"] == {"prompt_tokens": 8, "completion_tokens": 12, "total_tokens": 20}


async def test_greedy_answers_repeat_and_sampled_ones_vary(session: aiohttp.ClientSession) -> None:
    async with Served(stage()) as served:

        async def text(**fields: Any) -> str:
            async with session.post(served.url("/v1/chat/completions"), json=body(max_tokens=30, **fields)) as response:
                return str((await response.json())["choices"][0]["message"]["content"])

        greedy = await text()
        assert await text() == greedy
        assert await text(seed=7) == greedy, "greedy sampling draws nothing"
        assert await text(temperature=1.0) != await text(temperature=1.0)
        assert await text(temperature=1.0, seed=3) == await text(temperature=1.0, seed=3)


async def test_the_counters_match_what_was_sent(session: aiohttp.ClientSession) -> None:
    async with Served(stage()) as served:
        runs = await asyncio.gather(*(stream(session, served, max_tokens=20 + n) for n in range(6)))
        counted = await metrics(session, served)
        busy = list(served.busy)
    usages = [events[-1]["usage"] for events in runs]
    assert counted["generation_tokens_total"] == sum(u["completion_tokens"] for u in usages)
    assert counted["prompt_tokens_total"] == sum(u["prompt_tokens"] for u in usages)
    assert counted["request_success_total.stop"] + counted["request_success_total.length"] == 6
    assert counted["num_requests_running"] == counted["num_requests_waiting"] == counted["kv_cache_usage_perc"] == 0
    assert busy == [True, False]


async def test_no_more_run_than_there_are_slots(session: aiohttp.ClientSession) -> None:
    async with Served(stage(), replace(FAST, ttft_s=5.0)) as served:
        asked = [asyncio.create_task(stream(session, served, max_tokens=5)) for _ in range(5)]
        counted = await metrics_once(session, served, "num_requests_waiting", 3)
        assert counted["num_requests_running"] == 2
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        counted = await metrics_once(session, served, "num_requests_running", 0)
    assert counted["num_requests_waiting"] == 0
    assert counted["request_success_total.abort"] > 0


async def test_tokens_are_counted_as_usage_counts_them(session: aiohttp.ClientSession) -> None:
    async with Served(stage()) as served:
        for fields in ({"prompt": "hello there, you"}, {"content": "hello there, you"}):
            async with session.post(served.url("/tokenize"), json=fields) as response:
                answer = await response.json()
            assert (answer["count"], len(answer["tokens"]), answer["max_model_len"]) == (4, 4, 200)
        async with session.post(
            served.url("/tokenize"), json={"messages": body("hello there")["messages"]}
        ) as response:
            counted = (await response.json())["count"]
        async with session.post(served.url("/v1/chat/completions"), json=body("hello there")) as response:
            assert counted == (await response.json())["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"model": "gpt-4"}, 404, "does not exist"),
        ({"max_tokens": 500}, 400, "maximum context length is 200"),
        ({"max_tokens": 0, "max_completion_tokens": -1}, 400, "at least 1"),
        ({"messages": []}, 400, "at least one"),
    ],
)
async def test_what_is_wrong_is_refused(
    session: aiohttp.ClientSession, fields: dict[str, Any], status: int, words: str
) -> None:
    async with (
        Served(stage()) as served,
        session.post(served.url("/v1/chat/completions"), json=body() | fields) as response,
    ):
        assert response.status == status
        assert words in (await response.json())["error"]["message"]


async def test_it_fails_once_its_card_is_lost(session: aiohttp.ClientSession) -> None:
    for fraction, status in ((0.59, 200), (0.61, 500)):
        async with (
            Served(stage("gpu-lost", fraction)) as served,
            session.post(served.url("/v1/chat/completions"), json=body()) as response,
        ):
            assert response.status == status


async def test_garbled_answers_differ_from_sound_ones(session: aiohttp.ClientSession) -> None:
    texts = []
    for fraction in (0.2, 0.4, 0.55, 0.7):
        async with Served(stage("garbled", fraction)) as served:
            events = await stream(session, served, max_tokens=30)
            texts.append("".join(e["choices"][0]["delta"]["content"] for e in events[1:-1]))
    assert texts[0] == texts[1]
    assert texts[2] != texts[1]
    assert set(texts[3]) == {"!"}
