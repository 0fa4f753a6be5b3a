"""Options that every workload shares: length of the answer, sampling, thinking, further request fields."""

from __future__ import annotations

import math
import random
from typing import Self

import orjson
from pydantic import Field, model_validator

from soakd.errors import ConfigError, Problem
from soakd.fields import ConfigModel
from soakd.load.prompts import TokenTable

_OWN_FIELDS = frozenset({"model", "messages", "prompt", "stream", "stream_options", "max_tokens"})
_UNCHECKED_ERROR = 0.1
SHORTEST_ROOM = 64


class AnswerTokens(ConfigModel):
    """The cap on the answer (``max_tokens``), drawn evenly between ``low`` and ``high``."""

    low: int = Field(default=16, ge=1)
    high: int = Field(default=128, ge=1, le=1_000_000)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low is {self.low}, high is {self.high}; low must not be above high")
        return self

    def draw(self, source: random.Random) -> int:
        return source.randint(self.low, self.high)


class Sampling(ConfigModel):
    """Sampling parameters; what is not given is left to the server."""

    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = Field(default=None, gt=0)
    seed: int | None = None
    stop: tuple[str, ...] | None = None


class RequestOptions(ConfigModel):
    """Fields added to each request.

    ``thinking`` switches a Qwen model's thinking (``chat_template_kwargs.enable_thinking``), None leaves it as the
    server has it; ``ignore_eos`` makes every answer as long as its cap; ``body`` is any further field and wins.
    """

    sampling: Sampling = Sampling()
    thinking: bool | None = None
    ignore_eos: bool = False
    body: dict[str, object] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _no_own_fields(self) -> Self:
        taken = sorted(_OWN_FIELDS & self.body.keys())
        if taken:
            raise ValueError(f"body may not set {', '.join(taken)}: the load engine sets it")
        return self

    def extra(self, **more: object) -> bytes:
        """The fields as canonical JSON; empty when there are none."""
        fields: dict[str, object] = self.sampling.model_dump(exclude_none=True)
        if self.thinking is not None:
            fields["chat_template_kwargs"] = {"enable_thinking": self.thinking}
        if self.ignore_eos:
            fields["ignore_eos"] = True
        fields |= more
        fields |= self.body
        return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS) if fields else b""


def prompt_room(kind: str, table: TokenTable, context_tokens: int | None, answer_tokens: int) -> int | None:
    """The longest prompt that fits beside the answer, less a margin for the error of the calibration; None: no limit.

    Raises ConfigError when the context leaves no room for a prompt at all.
    """
    if context_tokens is None:
        return None
    error = _UNCHECKED_ERROR if table.error_ratio is None else max(table.error_ratio, 0.005)
    room = math.floor((context_tokens - answer_tokens) / (1 + error)) - 8
    if room < SHORTEST_ROOM:
        found = (
            f"the server's context of {context_tokens} tokens leaves no room for a prompt and {answer_tokens} of answer"
        )
        raise ConfigError([Problem("workload", None, f"{kind}.answer", found, "ask for shorter answers or serve more context")])  # noqa: E501  # fmt: skip
    return room
