from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from soakd.errors import TargetError
from soakd.model import TargetInfo
from soakd.ports import Roots
from soakd.targets.access import Access
from soakd.targets.discovery import GenerationCheck, Hints, check_generation, identify

MODELS = "/v1/models"


@dataclass
class SteppedClock:
    """Time passes only by sleeping."""

    now_ns: int = 0
    slept: list[float] = field(default_factory=list)

    speed = 1.0

    def wall_ns(self) -> int:
        return self.now_ns

    def monotonic_ns(self) -> int:
        return self.now_ns

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_ns += int(seconds * 1e9)


@dataclass
class FakeServer:
    """Answers by path: a JSON value, (status, JSON or HTML text), or a list of them, one a request."""

    answers: Mapping[str, object]
    key: str | None = None
    asked: list[str] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": {"message": "Invalid API key"}}, status=401)
        answer = self.answers.get(request.path, (404, {"detail": "Not Found"}))
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        status, body = answer if isinstance(answer, tuple) else (200, answer)
        if isinstance(body, str):
            kind = "text/html" if body.startswith("<") else "text/plain"
            return web.Response(text=body, content_type=kind, status=status)
        return web.json_response(body, status=status)


@asynccontextmanager
async def running(server: FakeServer) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def models(*names: str, owner: str = "vllm", **more: object) -> dict[str, object]:
    return {"object": "list", "data": [{"id": n, "owned_by": owner, **more} for n in names]}


async def found(tmp_path: Path, answers: Mapping[str, object], hints: Hints | None = None) -> TargetInfo:
    async with running(FakeServer(answers)) as url:
        return await identify(Access.to(url), SteppedClock(), hints=hints or Hints(), roots=Roots(proc=tmp_path))


async def refused(tmp_path: Path, answers: Mapping[str, object], hints: Hints | None = None) -> str:
    with pytest.raises(TargetError) as caught:
        await found(tmp_path, answers, hints)
    return str(caught.value)


async def test_vllm(tmp_path: Path) -> None:
    answers = {MODELS: models("Qwen/Qwen3-8B", max_model_len=40960), "/version": {"version": "0.11.0"}}
    info = await found(tmp_path, answers)
    assert (info.kind, info.model, info.server, info.context_tokens) == ("vllm", "Qwen/Qwen3-8B", "vLLM 0.11.0", 40960)
    assert info.local
    assert info.pid is None
    assert "no process" in info.picked_by


async def test_llamacpp_tells_the_context_of_a_slot(tmp_path: Path) -> None:
    props = {"default_generation_settings": {"n_ctx": 4096}, "total_slots": 4, "build_info": "b6800-abc"}
    info = await found(tmp_path, {MODELS: models("tiny", owner="llamacpp"), "/props": props})
    assert (info.kind, info.context_tokens, info.slots, info.server) == ("llamacpp", 4096, 4, "llama.cpp b6800-abc")


async def test_llamacpp_without_props(tmp_path: Path) -> None:
    info = await found(tmp_path, {MODELS: models("tiny", owner="llamacpp"), "/props": (501, {"error": "off"})})
    assert (info.kind, info.context_tokens, info.slots) == ("llamacpp", None, None)


async def test_sglang(tmp_path: Path) -> None:
    answers = {
        MODELS: models("q", owner="sglang", max_model_len=32768),
        "/get_server_info": {"version": "0.5.3", "max_running_requests": 48},
    }
    info = await found(tmp_path, answers)
    assert (info.kind, info.context_tokens, info.slots, info.server) == ("sglang", 32768, 48, "SGLang 0.5.3")


async def test_a_vllm_fork_is_known_by_its_metrics(tmp_path: Path) -> None:
    metrics = "# HELP vllm:num_requests_running n\nvllm:num_requests_running 0\n"
    info = await found(tmp_path, {MODELS: models("q", owner="1cat"), "/metrics": metrics})
    assert info.kind == "vllm"


async def test_another_openai_server(tmp_path: Path) -> None:
    info = await found(tmp_path, {MODELS: models("a", "b", owner="acme")})
    assert (info.kind, info.model, info.server) == ("openai", "a", "acme")


async def test_vllms_older_server(tmp_path: Path) -> None:
    info = await found(tmp_path, {"/openapi.json": {"paths": {"/generate": {}, "/health": {}}}})
    assert (info.kind, info.model) == ("vllm_generate", "")


