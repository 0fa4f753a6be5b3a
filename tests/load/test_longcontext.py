from __future__ import annotations

from dataclasses import replace

import pytest

from soakd.clock import RealClock
from soakd.demo.launch import DemoServer
from soakd.load.driver import LoadDriver
from soakd.load.failure import ErrorClass
from soakd.load.longcontext import LengthResult, LongContextPlan, ask_lengths, run_long_context, summarise
from soakd.load.prompts import ASSUMED, Prompt, make_spec
from soakd.load.single import SingleAnswer, SingleRequests
from soakd.load.spec import LoadSpec, TargetSpec, Timeouts
from soakd.load.tokens import calibrate
from soakd.targets.access import Access
from soakd.targets.discovery import identify

PLAN = LongContextPlan(lengths=(8_192, 16_384, 32_768), documents=2, repeats=2)
GOOD = SingleAnswer("Two cases were not settled, because nobody called back.", ErrorClass.NONE, 200, "", 1.0, 2.0, None, 9, None)  # noqa: E501  # fmt: skip


class FakeServer:
    """Answers well up to a length; beyond it as told. Prompts that it knows come back faster."""

    def __init__(self, limit: int, beyond: SingleAnswer, *, cut_to: int | None = None) -> None:
        self.limit = limit
        self.beyond = beyond
        self.cut_to = cut_to
        self.seen: list[Prompt] = []

    async def __call__(self, prompt: Prompt) -> SingleAnswer:
        known = any(p.messages == prompt.messages for p in self.seen)
        self.seen.append(prompt)
        if prompt.expected_tokens > self.limit:
            return self.beyond
        counted = min(prompt.expected_tokens, self.cut_to or prompt.expected_tokens)
        return replace(GOOD, ttft_s=0.1 if known else prompt.expected_tokens / 8192, prompt_tokens=counted)


async def asked(server: FakeServer) -> tuple[LengthResult, ...]:
    heard: list[LengthResult] = []

    async def hear(result: LengthResult) -> None:
        heard.append(result)

    results = await ask_lengths(PLAN, ASSUMED, 1, server, hear)
    assert tuple(heard) == results
    return results


async def test_all_lengths_hold() -> None:
    server = FakeServer(10**6, GOOD)
    results = await asked(server)
    assert [r.tokens for r in results] == [8_192, 16_384, 32_768]
    assert all(r.identical and r.completed == 4 and not r.failure and not r.garbled for r in results)
    assert [r.ttft_max_s for r in results] == [pytest.approx(n, rel=0.01) for n in (1, 2, 4)]
    assert all(r.warm_ttft_s == 0.1 for r in results)
    assert summarise(results).first_failing is None
    assert len({p.messages for p in server.seen}) == 6
    assert b'"temperature":0' in server.seen[0].extra


async def test_the_first_length_that_fails_is_named_and_ends_it() -> None:
    refused = replace(
        GOOD, error=ErrorClass.HTTP_STATUS, status=400, detail="maximum context length is 16384", ttft_s=None
    )
    result = summarise(await asked(FakeServer(10_000, refused)))
    assert result.first_failing == 16_384
    assert result.how == "4 of 4 requests failed: http_400 (maximum context length is 16384)"
    assert [r.completed for r in result.lengths] == [4, 0]


async def test_a_server_that_dies_is_told_from_one_that_refuses() -> None:
    died = replace(GOOD, error=ErrorClass.TRUNCATED, detail="connection lost", ttft_s=None)
    server = FakeServer(20_000, died)
    result = summarise(await asked(server))
    assert result.first_failing == 32_768
    assert "1 of 1 requests failed: the server was gone: truncated" in result.how
    assert len(server.seen) == 9


async def test_a_prompt_that_the_server_cuts_is_a_failure() -> None:
    result = summarise(await asked(FakeServer(10**6, GOOD, cut_to=12_000)))
    assert result.first_failing == 16_384
    assert "the prompt was cut: the server counted 12000 tokens" in result.how


async def test_an_answer_that_changes_is_shown() -> None:
    class Unsteady(FakeServer):
        async def __call__(self, prompt: Prompt) -> SingleAnswer:
            answer = await super().__call__(prompt)
            return replace(answer, text=GOOD.text.replace("Two", "Six")) if len(self.seen) == 8 else answer

    results = await asked(Unsteady(10**6, GOOD))
    assert [r.identical for r in results] == [True, False, True]
    assert "document 2 differs from character 0: “Two cases" in results[1].difference


async def test_long_prompts_that_give_garbage_stand_out_from_short_ones() -> None:
    class Garbling(FakeServer):
        async def __call__(self, prompt: Prompt) -> SingleAnswer:
            answer = await super().__call__(prompt)
            return replace(answer, text="!" * 60) if prompt.expected_tokens > 20_000 else answer

    results = await asked(Garbling(10**6, GOOD))
    assert [bool(r.garbled) for r in results] == [False, False, True]
    assert "one thing repeated" in results[2].garbled[0]
    assert results[2].identical is True


@pytest.mark.integration
@pytest.mark.asyncio(loop_scope="session")
async def test_llamacpp_under_background_load_fails_beyond_its_context(llama_server: DemoServer) -> None:
    access = Access.to(llama_server.url)
    info = await identify(access, RealClock())
    table = await calibrate(access, info)
    prompts = make_spec("mixture", {}, table, info.context_tokens)
    target = TargetSpec((llama_server.url,), model=info.model)
    base = LoadSpec(target, (), prompts, workers=1, timeouts=Timeouts(first_token_s=60))
    plan = LongContextPlan(lengths=(1024, 3072, 8192), documents=1, repeats=2, answer_tokens=16, background=2)

    async def ignore(result: LengthResult) -> None: ...

    result = await run_long_context(plan, base, LoadDriver(), ignore)
    assert [r.completed for r in result.lengths] == [2, 2, 0]
    for length in result.lengths[:2]:
        assert length.prompt_tokens == pytest.approx(length.tokens, rel=0.01)
        assert not length.failure
    assert result.first_failing == 8192
    assert "http_400" in result.how
    assert result.background_completed > 0


@pytest.mark.integration
@pytest.mark.asyncio(loop_scope="session")
async def test_a_single_request_to_nobody_is_an_answer(llama_server: DemoServer) -> None:
    target = TargetSpec((llama_server.url,), model=llama_server.model, path="/no/such/path")
    prompt = Prompt((), 4, "x", 0)
    async with SingleRequests(target, Timeouts()) as ask:
        answer = await ask(prompt)
    assert (answer.failed, answer.error_label, answer.ttft_s) == (True, "http_404", None)
