"""A SIMULATED OpenAI-compatible server of the vLLM kind, with known latencies in real time.

Its counters, its ``usage`` and the events it streams agree, so that whatever a client counts can be checked.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from soakd.rehearsal.scenarios import Garble
from soakd.rehearsal.stage import Stage
from soakd.rehearsal.text import answer, garbled, tokenize, tokenize_chat

MODEL_NAME = "simulated-qwen3"
_KV_TOKENS = 262_144
_DEFAULT_MAX_TOKENS = 256


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """Real seconds: ``ttft_s`` to the first token plus ``prefill_s`` for each token of the prompt, then ``itl_s`` to
    each further one. ``slots`` requests run at a time, others wait; ``context`` tokens fit into one request."""

    ttft_s: float = 0.020
    itl_s: float = 0.002
    prefill_s: float = 4e-6
    slots: int = 64
    context: int = 8192


@dataclass(slots=True)
class _Counters:
    """What /metrics shows. Only tokens that were written to the client count as generated."""

    running: int = 0
    waiting: int = 0
    held_tokens: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    ttft_sum: float = 0.0
    finished: dict[str, int] = field(default_factory=lambda: {"stop": 0, "length": 0, "abort": 0})


@dataclass(frozen=True, slots=True)
class _Request:
    """One parsed request. ``fixed`` marks greedy or seeded sampling: the answer depends on the prompt alone."""

    prompt: str
    prompt_tokens: int
    max_tokens: int
    exactly: bool
    fixed: bool
    seed: int
    stream: bool
    usage: bool


class _Refusal(Exception):
    """An answer of an HTTP error status, in the shape OpenAI's API gives it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class SimulatedTarget:
    """The application. ``busy_changed`` is told when work begins and when none is left."""

    def __init__(self, stage: Stage, options: TargetOptions, busy_changed: Callable[[bool], None]) -> None:
        self._stage = stage
        self._options = options
        self._busy_changed = busy_changed
        self._counters = _Counters()
        self._numbers = itertools.count(1)
        self._slots = asyncio.Semaphore(options.slots)

    def application(self) -> web.Application:
        app = web.Application(client_max_size=8 * 2**20)
        app.router.add_get("/health", self._health)
        app.router.add_get("/version", self._version)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_post("/v1/chat/completions", self._chat)
        return app

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if self._failing() else 200)

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": "SIMULATED"})

    async def _models(self, _: web.Request) -> web.Response:
        model = {"id": MODEL_NAME, "object": "model", "created": self._stage.wall_origin_ns // 10**9,
                 "owned_by": "SIMULATED", "root": MODEL_NAME, "max_model_len": self._options.context}  # fmt: skip
        return web.json_response({"object": "list", "data": [model]})

    async def _tokenize(self, request: web.Request) -> web.Response:
        try:
            body = await _json(request)
            if isinstance(body.get("messages"), list):
                ids = tokenize_chat(_messages(body))
            else:
                ids = tokenize(str(body.get("prompt", body.get("content", ""))))
        except _Refusal as refusal:
            return _refused(refusal)
        return web.json_response({"count": len(ids), "max_model_len": self._options.context, "tokens": ids})

    async def _metrics(self, _: web.Request) -> web.Response:
        c, name = self._counters, f'model_name="{MODEL_NAME}",engine="0"'
        lines = [
            "# HELP vllm:num_requests_running SIMULATED",
            f"vllm:num_requests_running{{{name}}} {c.running}",
            f"vllm:num_requests_waiting{{{name}}} {c.waiting}",
            f"vllm:kv_cache_usage_perc{{{name}}} {c.held_tokens / _KV_TOKENS:.6f}",
            f"vllm:num_preemptions_total{{{name}}} 0",
            f"vllm:prompt_tokens_total{{{name}}} {c.prompt_tokens}",
            f"vllm:generation_tokens_total{{{name}}} {c.generated_tokens}",
            *(f'vllm:request_success_total{{{name},finished_reason="{k}"}} {n}' for k, n in c.finished.items()),
            f"vllm:time_to_first_token_seconds_sum{{{name}}} {c.ttft_sum:.6f}",
            f"vllm:time_to_first_token_seconds_count{{{name}}} {sum(c.finished.values())}",
        ]
        return web.Response(text="\n".join(lines) + "\n", content_type="text/plain")

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        arrived = time.monotonic()
        try:
            if self._failing():
                raise _Refusal(500, "CUDA error: GPU is lost. SIMULATED")
            asked = self._parsed(await _json(request))
        except _Refusal as refusal:
            return _refused(refusal)
        counters = self._counters
        if counters.running + counters.waiting == 0:
            self._busy_changed(True)
        counters.waiting += 1
        waiting, held, reason = True, asked.prompt_tokens + asked.max_tokens, "abort"
        try:
            async with self._slots:
                counters.waiting -= 1
                waiting = False
                counters.running += 1
                counters.held_tokens += held
                counters.prompt_tokens += asked.prompt_tokens
                try:
                    response, reason = await self._answer(request, asked, arrived)
                finally:
                    counters.running -= 1
                    counters.held_tokens -= held
                    counters.finished[reason] += 1
                return response
        finally:
            counters.waiting -= waiting
            if counters.running + counters.waiting == 0:
                self._busy_changed(False)

    async def _answer(self, request: web.Request, asked: _Request, arrived: float) -> tuple[web.StreamResponse, str]:
        number = next(self._numbers)
        seed = asked.seed if asked.fixed else number
        pieces, reason = answer(asked.prompt, seed, asked.max_tokens, asked.exactly)
        fault = self._stage.scenario.fault
        fraction = self._stage.fraction(self._stage.now_s())
        pieces = garbled(pieces, fault if isinstance(fault, Garble) else None, fraction)
        usage = {
            "prompt_tokens": asked.prompt_tokens,
            "completion_tokens": len(pieces),
            "total_tokens": asked.prompt_tokens + len(pieces),
        }
        first = time.monotonic() + self._options.ttft_s + self._options.prefill_s * asked.prompt_tokens
        head = {"id": f"chatcmpl-sim-{number}", "created": int(time.time()), "model": MODEL_NAME}
        if asked.stream:
            return await self._stream(request, asked, pieces, reason, head, usage, first, arrived), reason
        await asyncio.sleep(max(first + self._options.itl_s * (len(pieces) - 1) - time.monotonic(), 0))
        self._counters.generated_tokens += len(pieces)
        self._counters.ttft_sum += first - arrived
        message = {"role": "assistant", "content": "".join(pieces)}
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return web.json_response({**head, "object": "chat.completion", "choices": [choice], "usage": usage}), reason

    async def _stream(
        self,
        request: web.Request,
        asked: _Request,
        pieces: list[str],
        reason: str,
        head: Mapping[str, Any],
        usage: Mapping[str, int],
        first: float,
        arrived: float,
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        chunk = {**head, "object": "chat.completion.chunk"}

        def event(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
            choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
            return b"data: " + orjson.dumps({**chunk, "choices": choices}) + b"\n\n"

        await response.prepare(request)
        await response.write(event({"role": "assistant", "content": ""}))
        last = len(pieces) - 1
        for i, piece in enumerate(pieces):
            delay = first + i * self._options.itl_s - time.monotonic()
            if delay > 0:
                await asyncio.sleep(delay)
            await response.write(event({"content": piece}, reason if i == last else None))
            self._counters.generated_tokens += 1
            if i == 0:
                self._counters.ttft_sum += time.monotonic() - arrived
        if asked.usage:
            await response.write(b"data: " + orjson.dumps({**chunk, "choices": [], "usage": usage}) + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    def _parsed(self, body: Mapping[str, Any]) -> _Request:
        model = body.get("model", MODEL_NAME)
        if model != MODEL_NAME:
            raise _Refusal(404, f"The model `{model}` does not exist.")
        messages = _messages(body)
        count = len(tokenize_chat(messages))
        room = self._options.context - count
        wanted = body.get("max_completion_tokens") or body.get("max_tokens") or min(_DEFAULT_MAX_TOKENS, room)
        if not isinstance(wanted, int) or wanted < 1:
            raise _Refusal(400, f"max_tokens must be at least 1, got {wanted!r}.")
        if wanted > room:
            context = self._options.context
            text = f"requested {wanted} output tokens and your prompt contains {count} tokens"
            raise _Refusal(400, f"This model's maximum context length is {context} tokens. However, you {text}.")
        seed, temperature = body.get("seed"), body.get("temperature", 1.0)
        options = body.get("stream_options") or {}
        return _Request(
            prompt="\n".join(f"{role}: {content}" for role, content in messages),
            prompt_tokens=count,
            max_tokens=wanted,
            exactly=bool(body.get("ignore_eos", False)),
            fixed=temperature == 0 or seed is not None,
            seed=seed if isinstance(seed, int) and temperature != 0 else 0,
            stream=bool(body.get("stream", False)),
            usage=bool(options.get("include_usage", False)) if isinstance(options, dict) else False,
        )

    def _failing(self) -> bool:
        return self._stage.scenario.target_fails(self._stage.fraction(self._stage.now_s()))


async def _json(request: web.Request) -> Mapping[str, Any]:
    try:
        body = orjson.loads(await request.read())
    except orjson.JSONDecodeError as error:
        raise _Refusal(400, f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise _Refusal(400, "the body is not an object")
    return body


def _messages(body: Mapping[str, Any]) -> list[tuple[str, str]]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise _Refusal(400, "messages must be a list of objects, with at least one")
    return [(str(m.get("role", "user")), str(m.get("content") or "")) for m in messages]


def _refused(refusal: _Refusal) -> web.Response:
    error = {"message": refusal.message, "type": "SIMULATED", "param": None, "code": refusal.status}
    return web.json_response({"error": error, "object": "error"}, status=refusal.status)
