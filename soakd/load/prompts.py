"""What a request says: the prompt, where prompts come from, and the specification that makes a source of them.

The owner process validates a workload and calibrates token lengths once (`soakd.load.tokens`), which gives a
`PromptSpec`. Each load worker builds its own source from it. Sources are deterministic by seed and shard, hold a
bounded amount of memory, and never tokenise.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Protocol, cast

import orjson
from pydantic import BaseModel, ValidationError

from soakd.errors import ConfigError, Problem
from soakd.yaml_source import option_problems


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat. ``role`` is ``system``, ``user``, ``assistant`` or ``tool``."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request before it is sent.

    ``max_tokens`` caps the answer; ``tag`` names the class of the prompt for figures by class (``short``, ``turn-3``);
    ``expected_tokens`` is the prompt's length as calibrated (template included, 0 when not known); ``extra`` is the
    canonical JSON object of further request fields (empty for none); ``session`` numbers the conversation it belongs
    to within its shard; ``cold`` is False where the server has most of the prompt in its prefix cache if it keeps one.
    """

    messages: tuple[Message, ...]
    max_tokens: int
    tag: str
    expected_tokens: int
    extra: bytes = b""
    session: int | None = None
    cold: bool = True


class PromptSource(Protocol):
    """Hands out prompts to one load worker."""

    def take(self) -> Prompt:
        """The next prompt: in time proportional to its length at most, without tokenising and without I/O that
        waits on a network. Never exhausted."""
        ...

    def done(self, prompt: Prompt, answer: str | None) -> None:
        """Report the end of a prompt taken earlier; ``answer`` is None when it failed. Conversations go on from it."""
        ...


@dataclass(frozen=True, slots=True)
class TokenTable:
    """How long text is for the server's tokenizer.

    ``method`` is ``endpoint`` (the server's own tokenizer), ``usage`` (fitted to the usage of a few requests) or
    ``assumed`` (neither was to be had). ``piece_tokens`` holds the tokens of each corpus piece, in order; it is empty
    unless the method is ``endpoint``. ``template_tokens`` are what the chat template adds to a request of one
    message, ``message_tokens`` what each further message adds. ``error_ratio`` is the largest relative error seen
    when whole prompts were checked, None when none was checked. ``why`` says how it was measured.
    """

    method: str
    tokens_per_byte: float
    template_tokens: float
    message_tokens: float
    nonce_tokens: float
    piece_tokens: tuple[float, ...] = ()
    error_ratio: float | None = None
    why: str = ""


ASSUMED = TokenTable(
    "assumed", 0.25, 12.0, 5.0, 16.0, why="no calibration was made: 4 bytes of text to a token assumed"
)


@dataclass(frozen=True, slots=True)
class PromptSpec:
    """A validated workload, ready to be sent to load workers.

    ``options`` is the canonical JSON of the workload's configuration, already cut to fit; ``context_tokens`` is what
    one request may use in prompt and answer together; ``notes`` say what was cut and how tokens were counted, for the
    report.
    """

    kind: str
    options: str
    table: TokenTable
    context_tokens: int | None = None
    notes: tuple[str, ...] = ()

    def to_json(self) -> bytes:
        return orjson.dumps(asdict(self))

    @classmethod
    def from_json(cls, raw: bytes | str) -> PromptSpec:
        """Raises ValueError when the text is not a specification."""
        try:
            data = orjson.loads(raw)
            table = dict(data["table"])
            table["piece_tokens"] = tuple(table["piece_tokens"])
            return cls(
                str(data["kind"]), str(data["options"]), TokenTable(**table), data["context_tokens"],
                tuple(str(n) for n in data["notes"]),
            )  # fmt: skip
        except (KeyError, TypeError, orjson.JSONDecodeError) as error:
            raise ValueError(f"not a prompt specification: {error}") from None


@dataclass(frozen=True, slots=True)
class Shard:
    """One of ``of`` load workers."""

    index: int = 0
    of: int = 1


class Workload(Protocol):
    """A module of soakd/load/workloads: ``KIND``, ``Config``, ``fit`` and ``build``."""

    KIND: str
    Config: type[BaseModel]

    def fit(self, config: BaseModel, table: TokenTable, context_tokens: int | None) -> tuple[BaseModel, list[str]]:
        """Cut the configuration to the context and say what was cut. Raises ConfigError for what can't be done."""
        ...

    def build(
        self, config: BaseModel, table: TokenTable, context_tokens: int | None, seed: int, shard: Shard
    ) -> PromptSource: ...


def workload_kinds() -> tuple[str, ...]:
    """The workloads there are, by name."""
    package = importlib.import_module("soakd.load.workloads")
    return tuple(sorted(m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_")))


def make_spec(
    kind: str, options: Mapping[str, object], table: TokenTable = ASSUMED, context_tokens: int | None = None
) -> PromptSpec:
    """Validate a workload's options and cut them to the server's context. Raises ConfigError."""
    module = _workload(kind)
    config, notes = module.fit(_validated(module, options), table, context_tokens)
    counted = f"prompt lengths: {table.why}" if table.why else f"prompt lengths by {table.method}"
    if table.error_ratio is not None:
        counted += f"; whole prompts checked to within {table.error_ratio:.1%}"
    return PromptSpec(kind, config.model_dump_json(), table, context_tokens, (*notes, counted))


def build_source(spec: PromptSpec, seed: int, shard: int = 0, shards: int = 1) -> PromptSource:
    """The source of one of ``shards`` workers; the same arguments give the same prompts. Raises ConfigError."""
    module = _workload(spec.kind)
    config = _validated(module, orjson.loads(spec.options))
    return module.build(config, spec.table, spec.context_tokens, seed, Shard(shard, shards))


def _workload(kind: str) -> Workload:
    kinds = workload_kinds()
    if kind not in kinds:
        raise ConfigError([Problem("workload", None, "kind", f"found {kind!r}", f"one of {', '.join(kinds)}")])
    return cast(Workload, importlib.import_module(f"soakd.load.workloads.{kind}"))


def _validated(module: Workload, options: Mapping[str, object]) -> BaseModel:
    try:
        return module.Config.model_validate(options)
    except ValidationError as error:
        raise ConfigError(option_problems(error, "workload", (module.KIND,))) from None
