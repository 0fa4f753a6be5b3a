"""Measures how long text is for the server's tokenizer, once, before the run: the `TokenTable` of a `PromptSpec`.

The server's own tokenizer endpoint is asked where there is one (llama.cpp and vLLM: ``POST /tokenize``); otherwise the
length is fitted to the ``usage`` of a few one-token requests; otherwise it is assumed, and the table says so.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import aiohttp

from soakd.errors import TargetError
from soakd.load.corpus import Writer, nonce, pieces, sample_indices
from soakd.load.prompts import ASSUMED, Message, TokenTable
from soakd.model import TargetInfo
from soakd.targets.access import Access, ask

_AT_ONCE = 8
_ENDPOINT_WITHIN_S = 60.0
_REQUEST_WITHIN_S = 60.0
_PROBE_LINES = (2, 8, 24)
_NONCES = 8
_CHECK_TOKENS = (64, 400, 1500)
_LONGEST_SHARE = 0.8

CountText = Callable[[str], Awaitable[int]]
CountChat = Callable[[Sequence[Message]], Awaitable[int]]


class _NotThere(Exception):
    """The server does not offer this way of counting."""


@dataclass(frozen=True, slots=True)
class _Asker:
    session: aiohttp.ClientSession
    access: Access
    info: TargetInfo

    async def fields(self, path: str, body: object) -> dict[str, object]:
        answer = await ask(self.session, self.access, path, body, timeout_s=_REQUEST_WITHIN_S)
        if answer.status != 200 or not answer.fields():
            raise _NotThere(f"POST {path} answers HTTP {answer.status}")
        return dict(answer.fields())

    async def llamacpp_text(self, text: str) -> int:
        return _length(await self.fields("/tokenize", {"content": text, "add_special": False}))

    async def llamacpp_chat(self, messages: Sequence[Message]) -> int:
        rendered = (await self.fields("/apply-template", {"messages": _plain(messages)})).get("prompt")
        if not isinstance(rendered, str):
            raise _NotThere("POST /apply-template gives no prompt")
        return _length(await self.fields("/tokenize", {"content": rendered, "add_special": True}))

    async def vllm_text(self, text: str) -> int:
        body = {"model": self.info.model, "prompt": text, "add_special_tokens": False}
        return _length(await self.fields("/tokenize", body))

    async def vllm_chat(self, messages: Sequence[Message]) -> int:
        body = {"model": self.info.model, "messages": _plain(messages), "add_generation_prompt": True}
        return _length(await self.fields("/tokenize", body))

    async def llamacpp_plain(self, messages: Sequence[Message]) -> int:
        return _length(await self.fields("/tokenize", {"content": _joined(messages), "add_special": True}))

    async def vllm_plain(self, messages: Sequence[Message]) -> int:
        return _length(await self.fields("/tokenize", {"model": self.info.model, "prompt": _joined(messages)}))

    async def usage_plain(self, messages: Sequence[Message]) -> int:
        body = {"model": self.info.model, "prompt": _joined(messages), "max_tokens": 1}
        return _used(await self.fields("/v1/completions", body))

    async def usage_chat(self, messages: Sequence[Message]) -> int:
        body = {"model": self.info.model, "messages": _plain(messages), "max_tokens": 1}
        return _used(await self.fields("/v1/chat/completions", body))


async def calibrate(access: Access, info: TargetInfo, *, adapter: str = "openai_chat") -> TokenTable:
    """Measure, by the best way the server offers; an ``adapter`` other than chat sends text without a template.

    Raises TargetError only when the server can't be reached at all.
    """
    chat = adapter == "openai_chat"
    async with access.session() as session:
        asker = _Asker(session, access, info)
        tried: list[str] = []
        if info.kind in ("llamacpp", "vllm", "sglang"):
            if info.kind == "llamacpp":
                count_text, whole = asker.llamacpp_text, asker.llamacpp_chat if chat else asker.llamacpp_plain
            else:
                count_text, whole = asker.vllm_text, asker.vllm_chat if chat else asker.vllm_plain
            try:
                async with asyncio.timeout(_ENDPOINT_WITHIN_S):
                    return await by_endpoint(count_text, whole, context_tokens=info.context_tokens)
            except (_NotThere, TimeoutError) as error:
                tried.append(str(error) or f"/tokenize took over {_ENDPOINT_WITHIN_S:.0f} s")
        if info.kind != "vllm_generate":
            try:
                ask_usage = asker.usage_chat if chat else asker.usage_plain
                table = await by_usage(ask_usage, context_tokens=info.context_tokens)
            except _NotThere as error:
                tried.append(str(error))
            else:
                return replace(table, why="; ".join([table.why, *tried]))
        return replace(ASSUMED, why="; ".join([ASSUMED.why, *tried]))


async def by_endpoint(count_text: CountText, count_chat: CountChat, *, context_tokens: int | None) -> TokenTable:
    """Count every corpus line with the tokenizer, then whole prompts to see how far the sum is off."""
    lines = pieces()
    counts = await _each(count_text, lines)
    nonces = await _each(count_text, [nonce(n) for n in range(1, _NONCES + 1)])
    one = (Message("user", lines[0]),)
    three = (*one, Message("assistant", lines[1]), Message("user", lines[2]))
    template = await count_chat(one) - counts[0]
    further = (await count_chat(three) - template - sum(counts[:3])) / 2
    table = TokenTable(
        method="endpoint",
        tokens_per_byte=sum(counts) / sum(len(line.encode()) for line in lines),
        template_tokens=float(max(template, 0)),
        message_tokens=max(further, 0.0),
        nonce_tokens=float(math.ceil(sum(nonces) / len(nonces))),
        piece_tokens=tuple(float(c) for c in counts),
        why="counted with the server's own tokenizer",
    )
    return replace(table, error_ratio=await _checked(table, count_chat, context_tokens))


async def by_usage(count_chat: CountChat, *, context_tokens: int | None) -> TokenTable:
    """Fit ``tokens = template + bytes x ratio`` to the usage of a few requests, then check whole prompts."""
    lines = pieces()
    longest = math.inf if context_tokens is None else context_tokens * _LONGEST_SHARE
    points: list[tuple[int, int]] = []
    for wanted in _PROBE_LINES:
        text = "".join(lines[i] for i in sample_indices(wanted))
        if len(text) > longest and points:
            break  # at worst a token a byte: never longer than the context
        points.append((len(text.encode()), await count_chat((Message("user", text),))))
    if len(points) < 2:
        raise _NotThere(f"a context of {context_tokens} tokens is too short to fit lengths")
    slope, intercept = _line(points)
    if slope <= 0:
        raise _NotThere("usage does not grow with the prompt")
    nonces = await count_chat((Message("user", "".join(nonce(n) for n in range(1, _NONCES + 1))),)) - intercept
    three = (Message("user", lines[0]), Message("assistant", lines[1]), Message("user", lines[2]))
    further = (await count_chat(three) - intercept - slope * sum(len(line.encode()) for line in lines[:3])) / 2
    table = TokenTable(
        method="usage",
        tokens_per_byte=slope,
        template_tokens=max(intercept, 0.0),
        message_tokens=max(further, 0.0),
        nonce_tokens=max(nonces / _NONCES, 1.0),
        why=f"fitted to the usage of {len(points)} requests",
    )
    return replace(table, error_ratio=await _checked(table, count_chat, context_tokens))


async def _checked(table: TokenTable, count_chat: CountChat, context_tokens: int | None) -> float | None:
    """The largest relative error over whole prompts; None when the context fits none of them."""
    writer = Writer(table, seed=0, shard=0, of=1)
    errors = []
    for wanted in _CHECK_TOKENS:
        if context_tokens is not None and wanted > context_tokens * _LONGEST_SHARE:
            continue
        text = writer.distinct(wanted - table.template_tokens)
        actual = await count_chat((Message("user", text.text),))
        errors.append(abs(text.tokens + table.template_tokens - actual) / actual)
    return max(errors, default=None)


async def _each(count: CountText, texts: Sequence[str]) -> list[int]:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(text: str) -> int:
        async with gate:
            return await count(text)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(t)) for t in texts]
    except* (TargetError, _NotThere) as errors:
        raise errors.exceptions[0] from None
    return [t.result() for t in tasks]


def _line(points: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Least squares: slope and intercept."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    return slope, mean_y - slope * mean_x


def _length(fields: dict[str, object]) -> int:
    tokens, count = fields.get("tokens"), fields.get("count")
    if isinstance(count, int):
        return count
    if isinstance(tokens, list):
        return len(tokens)
    raise _NotThere("POST /tokenize gives no tokens")


def _used(fields: dict[str, object]) -> int:
    usage = fields.get("usage")
    count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    if not isinstance(count, int) or count <= 0:
        raise _NotThere("answers carry no usage")
    return count


def _joined(messages: Sequence[Message]) -> str:
    """As the adapters without a chat template send them."""
    return "\n\n".join(m.content for m in messages)


def _plain(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": m.role, "content": m.content} for m in messages]
