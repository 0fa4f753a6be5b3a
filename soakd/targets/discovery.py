"""Finds out what the server under test is: its kind, model, context, slots and process; and that it generates."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aiohttp

from soakd.errors import TargetError
from soakd.model import TargetInfo
from soakd.ports import Clock, Roots
from soakd.targets.access import Access, Answer, ask
from soakd.targets.declared_caps import context_per_request, declared_caps
from soakd.targets.processes import Picked, find_process, is_local

_RETRY_EVERY_S = 1.0
_CHECK_PROMPT = "Say hello."
_CHECK_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Hints:
    """What the user configured about the target: a model name to insist on, and how to find its process."""

    model: str | None = None
    pid: int | None = None
    command: str | None = None


NO_HINTS = Hints()


@dataclass(frozen=True, slots=True)
class GenerationCheck:
    """One short answer. Token counts are None where the server does not tell them."""

    text: str
    took_s: float
    prompt_tokens: int | None
    completion_tokens: int | None
    finish_reason: str | None


@dataclass(frozen=True, slots=True)
class _Facts:
    kind: str
    server: str
    context_tokens: int | None
    slots: int | None


async def identify(
    access: Access, clock: Clock, *, hints: Hints = NO_HINTS, roots: Roots | None = None, loading_wait_s: float = 120.0
) -> TargetInfo:
    """Ask the server what it is and find its process.

    ``kind`` of the result is ``vllm``, ``llamacpp``, ``sglang``, ``openai`` (another server of that protocol) or
    ``vllm_generate`` (vLLM's older api_server). A server that still loads its model is waited for, ``loading_wait_s``
    at most. Raises TargetError: unreachable, TLS failure, refused key, not an LLM server, wrong model.
    """
    names: tuple[str, ...] = ()
    async with access.session() as session:
        models = await _models(session, access, clock, loading_wait_s)
        if models is None:
            facts = _Facts("vllm_generate", "vLLM api_server", None, None)
        else:
            names = _names(models)
            facts = await _facts(session, access, models)
    model = _chosen(names, hints.model, access)
    local = access.socket is not None or await asyncio.to_thread(is_local, access.host)
    picked = await _process(access, local, hints, roots or Roots(), model)
    caps = declared_caps(facts.kind, picked.command)
    return TargetInfo(
        url=access.url,
        kind=facts.kind,
        model=model,
        server=facts.server,
        local=local,
        pid=picked.pid,
        picked_by=picked.how,
        context_tokens=facts.context_tokens or context_per_request(caps, facts.kind),
        slots=facts.slots or caps.slots,
        flags=picked.command,
    )


async def check_generation(
    access: Access,
    info: TargetInfo,
    clock: Clock,
    *,
    adapter: str = "auto",
    extra: Mapping[str, object] | None = None,
    timeout_s: float = 60.0,
) -> GenerationCheck:
    """One short generation by the protocol that the load will use (``auto``: chat, or that of vLLM's older server).

    Raises TargetError when the server does not generate.
    """
    path, body = _check_request(info, adapter)
    began = clock.monotonic_ns()
    async with access.session() as session:
        answer = await ask(session, access, path, body | dict(extra or {}), timeout_s=timeout_s)
    took_s = (clock.monotonic_ns() - began) / 1e9
    if answer.status != 200:
        raise _refused(answer, access)
    check = _generated(answer, took_s)
    if check is None:
        raise TargetError(f"{access.url}{path} answers, but with no completion: {answer.complaint()}")
    if not check.text and not check.completion_tokens:
        hint = "look at the server's log and its chat template"
        raise TargetError(f"{access.url}{path} answers with status 200 and no tokens at all", hint=hint)
    return check


def _check_request(info: TargetInfo, adapter: str) -> tuple[str, dict[str, object]]:
    prompt: dict[str, object] = {"prompt": _CHECK_PROMPT, "max_tokens": _CHECK_TOKENS}
    match info.kind if adapter == "auto" else adapter:
        case "vllm_generate":
            return "/generate", prompt
        case "llamacpp" if adapter != "auto":
            return "/completion", {"prompt": _CHECK_PROMPT, "n_predict": _CHECK_TOKENS}
        case "openai_completions":
            return "/v1/completions", {"model": info.model, **prompt}
    messages = [{"role": "user", "content": _CHECK_PROMPT}]
    return "/v1/chat/completions", {"model": info.model, "messages": messages, "max_tokens": _CHECK_TOKENS}


def _generated(answer: Answer, took_s: float) -> GenerationCheck | None:
    fields = answer.fields()
    texts, choice = fields.get("text"), _first(fields.get("choices"))
    if isinstance(texts, list) and texts:
        return GenerationCheck(str(texts[0]), took_s, None, None, None)
    if isinstance(fields.get("content"), str):
        counts = (_int(fields.get("tokens_evaluated")), _int(fields.get("tokens_predicted")))
        return GenerationCheck(str(fields["content"]), took_s, *counts, None)
    message = choice.get("message", choice if "text" in choice else None)
    if not isinstance(message, dict):
        return None
    parts = (message.get(name) for name in ("reasoning_content", "reasoning", "content", "text"))
    usage = fields.get("usage")
    told: Mapping[str, object] = usage if isinstance(usage, dict) else {}
    reason = choice.get("finish_reason")
    text = "".join(p for p in parts if isinstance(p, str))
    used = (_int(told.get("prompt_tokens")), _int(told.get("completion_tokens")))
    return GenerationCheck(text, took_s, *used, str(reason) if reason else None)


async def _models(
    session: aiohttp.ClientSession, access: Access, clock: Clock, wait_s: float
) -> list[Mapping[str, object]] | None:
    """The entries of /v1/models; None for vLLM's older server, which has no list."""
    deadline = clock.monotonic_ns() + int(wait_s * 1e9)
    while True:
        answer = await ask(session, access, "/v1/models")
        if answer.status != 503:
            break
        if clock.monotonic_ns() >= deadline:
            said = answer.complaint()
            raise TargetError(f"{access.url} is not ready after {wait_s:.0f} s: {said}", hint="is it still loading?")
        await clock.sleep(_RETRY_EVERY_S)
    if answer.status == 404 and await _has_generate(session, access):
        return None
    if answer.status != 200:
        raise _refused(answer, access)
    data = answer.fields().get("data")
    if answer.is_html or not isinstance(data, list):
        what = "a web page" if answer.is_html else "something that is no list of models"
        hint = "give the address of the LLM server's own port"
        raise TargetError(f"{access.url}/v1/models answers with {what}: not an OpenAI-compatible server", hint=hint)
    return [m for m in data if isinstance(m, dict)]


async def _has_generate(session: aiohttp.ClientSession, access: Access) -> bool:
    paths = (await ask(session, access, "/openapi.json")).fields().get("paths")
    return isinstance(paths, dict) and "/generate" in paths


def _refused(answer: Answer, access: Access) -> TargetError:
    where, said = access.url + answer.path, answer.complaint()
    said = f": {said}" if said else ""
    if answer.status in (401, 403):
        hint = "its key is wrong" if access.api_key else "it wants a key: target.api_key_env or target.api_key_file"
        return TargetError(f"{where} refuses access (HTTP {answer.status}){said}", hint=hint)
    if answer.is_html:
        return TargetError(
            f"{where} answers with a web page (HTTP {answer.status}): not an LLM server, or a proxy before it",
            hint="give the address of the LLM server's own port",
        )
    if answer.status == 404:
        hint = "is the path in target.url right, and is it an OpenAI-compatible server?"
        return TargetError(f"{where} does not exist (HTTP 404){said}", hint=hint)
    if 300 <= answer.status < 400:
        return TargetError(f"{where} redirects (HTTP {answer.status})", hint="give the address it redirects to")
    return TargetError(f"{where} fails (HTTP {answer.status}){said}", hint="look at the server's log")


def _names(models: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    return tuple(str(m["id"]) for m in models if m.get("id"))


def _chosen(names: tuple[str, ...], wanted: str | None, access: Access) -> str:
    if wanted is None:
        return names[0] if names else ""
    if names and wanted not in names:
        listed = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
        raise TargetError(f"{access.url} serves no model named {wanted!r}", hint=f"it serves {listed}")
    return wanted


async def _facts(session: aiohttp.ClientSession, access: Access, models: Sequence[Mapping[str, object]]) -> _Facts:
    """What /v1/models, /props, /version and SGLang's info say; one that fails tells nothing."""
    owner = str(models[0].get("owned_by", "")) if models else ""
    context = _int(models[0].get("max_model_len")) if models else None
    props = await _optional(session, access, "/props")
    settings = props.get("default_generation_settings")
    if isinstance(settings, dict) or owner == "llamacpp":
        own = settings if isinstance(settings, dict) else {}
        build = str(props.get("build_info") or "")
        return _Facts("llamacpp", f"llama.cpp {build}".strip(), _int(own.get("n_ctx")), _int(props.get("total_slots")))
    if owner == "sglang":
        info = await _optional(session, access, "/get_server_info")
        running = _int(info.get("max_running_requests"))
        context = context or _int(info.get("context_length"))
        return _Facts("sglang", f"SGLang {info.get('version') or ''}".strip(), context, running)
    version = (await _optional(session, access, "/version")).get("version")
    if owner == "vllm" or await _has_metric(session, access, b"vllm:"):
        return _Facts("vllm", f"vLLM {version or ''}".strip(), context, None)
    return _Facts("openai", owner, context, None)


async def _optional(session: aiohttp.ClientSession, access: Access, path: str) -> Mapping[str, object]:
    try:
        answer = await ask(session, access, path, timeout_s=5.0)
    except TargetError:
        return {}
    return answer.fields() if answer.status == 200 else {}


async def _has_metric(session: aiohttp.ClientSession, access: Access, prefix: bytes) -> bool:
    try:
        answer = await ask(session, access, "/metrics", timeout_s=5.0)
    except TargetError:
        return False
    return answer.status == 200 and (b"\n" + prefix) in answer.body


async def _process(access: Access, local: bool, hints: Hints, roots: Roots, model: str) -> Picked:
    if not local:
        return Picked(None, (), f"{access.host} is another host: its processes can't be seen from here")
    if access.socket is not None and hints.pid is None and hints.command is None:
        return Picked(None, (), "no process picked: the target is a Unix socket; set target.pid or target.command")
    return await asyncio.to_thread(
        find_process, roots.proc, access.port, pid=hints.pid, command=hints.command, model=model
    )


def _first(value: object) -> Mapping[str, object]:
    return value[0] if isinstance(value, list) and value and isinstance(value[0], dict) else {}


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
