"""What a wire protocol must give the load engine: a request body from a prompt, and deltas from stream payloads.

An adapter is one file of this folder with ``KIND``, ``Config`` and ``build(config)``; it does no I/O.
"""

from __future__ import annotations

import enum
import importlib
from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast

from soakd.errors import TargetError


class ChatMessage(Protocol):
    """One message of a prompt, as far as an adapter needs it."""

    @property
    def role(self) -> str: ...
    @property
    def content(self) -> str: ...


class Ask(Protocol):
    """A prompt, as far as an adapter needs it (`soakd.load.prompts.Prompt` is one).

    ``extra`` is a JSON object of further request fields, empty for none.
    """

    @property
    def messages(self) -> Sequence[ChatMessage]: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def extra(self) -> bytes: ...


class Framing(enum.Enum):
    """How payloads are cut out of the body: server-sent events, or JSON documents ended by NUL or newline."""

    SSE = "sse"
    JSON_LINES = "json-lines"


class Carries(enum.IntEnum):
    """What a delta adds to the answer. NOTHING (role-only, empty, keep-alive) never starts TTFT."""

    NOTHING = 0
    CONTENT = 1
    REASONING = 2
    TOOL_CALL = 3


class Usage(NamedTuple):
    """Token counts as the server gives them; None where it says nothing."""

    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class Delta(NamedTuple):
    """One stream payload, decoded. ``text`` (of the answer, or of the thinking where that is carried) is filled only
    when it was asked for.

    ``tokens`` is how many tokens this payload brought where the wire says so, else None. ``cumulative`` means that
    ``text`` is the whole answer so far. ``done`` is the protocol's own end mark; ``error`` an error object in the
    stream.
    """

    carries: Carries = Carries.NOTHING
    text: str = ""
    finish: str | None = None
    usage: Usage | None = None
    error: str | None = None
    done: bool = False
    tokens: int | None = None
    cumulative: bool = False


class MalformedPayload(ValueError):
    """A stream payload that is no JSON or not of the protocol; the message says what was found."""


class Adapter(Protocol):
    """One wire protocol. ``path`` is appended to the target's base URL.

    ``marks_end`` is whether a whole answer says that it is whole (a finish reason or an end mark).
    """

    kind: str
    path: str
    framing: Framing
    marks_end: bool

    def body(self, model: str, ask: Ask, extra: bytes) -> bytes:
        """The JSON request body. ``extra`` (the target's fields) yields to the prompt's own ``extra``."""
        ...

    def decode(self, payload: bytes, want_text: bool) -> Delta:
        """One payload of the stream. Raises MalformedPayload."""
        ...


class AdapterModule(Protocol):
    """The module of an adapter."""

    KIND: str

    def build(self, config: object) -> Adapter: ...


KINDS: tuple[str, ...] = ("openai_chat", "openai_completions", "vllm_generate", "llamacpp")
"""The adapters that ship; a further file of this folder is found by its name as well."""


def find_adapter(kind: str) -> Adapter:
    """The adapter of that kind with its default configuration; ``-`` and ``_`` are the same.

    Raises TargetError when there is no such file.
    """
    name = kind.replace("-", "_")
    if not name.isidentifier():
        raise TargetError(f"unknown kind of target {kind!r}", hint=f"one of {', '.join(KINDS)}")
    try:
        module = importlib.import_module(f"soakd.targets.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"soakd.targets.{name}":
            raise
        raise TargetError(f"unknown kind of target {kind!r}", hint=f"one of {', '.join(KINDS)}") from None
    if not hasattr(module, "build"):
        raise TargetError(f"unknown kind of target {kind!r}", hint=f"one of {', '.join(KINDS)}")
    return cast(AdapterModule, module).build(module.Config())
