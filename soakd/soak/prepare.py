"""Before a run: find the server and its process, see that it generates, measure its tokenizer, lay out the prompts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from soakd.analysis.limits_growth import Caps
from soakd.config import Loaded, read_secret
from soakd.errors import ConfigError, Problem
from soakd.load.prompts import ASSUMED, PromptSpec, TokenTable, make_spec
from soakd.load.tokens import calibrate
from soakd.model import TargetInfo
from soakd.ports import Clock, Roots
from soakd.targets.access import Access
from soakd.targets.declared_caps import DeclaredCaps, declared_caps
from soakd.targets.discovery import Hints, check_generation, identify
from soakd.yaml_source import Source, undotted


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a run needs to know of its target. ``server_kind`` is what the server was recognised as."""

    access: Access
    info: TargetInfo
    server_kind: str
    prompts: PromptSpec
    declared: DeclaredCaps
    caps: Caps


def access_of(loaded: Loaded) -> Access:
    """Raises ConfigError when no target is given, TargetError when its address is wrong."""
    target = loaded.config.target
    if target.url is None:
        raise loaded.source.error(
            ("target", "url"), "no target", "give --target URL, target.url or the environment's SOAKD_TARGET"
        )
    return Access.to(
        target.url,
        api_key=read_secret(target.api_key_env, target.api_key_file, "API key"),
        headers=target.headers,
        ca_file=target.ca_file,
        verify_tls=target.verify_tls,
        socket=target.socket,
    )


async def prepare(loaded: Loaded, clock: Clock, roots: Roots) -> Prepared:
    """Raises TargetError or ConfigError; sends a few short requests to the target."""
    target = loaded.config.target
    access = access_of(loaded)
    found = await identify(access, clock, hints=Hints(target.model, target.pid, target.command), roots=roots)
    adapter = adapter_of(target.kind, found.kind)
    await check_generation(access, found, clock, adapter=adapter, extra=target.body)
    table = await calibrate(access, found, adapter=adapter)
    prompts = prompts_of(loaded, table, found.context_tokens)
    declared = declared_caps(found.kind, found.flags)
    return Prepared(
        access,
        replace(found, kind=adapter),
        found.kind,
        prompts,
        declared,
        Caps(
            vram=float(target.vram_cap) if target.vram_cap else None,
            host_memory=float(target.host_memory_cap or 0) or _host_cap(declared),
        ),
    )


def adapter_of(wanted: str, found: str) -> str:
    """The wire protocol to load the server by."""
    if wanted != "auto":
        return wanted
    return "vllm_generate" if found == "vllm_generate" else "openai_chat"


def _host_cap(declared: DeclaredCaps) -> float | None:
    """Host memory that the server says it may fill: llama.cpp's prompt cache, vLLM's multimodal cache and swap."""
    known = (declared.cache_ram_bytes, declared.multimodal_cache_bytes, declared.swap_space_bytes)
    total = sum(c for c in known if c is not None and c > 0)
    return float(total) or None


def _in_file(problem: Problem, source: Source, kind: str) -> Problem:
    path = ("load", "workload", *undotted(problem.key.removeprefix(kind)))
    return source.problem(path, problem.found, problem.wanted)


def prompts_of(loaded: Loaded, table: TokenTable = ASSUMED, context_tokens: int | None = None) -> PromptSpec:
    """What the workload sends. Raises ConfigError; without a table and a context it only shows that it is valid."""
    options = dict(loaded.config.load.workload)
    kind = str(options.pop("kind", "mixture"))
    try:
        return make_spec(kind, options, table, context_tokens)
    except ConfigError as error:
        # a fault of the workload's own file (a data set) keeps that file's name and line
        raise ConfigError(
            [_in_file(p, loaded.source, kind) if p.file == "workload" else p for p in error.problems]
        ) from None
