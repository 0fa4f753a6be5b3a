"""Prompts of mixed length, each of them new to the server: the default workload.

The bands are the request mix of a customer-service chat: 80 % of prompts up to 512 tokens, 15 % up to 2048, 5 % above.
"""

from __future__ import annotations

import random
from typing import Self

from pydantic import Field, model_validator

from soakd.fields import ConfigModel, Ratio
from soakd.load.corpus import Writer
from soakd.load.prompts import Message, Prompt, PromptSource, Shard, TokenTable
from soakd.load.workload_options import AnswerTokens, RequestOptions, prompt_room

KIND = "mixture"
_DECK = 100


class Band(ConfigModel):
    """A share of the prompts, their lengths drawn evenly from ``low`` to ``high`` tokens, template included."""

    share: Ratio
    low: int = Field(ge=1)
    high: int = Field(ge=1, le=2_000_000)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low is {self.low}, high is {self.high}; low must not be above high")
        return self


class Config(ConfigModel):
    """``distinct: false`` repeats ``pool`` prompts, which lets prefix caches work."""

    bands: tuple[Band, ...] = Field(
        default=(
            Band(share=0.80, low=48, high=512),
            Band(share=0.15, low=513, high=2048),
            Band(share=0.05, low=2049, high=4096),
        ),
        min_length=1,
        max_length=20,
    )
    answer: AnswerTokens = AnswerTokens()
    request: RequestOptions = RequestOptions()
    distinct: bool = True
    pool: int = Field(default=64, ge=1, le=4096)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        total = sum(b.share for b in self.bands)
        if abs(total - 1) > 0.001:
            raise ValueError(f"the shares of the bands add up to {total:.3g}; they must add up to 1")
        return self


def fit(config: Config, table: TokenTable, context_tokens: int | None) -> tuple[Config, list[str]]:
    """Bands that do not fit are cut to the longest prompts that do."""
    room = prompt_room(KIND, table, context_tokens, config.answer.high)
    bands, notes = [], []
    for band in config.bands:
        if room is None or band.high <= room:
            bands.append(band)
            continue
        cut = Band(share=band.share, low=min(band.low, room * 3 // 4), high=room)
        bands.append(cut)
        notes.append(
            f"the {band.share:.0%} of prompts of {band.low} to {band.high} tokens were cut to {cut.low} to {cut.high}: "
            f"one request may use {context_tokens} tokens, of which up to {config.answer.high} are for the answer"
        )
    return config.model_copy(update={"bands": tuple(bands)}), notes


def build(config: Config, table: TokenTable, context_tokens: int | None, seed: int, shard: Shard) -> PromptSource:
    source = _Mixture(config, table, seed, shard)
    return source if config.distinct else _Pool([source.take() for _ in range(config.pool)])


class _Mixture:
    def __init__(self, config: Config, table: TokenTable, seed: int, shard: Shard) -> None:
        self._bands = config.bands
        self._tags = tuple(f"{b.low}-{b.high}" for b in config.bands)
        self._answer = config.answer
        self._extra = config.request.extra()
        self._template = table.template_tokens
        self._random = random.Random(f"{KIND}/{seed}/{shard.index}")
        self._writer = Writer(table, seed, shard.index, shard.of)
        self._deck: list[int] = []

    def take(self) -> Prompt:
        if not self._deck:
            self._deck = self._shuffled()
        at = self._deck.pop()
        band = self._bands[at]
        text = self._writer.distinct(self._random.randint(band.low, band.high) - self._template)
        messages = (Message("user", text.text),)
        expected = round(text.tokens + self._template)
        return Prompt(messages, self._answer.draw(self._random), self._tags[at], expected, self._extra)

    def done(self, prompt: Prompt, answer: str | None) -> None:
        return None

    def _shuffled(self) -> list[int]:
        """A hundred draws that hold the shares exactly, so that short runs are alike too."""
        edges = [0.0]
        for band in self._bands:
            edges.append(edges[-1] + band.share)
        offset = self._random.random()
        points = [(i + offset) / _DECK * edges[-1] for i in range(_DECK)]
        deck = [max(b for b in range(len(self._bands)) if edges[b] <= p) for p in points]
        self._random.shuffle(deck)
        return deck


class _Pool:
    def __init__(self, prompts: list[Prompt]) -> None:
        self._prompts = prompts
        self._taken = 0

    def take(self) -> Prompt:
        prompt = self._prompts[self._taken % len(self._prompts)]
        self._taken += 1
        if self._taken <= len(self._prompts):
            return prompt
        return Prompt(prompt.messages, prompt.max_tokens, prompt.tag, prompt.expected_tokens, prompt.extra, cold=False)

    def done(self, prompt: Prompt, answer: str | None) -> None:
        return None
