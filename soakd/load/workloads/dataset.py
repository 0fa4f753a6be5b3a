"""Prompts from the user's own file: JSON lines (``prompt`` or ``messages``) or ShareGPT's format."""

from __future__ import annotations

import math
from pathlib import Path

from pydantic import Field

from soakd.errors import ConfigError, Problem
from soakd.fields import ConfigModel
from soakd.load.corpus import Writer
from soakd.load.dataset_file import DatasetRecord, Records, open_dataset
from soakd.load.prompts import Message, Prompt, PromptSource, Shard, TokenTable
from soakd.load.workload_options import RequestOptions, prompt_room

KIND = "dataset"
_BANDS = ((512, "up-to-512"), (2048, "up-to-2048"))


class Config(ConfigModel):
    """Records in an order shuffled by the seed; when all were sent they come again, marked so that prefix caches do
    not know them (``mark_repeats: false`` sends them as they are).

    A record's own ``max_tokens`` or the length of its reference answer caps the answer, ``max_tokens`` at most.
    """

    file: Path
    max_tokens: int = Field(default=256, ge=1, le=1_000_000)
    mark_repeats: bool = True
    request: RequestOptions = RequestOptions()


def fit(config: Config, table: TokenTable, context_tokens: int | None) -> tuple[Config, list[str]]:
    """The whole file is read and checked. Records that do not fit are skipped, by estimate of their bytes."""
    records = open_dataset(config.file)
    room = prompt_room(KIND, table, context_tokens, config.max_tokens)
    if room is None:
        return config, [f"{len(records)} records in {config.file.name}"]
    long = sum(1 for i in range(len(records)) if _tokens(records[i], table) > room)
    if long == len(records):
        found = f"each of the {long} records is longer than the {room} tokens that fit"
        raise ConfigError([Problem(str(config.file), None, "", found, "use shorter records or serve more context")])
    skipped = f", {long} of them skipped: too long for a context of {context_tokens} tokens" if long else ""
    return config, [f"{len(records)} records in {config.file.name}{skipped}"]


def build(config: Config, table: TokenTable, context_tokens: int | None, seed: int, shard: Shard) -> PromptSource:
    return _Dataset(config, table, context_tokens, seed, shard)


class _Dataset:
    def __init__(self, config: Config, table: TokenTable, context_tokens: int | None, seed: int, shard: Shard) -> None:
        self._config = config
        self._table = table
        self._room = prompt_room(KIND, table, context_tokens, config.max_tokens)
        self._records: Records = open_dataset(config.file)
        self._extra = config.request.extra()
        self._writer = Writer(table, seed, shard.index, shard.of)
        self._next = shard.index
        self._step = shard.of
        size = len(self._records)
        # a walk of constant stride meets every record once: a shuffle that needs no memory
        self._stride = next(s for s in range(max(1, int(size * 0.618)), 2 * size + 2) if math.gcd(s, size) == 1)
        self._offset = seed % size

    def take(self) -> Prompt:
        size = len(self._records)
        for _ in range(size):
            place, again = self._next % size, self._next >= size
            self._next += self._step
            record = self._records[(self._offset + place * self._stride) % size]
            tokens = _tokens(record, self._table)
            if self._room is None or tokens <= self._room:
                return self._prompt(record, tokens, again)
        raise ConfigError([Problem(str(self._config.file), None, "", "no record fits the server's context", "")])

    def done(self, prompt: Prompt, answer: str | None) -> None:
        return None

    def _prompt(self, record: DatasetRecord, tokens: float, again: bool) -> Prompt:
        messages = record.messages
        if again and self._config.mark_repeats:
            messages = (Message(messages[0].role, self._writer.fresh() + messages[0].content), *messages[1:])
            tokens += self._table.nonce_tokens
        cap = record.max_tokens
        if cap is None and record.answer:
            cap = math.ceil(self._writer.tokens_of(record.answer))
        tag = next((name for limit, name in _BANDS if tokens <= limit), "above-2048")
        cold = not again or self._config.mark_repeats
        return Prompt(messages, min(cap or self._config.max_tokens, self._config.max_tokens), tag, round(tokens),
                      self._extra, cold=cold)  # fmt: skip


def _tokens(record: DatasetRecord, table: TokenTable) -> float:
    size = sum(len(m.content.encode()) for m in record.messages)
    return size * table.tokens_per_byte + table.template_tokens + table.message_tokens * (len(record.messages) - 1)
