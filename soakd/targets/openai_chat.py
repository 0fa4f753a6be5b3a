"""OpenAI's chat completions, streamed: what vLLM, SGLang, llama.cpp and most others speak."""

from __future__ import annotations

from typing import cast

import orjson
from pydantic import BaseModel, ConfigDict

from soakd.targets.base import Adapter, Ask, Carries, Delta, Framing, MalformedPayload
from soakd.targets.openai_wire import error_text, joined, json_object, usage_of

KIND = "openai_chat"

_CONTENT = Delta(Carries.CONTENT)
_DONE = Delta(done=True)
_NOTHING = Delta()


class Config(BaseModel):
    """Where the endpoint is below the base URL."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = "/v1/chat/completions"


class OpenAIChat:
    """``reasoning_content`` (vLLM before 0.10, llama.cpp, DeepSeek) and ``reasoning`` (vLLM since, OpenRouter) are
    tokens as much as ``content`` and ``tool_calls`` are."""

    kind = KIND
    framing = Framing.SSE
    marks_end = True

    def __init__(self, path: str) -> None:
        self.path = path

    def body(self, model: str, ask: Ask, extra: bytes) -> bytes:
        head = {
            "model": model,
            "messages": [{"role": m.role, "content": m.content} for m in ask.messages],
            "max_tokens": ask.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return joined(head, extra, ask.extra)

    def decode(self, payload: bytes, want_text: bool) -> Delta:
        if not want_text:
            # quotes inside JSON strings are escaped, so these bytes can't come from the text of the answer
            at = payload.find(b'"delta":{"content":"')
            if (
                at >= 0
                and payload[at + 20] != 0x22
                and b'"finish_reason":null' in payload
                and b'"usage":{' not in payload
                and b'"error":' not in payload
                and payload[-1] == 0x7D
            ):
                return _CONTENT
        if payload == b"[DONE]":
            return _DONE
        return _decode(json_object(payload))


def _decode(document: dict[str, object]) -> Delta:
    if (error := document.get("error")) is not None:
        return Delta(error=error_text(error))
    usage = usage_of(document.get("usage"))
    choices = document.get("choices")
    if not isinstance(choices, list):
        if usage is not None:
            return Delta(usage=usage)
        raise MalformedPayload(f"no choices in {orjson.dumps(document)[:120].decode(errors='replace')}")
    if not choices:
        return Delta(usage=usage) if usage else _NOTHING
    choice = choices[0]
    if not isinstance(choice, dict):
        raise MalformedPayload("a choice that is no object")
    delta = choice.get("delta")
    finish = choice.get("finish_reason")
    carries, text = _carried(cast(dict[str, object], delta)) if isinstance(delta, dict) else (Carries.NOTHING, "")
    return Delta(carries, text, finish if isinstance(finish, str) else None, usage)


def _carried(delta: dict[str, object]) -> tuple[Carries, str]:
    content = delta.get("content")
    if isinstance(content, str) and content:
        return Carries.CONTENT, content
    for name in ("reasoning_content", "reasoning"):
        thought = delta.get(name)
        if isinstance(thought, str) and thought:
            return Carries.REASONING, thought
    if delta.get("tool_calls") or delta.get("function_call"):
        return Carries.TOOL_CALL, ""
    refusal = delta.get("refusal")
    return (Carries.CONTENT, refusal) if isinstance(refusal, str) and refusal else (Carries.NOTHING, "")


def build(config: Config) -> Adapter:
    return OpenAIChat(config.path)
