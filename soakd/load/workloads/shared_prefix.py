"""Prompts that share long prefixes: prefix-cache hits, and cold turns told apart by their tag."""

from __future__ import annotations

import random

from pydantic import Field

from soakd.fields import ConfigModel, Ratio
from soakd.load.corpus import Text, Writer
from soakd.load.prompts import Message, Prompt, PromptSource, Shard, TokenTable
from soakd.load.workload_options import AnswerTokens, RequestOptions, prompt_room

KIND = "shared_prefix"
HIT, COLD = "prefix-hit", "prefix-cold"


class Config(ConfigModel):
    """``prefixes`` system messages of ``prefix_tokens``; each prompt adds its own ``suffix_tokens``.

    A ``cold_share`` of prompts has a prefix that was never sent before.
    """

    prefixes: int = Field(default=8, ge=1, le=256)
    prefix_tokens: int = Field(default=2048, ge=64, le=200_000)
    suffix_tokens_low: int = Field(default=32, ge=1)
    suffix_tokens_high: int = Field(default=256, ge=1, le=200_000)
    cold_share: Ratio = 0.1
    answer: AnswerTokens = AnswerTokens()
    request: RequestOptions = RequestOptions()


def fit(config: Config, table: TokenTable, context_tokens: int | None) -> tuple[Config, list[str]]:
    room = prompt_room(KIND, table, context_tokens, config.answer.high)
    overhead = table.template_tokens + table.message_tokens
    if room is None or config.prefix_tokens + config.suffix_tokens_high + overhead <= room:
        return config, []
    suffix = min(config.suffix_tokens_high, max(1, room // 4))
    prefix = max(64, int(room - suffix - overhead))
    cut = config.model_copy(
        update={
            "prefix_tokens": prefix,
            "suffix_tokens_high": suffix,
            "suffix_tokens_low": min(config.suffix_tokens_low, suffix),
        }
    )
    return cut, [
        f"prefixes were cut from {config.prefix_tokens} to {prefix} tokens, what follows to {suffix}: one request may "
        f"use {context_tokens} tokens"
    ]


def build(config: Config, table: TokenTable, context_tokens: int | None, seed: int, shard: Shard) -> PromptSource:
    return _SharedPrefix(config, table, seed, shard)


class _SharedPrefix:
    def __init__(self, config: Config, table: TokenTable, seed: int, shard: Shard) -> None:
        self._config = config
        self._overhead = table.template_tokens + table.message_tokens
        self._extra = config.request.extra()
        self._random = random.Random(f"{KIND}/{seed}/{shard.index}")
        self._writer = Writer(table, seed, shard.index, shard.of)
        # every shard has prefixes of its own: which prompt is the first with a prefix is then known here
        own = max(1, config.prefixes // shard.of)
        self._prefixes = [self._writer.distinct(config.prefix_tokens) for _ in range(own)]
        self._sent = [False] * own

    def take(self) -> Prompt:
        if self._random.random() < self._config.cold_share:
            return self._prompt(self._writer.distinct(self._config.prefix_tokens), cold=True)
        at = self._random.randrange(len(self._prefixes))
        cold, self._sent[at] = not self._sent[at], True
        return self._prompt(self._prefixes[at], cold=cold)

    def done(self, prompt: Prompt, answer: str | None) -> None:
        return None

    def _prompt(self, prefix: Text, *, cold: bool) -> Prompt:
        config = self._config
        suffix = self._writer.distinct(self._random.randint(config.suffix_tokens_low, config.suffix_tokens_high))
        messages = (Message("system", prefix.text), Message("user", suffix.text))
        expected = round(prefix.tokens + suffix.tokens + self._overhead)
        tag = COLD if cold else HIT
        return Prompt(messages, config.answer.draw(self._random), tag, expected, self._extra, cold=cold)
