"""vLLM's older ``/generate`` (``vllm.entrypoints.api_server``), streamed: each document repeats the whole text so far.

The protocol carries neither token counts nor a finish reason nor an end mark: a body that ends cleanly is complete,
and tokens stay unknown rather than guessed.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from soakd.targets.base import Adapter, Ask, Carries, Delta, Framing, MalformedPayload
from soakd.targets.openai_wire import error_text, joined, json_object

KIND = "vllm_generate"


class Config(BaseModel):
    """Where the endpoint is below the base URL."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = "/generate"


class VllmGenerate:
    """``{"text": ["prompt and answer so far"]}``, ended by NUL (first versions) or newline."""

    kind = KIND
    framing = Framing.JSON_LINES
    marks_end = False

    def __init__(self, path: str) -> None:
        self.path = path

    def body(self, model: str, ask: Ask, extra: bytes) -> bytes:
        # the server takes sampling parameters at the top level and refuses a field that it doesn't know, model too
        head = {
            "prompt": "\n\n".join(m.content for m in ask.messages),
            "max_tokens": ask.max_tokens,
            "stream": True,
        }
        return joined(head, extra, ask.extra)

    def decode(self, payload: bytes, want_text: bool) -> Delta:
        document = json_object(payload)
        if (error := document.get("error")) is not None:
            return Delta(error=error_text(error))
        texts = document.get("text")
        if not isinstance(texts, list) or not texts or not isinstance(texts[0], str):
            raise MalformedPayload(f"no text in {payload[:120].decode(errors='replace')}")
        return Delta(Carries.CONTENT, texts[0], cumulative=True)


def build(config: Config) -> Adapter:
    return VllmGenerate(config.path)
