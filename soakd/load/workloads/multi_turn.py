"""Customer-service conversations of several turns that keep their history."""

from __future__ import annotations

import random
from typing import Self

from pydantic import Field, model_validator

from soakd.fields import ConfigModel
from soakd.load.conversations import Conversation, ConversationSource, Rules, Turn
from soakd.load.corpus import Writer
from soakd.load.prompts import Message, PromptSource, Shard, TokenTable
from soakd.load.workload_options import AnswerTokens, RequestOptions, prompt_room

KIND = "multi_turn"
_LAST_TAG = 10


class Span(ConfigModel):
    """A range that is drawn from evenly."""

    low: int = Field(ge=1)
    high: int = Field(ge=1, le=1_000_000)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low is {self.low}, high is {self.high}; low must not be above high")
        return self


class Config(ConfigModel):
    """``turns`` a conversation, each of ``turn_tokens`` from the customer; ``system_tokens`` open it (0 for none)."""

    turns: Span = Span(low=3, high=8)
    turn_tokens: Span = Span(low=32, high=256)
    system_tokens: int = Field(default=0, ge=0, le=1_000_000)
    answer: AnswerTokens = AnswerTokens()
    request: RequestOptions = RequestOptions()


def fit(config: Config, table: TokenTable, context_tokens: int | None) -> tuple[Config, list[str]]:
    """Turns are cut where even the first does not fit; conversations that outgrow the context end early."""
    room = prompt_room(KIND, table, context_tokens, config.answer.high)
    if room is None:
        return config, []
    notes = []
    first = config.system_tokens + config.turn_tokens.high + table.template_tokens
    if first > room:
        system = min(config.system_tokens, room // 4)
        high = max(1, int(room - system - table.template_tokens))
        config = config.model_copy(
            update={"system_tokens": system, "turn_tokens": Span(low=min(config.turn_tokens.low, high), high=high)}
        )
        notes.append(f"turns cut to {high} tokens, the system message to {system}: the context has {context_tokens}")
    whole = config.system_tokens + config.turns.high * (config.turn_tokens.high + config.answer.high)
    if whole > room:
        notes.append(f"conversations end before {room} tokens of history: one request may use {context_tokens} tokens")
    return config, notes


def build(config: Config, table: TokenTable, context_tokens: int | None, seed: int, shard: Shard) -> PromptSource:
    draw = random.Random(f"{KIND}/{seed}/{shard.index}")
    writer = Writer(table, seed, shard.index, shard.of)

    def spoken() -> int:
        return draw.randint(config.turn_tokens.low, config.turn_tokens.high)

    def opening() -> Turn:
        if not config.system_tokens:
            text = writer.distinct(spoken())
            return Turn((Message("user", text.text),), text.tokens)
        system, user = writer.distinct(config.system_tokens), writer.prose(spoken())
        messages = (Message("system", system.text), Message("user", user.text))
        return Turn(messages, system.tokens + user.tokens + table.message_tokens)

    def next_turn(conversation: Conversation) -> Turn | None:
        # the length is drawn anew at each turn: an even chance of ending between the two bounds
        left = config.turns.high - conversation.turn
        if left <= 0 or (conversation.turn >= config.turns.low and draw.random() < 1 / (left + 1)):
            return None
        text = writer.prose(spoken())
        return Turn((Message("user", text.text),), text.tokens + table.message_tokens)

    def tag(conversation: Conversation) -> str:
        return f"turn-{conversation.turn}" if conversation.turn < _LAST_TAG else f"turn-{_LAST_TAG}+"

    room = prompt_room(KIND, table, context_tokens, config.answer.high)
    return ConversationSource(
        Rules(
            opening=opening,
            next_turn=next_turn,
            tag=tag,
            answer_cap=lambda: config.answer.draw(draw),
            tokens_of=writer.tokens_of,
            message_tokens=table.message_tokens,
            template_tokens=table.template_tokens,
            longest=room,
            extra=config.request.extra(),
        )
    )
