"""Requests that offer tools and want a call to one of them."""

from __future__ import annotations

import random
from typing import Literal

from pydantic import Field

from soakd.fields import ConfigModel
from soakd.load.corpus import Writer
from soakd.load.prompts import Message, Prompt, PromptSource, Shard, TokenTable
from soakd.load.workload_options import AnswerTokens, RequestOptions, prompt_room

KIND = "tool_calls"
_ASKS = (
    ("Look up the order with the number {n} and tell me where it is.\n", "find_order"),
    ("Cancel the order with the number {n}, the customer has changed their mind.\n", "cancel_order"),
    ("Book a technician for customer {n} on the next free day.\n", "book_technician"),
)
_TOKENS_A_TOOL = 90


class Config(ConfigModel):
    """``tools`` functions are offered; ``choice`` is ``tool_choice``; prompts are about ``prompt_tokens`` long, tools
    apart."""

    tools: int = Field(default=3, ge=1, le=64)
    choice: Literal["auto", "required", "none"] = "auto"
    prompt_tokens: int = Field(default=256, ge=48, le=200_000)
    answer: AnswerTokens = AnswerTokens(low=64, high=128)
    request: RequestOptions = RequestOptions()


def fit(config: Config, table: TokenTable, context_tokens: int | None) -> tuple[Config, list[str]]:
    room = prompt_room(KIND, table, context_tokens, config.answer.high)
    taken = config.tools * _TOKENS_A_TOOL
    if room is None or config.prompt_tokens + taken <= room:
        return config, []
    cut = max(48, room - taken)
    note = f"prompts were cut from {config.prompt_tokens} to {cut} tokens: one request may use {context_tokens} tokens"
    return config.model_copy(update={"prompt_tokens": cut}), [note]


def build(config: Config, table: TokenTable, context_tokens: int | None, seed: int, shard: Shard) -> PromptSource:
    return _ToolCalls(config, table, seed, shard)


class _ToolCalls:
    def __init__(self, config: Config, table: TokenTable, seed: int, shard: Shard) -> None:
        self._config = config
        self._template = table.template_tokens
        self._random = random.Random(f"{KIND}/{seed}/{shard.index}")
        self._writer = Writer(table, seed, shard.index, shard.of)
        self._extra = config.request.extra(tools=_schemas(config.tools), tool_choice=config.choice)

    def take(self) -> Prompt:
        ask, _ = _ASKS[self._random.randrange(len(_ASKS))]
        question = ask.format(n=self._random.randrange(100_000, 1_000_000))
        asked = self._writer.tokens_of(question)
        text = self._writer.distinct(self._config.prompt_tokens - self._template - asked)
        # how a template renders tools is the server's: their tokens are a rough share of the length
        expected = round(text.tokens + asked + self._template + self._config.tools * _TOKENS_A_TOOL)
        cap = self._config.answer.draw(self._random)
        return Prompt((Message("user", text.text + question),), cap, "tools", expected, self._extra)

    def done(self, prompt: Prompt, answer: str | None) -> None:
        return None


def _schemas(count: int) -> list[dict[str, object]]:
    names = [name if i < len(_ASKS) else f"{name}_{i}" for i in range(count) for _, name in [_ASKS[i % len(_ASKS)]]]
    parameters = {
        "type": "object",
        "properties": {"number": {"type": "integer", "description": "The number given by the customer."}},
        "required": ["number"],
    }
    described = [(name, f"Use it to {name.replace('_', ' ')}.") for name in names]
    return [
        {"type": "function", "function": {"name": name, "description": text, "parameters": parameters}}
        for name, text in described
    ]
