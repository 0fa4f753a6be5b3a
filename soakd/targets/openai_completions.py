"""OpenAI's older text completions, streamed. The messages of a prompt are joined to plain text, without a template."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from soakd.targets.base import Adapter, Ask, Carries, Delta, Framing, MalformedPayload
from soakd.targets.openai_wire import error_text, joined, json_object, usage_of

KIND = "openai_completions"

_CONTENT = Delta(Carries.CONTENT)
_DONE = Delta(done=True)
_NOTHING = Delta()


class Config(BaseModel):
    """Where the endpoint is below the base URL."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = "/v1/completions"


class OpenAICompletions:
    """``choices[0].text`` is what the payload adds."""

    kind = KIND
    framing = Framing.SSE
    marks_end = True

    def __init__(self, path: str) -> None:
        self.path = path

    def body(self, model: str, ask: Ask, extra: bytes) -> bytes:
        head = {
            "model": model,
            "prompt": "\n\n".join(m.content for m in ask.messages),
            "max_tokens": ask.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return joined(head, extra, ask.extra)

    def decode(self, payload: bytes, want_text: bool) -> Delta:
        if payload == b"[DONE]":
            return _DONE
        document = json_object(payload)
        if (error := document.get("error")) is not None:
            return Delta(error=error_text(error))
        usage = usage_of(document.get("usage"))
        choices = document.get("choices")
        if not isinstance(choices, list) or not choices:
            if usage is None and not isinstance(choices, list):
                raise MalformedPayload(f"no choices in {payload[:120].decode(errors='replace')}")
            return Delta(usage=usage) if usage else _NOTHING
        choice = choices[0]
        if not isinstance(choice, dict):
            raise MalformedPayload("a choice that is no object")
        text, finish = choice.get("text"), choice.get("finish_reason")
        if isinstance(text, str) and text:
            if finish is None and usage is None and not want_text:
                return _CONTENT
            return Delta(Carries.CONTENT, text, finish if isinstance(finish, str) else None, usage)
        return Delta(finish=finish if isinstance(finish, str) else None, usage=usage)


def build(config: Config) -> Adapter:
    return OpenAICompletions(config.path)
