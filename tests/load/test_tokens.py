from __future__ import annotations

import math
import re
from collections.abc import Sequence

import pytest

from soakd.clock import RealClock
from soakd.demo.launch import DemoServer
from soakd.load.prompts import Message, TokenTable, build_source, make_spec
from soakd.load.tokens import _Asker, _NotThere, by_endpoint, by_usage, calibrate
from soakd.targets.access import Access
from soakd.targets.discovery import check_generation, identify

TEMPLATE, FURTHER = 12, 5


def tokens_of(text: str) -> int:
    """A tokenizer of words, digits and line ends."""
    return len(re.findall(r"[a-zA-Z']+|[0-9]|[^\sa-zA-Z0-9]|\n", text))


async def count_text(text: str) -> int:
    return tokens_of(text)


async def count_chat(messages: Sequence[Message]) -> int:
    return TEMPLATE + FURTHER * (len(messages) - 1) + sum(tokens_of(m.content) for m in messages)


async def test_the_tokenizer_gives_exact_lengths() -> None:
    table = await by_endpoint(count_text, count_chat, context_tokens=None)
    assert (table.method, table.template_tokens, table.message_tokens) == ("endpoint", TEMPLATE, FURTHER)
    assert table.error_ratio == 0
    source = build_source(make_spec("mixture", {}, table), 1)
    for _ in range(50):
        prompt = source.take()
        assert prompt.expected_tokens == await count_chat(prompt.messages)


async def test_usage_gives_lengths_within_the_error_it_states() -> None:
    table = await by_usage(count_chat, context_tokens=None)
    assert table.method == "usage"
    assert table.error_ratio is not None
    assert table.error_ratio < 0.2
    source = build_source(make_spec("mixture", {}, table), 1)
    for _ in range(50):
        prompt = source.take()
        if prompt.expected_tokens > 64:
            assert prompt.expected_tokens == pytest.approx(await count_chat(prompt.messages), rel=0.2)


async def test_no_probe_outgrows_a_short_context() -> None:
    longest = 0

    async def bounded(messages: Sequence[Message]) -> int:
        nonlocal longest
        longest = max(longest, await count_chat(messages))
        return await count_chat(messages)

    await by_usage(bounded, context_tokens=2048)
    assert longest < 2048
    with pytest.raises(_NotThere, match="too short"):
        await by_usage(bounded, context_tokens=128)


async def test_usage_that_does_not_grow_is_not_believed() -> None:
    async def constant(messages: Sequence[Message]) -> int:
        return 17

    with pytest.raises(_NotThere, match="does not grow"):
        await by_usage(constant, context_tokens=None)


async def test_a_tokenizer_whose_sum_is_off_says_by_how_much() -> None:
    async def merging(text: str) -> int:
        return math.ceil(tokens_of(text) * 1.1)

    table = await by_endpoint(merging, count_chat, context_tokens=None)
    assert table.error_ratio == pytest.approx(0.1, abs=0.05)


@pytest.mark.integration
@pytest.mark.asyncio(loop_scope="session")
async def test_llamacpp_lengths_are_exact(llama_server: DemoServer) -> None:
    access = Access.to(llama_server.url)
    info = await identify(access, RealClock())
    assert (info.kind, info.model, info.pid) == ("llamacpp", llama_server.model, llama_server.pid)
    assert info.context_tokens == 4096
    assert (await check_generation(access, info, RealClock())).completion_tokens == 8
    table = await calibrate(access, info)
    assert (table.method, table.error_ratio) == ("endpoint", 0)
    source = build_source(make_spec("mixture", {}, table, info.context_tokens), 1)
    async with access.session() as session:
        asker = _Asker(session, access, info)
        for _ in range(20):
            prompt = source.take()
            assert await asker.usage_chat(prompt.messages) == prompt.expected_tokens
        fitted: TokenTable = await by_usage(asker.usage_chat, context_tokens=info.context_tokens)
    assert fitted.tokens_per_byte == pytest.approx(table.tokens_per_byte, rel=0.1)
    plain = await calibrate(access, info, adapter="openai_completions")
    assert (plain.method, plain.error_ratio, plain.template_tokens) == ("endpoint", 0, 0)
    for adapter in ("openai_chat", "openai_completions", "llamacpp"):
        assert (await check_generation(access, info, RealClock(), adapter=adapter)).completion_tokens == 8