async def test_the_configured_model_must_be_served(tmp_path: Path) -> None:
    answers = {MODELS: models("qwen-a", "qwen-b")}
    assert (await found(tmp_path, answers, Hints(model="qwen-b"))).model == "qwen-b"
    text = await refused(tmp_path, answers, Hints(model="qwen-c"))
    assert "serves no model named 'qwen-c' (it serves qwen-a, qwen-b)" in text


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("<!DOCTYPE html><html></html>", "answers with a web page: not an OpenAI-compatible server"),
        ("pong", "something that is no list of models"),
        ({"models": []}, "something that is no list of models"),
        ((404, {"detail": "Not Found"}), "does not exist (HTTP 404): Not Found"),
        ((404, "<html>nginx</html>"), "web page (HTTP 404)"),
        ((502, "<html>Bad Gateway</html>"), "web page (HTTP 502)"),
        ((500, {"error": {"message": "CUDA error"}}), "fails (HTTP 500): CUDA error"),
        ((403, {"error": "no"}), "it wants a key: target.api_key_env"),
        ((301, ""), "redirects (HTTP 301)"),
    ],
)
async def test_what_is_no_llm_server_says_why(tmp_path: Path, answer: object, message: str) -> None:
    assert message in await refused(tmp_path, {MODELS: answer})


async def test_a_wrong_key_is_told_from_a_missing_one() -> None:
    async with running(FakeServer({MODELS: models("q")}, key="right")) as url:
        for key, hint in ((None, "it wants a key"), ("k-guess", "its key is wrong")):
            with pytest.raises(TargetError, match=f"Invalid API key.*{hint}") as caught:
                await identify(Access.to(url, api_key=key), SteppedClock())
            assert "k-guess" not in str(caught.value)
        assert (await identify(Access.to(url, api_key="right"), SteppedClock())).model == "q"


async def test_a_server_that_loads_is_waited_for(tmp_path: Path) -> None:
    loading = (503, {"error": {"message": "Loading model"}})
    clock = SteppedClock()
    async with running(FakeServer({MODELS: [loading, loading, models("q")]})) as url:
        info = await identify(Access.to(url), clock, roots=Roots(proc=tmp_path))
    assert info.model == "q"
    assert len(clock.slept) == 2


async def test_but_not_for_ever(tmp_path: Path) -> None:
    clock = SteppedClock()
    async with running(FakeServer({MODELS: (503, {"error": {"message": "Loading model"}})})) as url:
        with pytest.raises(TargetError, match="not ready after 5 s: Loading model"):
            await identify(Access.to(url), clock, roots=Roots(proc=tmp_path), loading_wait_s=5)
    assert clock.now_ns == 5_000_000_000


INFO = TargetInfo("http://x", "vllm", "q")


async def generated(body: object, adapter: str = "openai_chat") -> GenerationCheck:
    path = {
        "openai_chat": "/v1/chat/completions",
        "openai_completions": "/v1/completions",
        "vllm_generate": "/generate",
        "llamacpp": "/completion",
    }[adapter]
    async with running(FakeServer({path: body})) as url:
        return await check_generation(Access.to(url), INFO, SteppedClock(), adapter=adapter)


def chat(usage: dict[str, int] | None = None, **message: str | None) -> dict[str, object]:
    return {"choices": [{"message": message, "finish_reason": "length"}], "usage": usage}


async def test_one_short_generation() -> None:
    check = await generated(chat({"prompt_tokens": 9, "completion_tokens": 8}, content="Hello."))
    assert (check.text, check.prompt_tokens, check.completion_tokens) == ("Hello.", 9, 8)
    thinking = await generated(chat(None, content=None, reasoning_content="Let me think"))
    assert thinking.text == "Let me think"


@pytest.mark.parametrize(
    ("adapter", "body"),
    [
        ("vllm_generate", {"text": ["Say hello. Hello"]}),
        ("openai_completions", {"choices": [{"text": "Say hello. Hello", "finish_reason": "length"}]}),
        ("llamacpp", {"content": "Say hello. Hello", "tokens_predicted": 8}),
    ],
)
async def test_each_protocol_generates(adapter: str, body: object) -> None:
    assert (await generated(body, adapter)).text == "Say hello. Hello"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (chat({"prompt_tokens": 9, "completion_tokens": 0}, content=""), "status 200 and no tokens at all"),
        ({"choices": []}, "with no completion"),
        ((400, {"message": "no chat template"}), "fails (HTTP 400): no chat template"),
        ((500, {"error": {"message": "engine dead"}}), "engine dead"),
    ],
)
async def test_a_server_that_does_not_generate(body: object, message: str) -> None:
    with pytest.raises(TargetError) as caught:
        await generated(body)
    assert message in str(caught.value)


async def test_without_a_protocol_the_kind_of_server_decides() -> None:
    for kind, path, body in (
        ("vllm_generate", "/generate", {"text": ["Hello"]}),
        ("llamacpp", "/v1/chat/completions", chat(None, content="Hello")),
        ("vllm", "/v1/chat/completions", chat(None, content="Hello")),
    ):
        async with running(FakeServer({path: body})) as url:
            check = await check_generation(Access.to(url), TargetInfo(url, kind, "q"), SteppedClock())
        assert check.text == "Hello"
