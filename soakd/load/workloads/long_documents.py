"""Long documents, up to 128K tokens, with a question at the end."""

from __future__ import annotations

import random
from typing import Self

from pydantic import Field, model_validator

from soakd.fields import ConfigModel
from soakd.load.corpus import Writer
from soakd.load.prompts import Message, Prompt, PromptSource, Shard, TokenTable
from soakd.load.workload_options import AnswerTokens, RequestOptions, prompt_room

KIND = "long_documents"
_QUESTION = "Which cases were not settled, and why? Answer in two sentences.\n"


class Config(ConfigModel):
    """Documents of each length in ``tokens`` in turn; each is sent ``repeats`` times (then with a cached prefix)."""

    tokens: tuple[int, ...] = Field(default=(8_192, 16_384, 32_768, 65_536, 131_072), min_length=1, max_length=64)
    repeats: int = Field(default=1, ge=1, le=1000)
    answer: AnswerTokens = AnswerTokens(low=64, high=64)
    request: RequestOptions = RequestOptions()

    @model_validator(mode="after")
    def _lengths(self) -> Self:
        wrong = [n for n in self.tokens if not 64 <= n <= 2_000_000]
        if wrong:
            raise ValueError(f"{wrong[0]} is no length of a document; give 64 to 2000000 tokens")
        return self


def fit(config: Config, table: TokenTable, context_tokens: int | None) -> tuple[Config, list[str]]:
    """Lengths above the context are left out; when all are, the longest that fits takes their place."""
    room = prompt_room(KIND, table, context_tokens, config.answer.high)
    if room is None or max(config.tokens) <= room:
        return config, []
    kept = tuple(n for n in config.tokens if n <= room) or (room,)
    lost = ", ".join(str(n) for n in config.tokens if n > room)
    note = f"documents of {lost} tokens were left out, up to {max(kept)} are sent: one request may use {context_tokens}"
    return config.model_copy(update={"tokens": kept}), [note]


def build(config: Config, table: TokenTable, context_tokens: int | None, seed: int, shard: Shard) -> PromptSource:
    return _Documents(config, table, seed, shard)


class _Documents:
    def __init__(self, config: Config, table: TokenTable, seed: int, shard: Shard) -> None:
        self._config = config
        self._template = table.template_tokens
        self._extra = config.request.extra()
        self._random = random.Random(f"{KIND}/{seed}/{shard.index}")
        self._writer = Writer(table, seed, shard.index, shard.of)
        self._taken = shard.index * config.repeats
        self._first = self._taken
        self._document: Prompt | None = None

    def take(self) -> Prompt:
        repeat = (self._taken - self._first) % self._config.repeats
        wanted = self._config.tokens[self._taken // self._config.repeats % len(self._config.tokens)]
        self._taken += 1
        if repeat and self._document is not None:
            p = self._document
            return Prompt(p.messages, p.max_tokens, p.tag, p.expected_tokens, p.extra, cold=False)
        question = self._writer.tokens_of(_QUESTION)
        text = self._writer.distinct(wanted - self._template - question)
        messages = (Message("user", text.text + _QUESTION),)
        expected = round(text.tokens + question + self._template)
        cap = self._config.answer.draw(self._random)
        self._document = Prompt(messages, cap, f"doc-{length_name(wanted)}", expected, self._extra)
        return self._document

    def done(self, prompt: Prompt, answer: str | None) -> None:
        return None


def length_name(tokens: int) -> str:
    """``8k``, ``128k``, ``3000``."""
    return f"{tokens // 1024}k" if tokens % 1024 == 0 else str(tokens)
