"""Agent conversations that grow: a system message with tools, then turns of tool results up to 25,000 tokens and more.

They find faults that fresh prompts don't: memory that grows with the length of a sequence, prefix caches under
pressure, templates that break on long histories.
"""

from __future__ import annotations

import random
from typing import Literal

import orjson
from pydantic import Field

from soakd.fields import ConfigModel
from soakd.load.conversations import Conversation, ConversationSource, Rules, Turn
from soakd.load.corpus import Writer
from soakd.load.prompts import Message, PromptSource, Shard, TokenTable
from soakd.load.workload_options import AnswerTokens, RequestOptions, prompt_room

KIND = "agentic"
_TOOLS = ("read_file", "search_orders", "run_query", "list_directory", "fetch_page", "run_tests")
_SYSTEM = "You are an agent with the tools {tools}. Call one tool at a time and go on until the task is done.\n"
_WRAPPING_TOKENS = 24
_BANDS = ((2_048, "2k"), (4_096, "4k"), (8_192, "8k"), (16_384, "16k"), (32_768, "32k"), (65_536, "64k"))


class Config(ConfigModel):
    """A conversation grows by ``result_tokens`` of tool output a turn until ``grow_to_tokens``.

    ``result_role`` ``user`` sends a result as Qwen's template renders a tool message; ``tool`` sends it under that
    role, which not every server takes without a call to answer.
    """

    system_tokens: int = Field(default=1024, ge=32, le=1_000_000)
    task_tokens: int = Field(default=128, ge=32, le=100_000)
    result_tokens_low: int = Field(default=256, ge=32)
    result_tokens_high: int = Field(default=2048, ge=32, le=1_000_000)
    grow_to_tokens: int = Field(default=25_000, ge=512, le=2_000_000)
    result_role: Literal["user", "tool"] = "user"
    answer: AnswerTokens = AnswerTokens(low=64, high=256)
    request: RequestOptions = RequestOptions()


def fit(config: Config, table: TokenTable, context_tokens: int | None) -> tuple[Config, list[str]]:
    room = prompt_room(KIND, table, context_tokens, config.answer.high)
    if room is None or room >= config.grow_to_tokens:
        return config, []
    high = max(32, min(config.result_tokens_high, room // 4))
    cut = config.model_copy(
        update={
            "grow_to_tokens": room,
            "system_tokens": min(config.system_tokens, max(32, room // 4)),
            "task_tokens": min(config.task_tokens, max(32, room // 8)),
            "result_tokens_high": high,
            "result_tokens_low": min(config.result_tokens_low, high),
        }
    )
    return cut, [
        f"conversations grow to {room} tokens instead of {config.grow_to_tokens}, tool results to {high}: one request "
        f"may use {context_tokens} tokens"
    ]


def build(config: Config, table: TokenTable, context_tokens: int | None, seed: int, shard: Shard) -> PromptSource:
    draw = random.Random(f"{KIND}/{seed}/{shard.index}")
    writer = Writer(table, seed, shard.index, shard.of)

    def opening() -> Turn:
        # what makes it distinct stands first, so that no prefix is shared between conversations
        head = writer.fresh() + _SYSTEM.format(tools=", ".join(_TOOLS))
        system = writer.prose(config.system_tokens - writer.tokens_of(head))
        task = writer.prose(config.task_tokens)
        messages = (Message("system", head + system.text), Message("user", task.text or "Go on.\n"))
        tokens = writer.tokens_of(head) + system.tokens + task.tokens + table.message_tokens
        return Turn(messages, tokens)

    def next_turn(conversation: Conversation) -> Turn | None:
        if conversation.tokens >= config.grow_to_tokens:
            return None
        wanted = draw.randint(config.result_tokens_low, config.result_tokens_high)
        left = config.grow_to_tokens - conversation.tokens - table.message_tokens
        text = writer.prose(min(wanted, left) - _WRAPPING_TOKENS)
        if not text.text:
            return None
        content = _result(_TOOLS[draw.randrange(len(_TOOLS))], conversation, text.text, config.result_role)
        return Turn((Message(config.result_role, content),), text.tokens + _WRAPPING_TOKENS + table.message_tokens)

    return ConversationSource(
        Rules(
            opening=opening,
            next_turn=next_turn,
            tag=lambda c: "start" if c.turn == 1 else f"grown-{_band(c.tokens)}",
            answer_cap=lambda: config.answer.draw(draw),
            tokens_of=writer.tokens_of,
            message_tokens=table.message_tokens,
            template_tokens=table.template_tokens,
            longest=prompt_room(KIND, table, context_tokens, config.answer.high),
            extra=config.request.extra(),
        )
    )


def _result(tool: str, conversation: Conversation, text: str, role: str) -> str:
    head = orjson.dumps({"tool": tool, "call": conversation.turn, "ok": True}).decode()
    content = f"{head}\n{text}"
    return f"<tool_response>\n{content}</tool_response>" if role == "user" else content


def _band(tokens: float) -> str:
    return next((name for limit, name in _BANDS if tokens <= limit), "128k")
