"""llama.cpp's native ``/completion``, streamed: token counts come with every payload and at the end."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from soakd.targets.base import Adapter, Ask, Carries, Delta, Framing, MalformedPayload, Usage
from soakd.targets.openai_wire import error_text, joined, json_object, number

KIND = "llamacpp"


class Config(BaseModel):
    """Where the endpoint is below the base URL."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = "/completion"


class LlamaCpp:
    """The last payload has ``stop`` true, ``tokens_predicted``, ``tokens_evaluated`` and ``stop_type``; there is no
    ``[DONE]``. A token that completes no character yet comes as empty ``content`` with its id in ``tokens``."""

    kind = KIND
    framing = Framing.SSE
    marks_end = True

    def __init__(self, path: str) -> None:
        self.path = path

    def body(self, model: str, ask: Ask, extra: bytes) -> bytes:
        head = {
            "prompt": "\n\n".join(m.content for m in ask.messages),
            "n_predict": ask.max_tokens,
            "stream": True,
            "return_tokens": True,
        }
        return joined(head, extra, ask.extra)

    def decode(self, payload: bytes, want_text: bool) -> Delta:
        if payload == b"[DONE]":
            return Delta(done=True)
        document = json_object(payload)
        if (error := document.get("error")) is not None:
            return Delta(error=error_text(error))
        content, ids = document.get("content"), document.get("tokens")
        if not isinstance(content, str):
            raise MalformedPayload(f"no content in {payload[:120].decode(errors='replace')}")
        if document.get("stop") is True:
            return _last(document, content)
        brought = len(ids) if isinstance(ids, list) else None
        if content or brought:
            return Delta(Carries.CONTENT, content, tokens=brought)
        return Delta()


def _last(document: dict[str, object], content: str) -> Delta:
    # tokens_evaluated counts the whole prompt, tokens_cached what the slot holds at the end: it is no prefix-cache hit
    usage = Usage(
        number(document.get("tokens_evaluated")),
        number(document.get("tokens_predicted")),
        _timing(document, "cache_n"),
    )
    stop_type = document.get("stop_type")
    reason = stop_type if isinstance(stop_type, str) and stop_type not in ("", "none") else _older(document)
    carries = Carries.CONTENT if content else Carries.NOTHING
    return Delta(carries, content, reason, usage, done=True)


def _older(document: dict[str, object]) -> str | None:
    for flag, reason in (("stopped_limit", "limit"), ("stopped_eos", "eos"), ("stopped_word", "word")):
        if document.get(flag) is True:
            return reason
    return None


def _timing(document: dict[str, object], name: str) -> int | None:
    timings = document.get("timings")
    return number(timings.get(name)) if isinstance(timings, dict) else None


def build(config: Config) -> Adapter:
    return LlamaCpp(config.path)
