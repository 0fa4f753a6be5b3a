"""What the server's command line allows it to use: memory that grows to a declared cap is not a leak."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

_NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)\s*([kKmMgG]?)")
_SCALES = {"": 1, "k": 1000, "K": 1024, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30}
_LLAMACPP_CACHE_RAM = 8192 * 2**20


@dataclass(frozen=True, slots=True)
class DeclaredCaps:
    """Caps in bytes, tokens or shares; None where the command line says nothing. -1 means 'no limit'.

    ``cache_ram_bytes``: llama.cpp's prompt cache in host memory (``--cache-ram``); ``context_checkpoints``: per slot
    (``--ctx-checkpoints``, formerly ``--swa-checkpoints``); ``gpu_memory_ratio``: the share of the card that vLLM or
    SGLang takes at start; ``multimodal_cache_bytes``: vLLM's processor cache, per API process and engine;
    ``swap_space_bytes`` and ``cpu_offload_bytes``: per GPU; ``defaults``: the fields that are a server's own default
    and not on its command line.
    """

    cache_ram_bytes: int | None = None
    context_checkpoints: int | None = None
    context_tokens: int | None = None
    slots: int | None = None
    gpu_memory_ratio: float | None = None
    kv_cache_bytes: int | None = None
    kv_offload_bytes: int | None = None
    multimodal_cache_bytes: int | None = None
    swap_space_bytes: int | None = None
    cpu_offload_bytes: int | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    prefix_caching: bool | None = None
    speculative: bool | None = None
    defaults: tuple[str, ...] = ()

    def stated(self) -> tuple[str, ...]:
        """``name=value`` of everything that is known, for the report."""
        shown = ((f.name, getattr(self, f.name)) for f in fields(self) if f.name != "defaults")
        return tuple(f"{n}={v}{' (default)' if n in self.defaults else ''}" for n, v in shown if v is not None)


def _count(text: str) -> int:
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return int(float(match.group(1)) * _SCALES[match.group(2)])


def _times(unit: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = float(text)
        return -1 if value < 0 else int(value * unit)

    return read


def _number(text: str) -> float:
    return float(text)


_FLAGS: dict[str, tuple[str, Callable[[str], int | float]]] = {
    "--cache-ram": ("cache_ram_bytes", _times(2**20)),
    "-cram": ("cache_ram_bytes", _times(2**20)),
    "--cache-ram-mib": ("cache_ram_bytes", _times(2**20)),
    "--ctx-checkpoints": ("context_checkpoints", _count),
    "-ctxcp": ("context_checkpoints", _count),
    "--swa-checkpoints": ("context_checkpoints", _count),
    "--ctx-size": ("context_tokens", _count),
    "-c": ("context_tokens", _count),
    "--max-model-len": ("context_tokens", _count),
    "--context-length": ("context_tokens", _count),
    "--parallel": ("slots", _count),
    "-np": ("slots", _count),
    "--slots": ("slots", _count),
    "--max-num-seqs": ("slots", _count),
    "--max-running-requests": ("slots", _count),
    "--gpu-memory-utilization": ("gpu_memory_ratio", _number),
    "--mem-fraction-static": ("gpu_memory_ratio", _number),
    "--kv-cache-memory-bytes": ("kv_cache_bytes", _count),
    "--kv-offloading-size": ("kv_offload_bytes", _times(2**30)),
    "--mm-processor-cache-gb": ("multimodal_cache_bytes", _times(2**30)),
    "--swap-space": ("swap_space_bytes", _times(2**30)),
    "--cpu-offload-gb": ("cpu_offload_bytes", _times(2**30)),
    "--tensor-parallel-size": ("tensor_parallel", _count),
    "-tp": ("tensor_parallel", _count),
    "--tp-size": ("tensor_parallel", _count),
    "--tp": ("tensor_parallel", _count),
    "--pipeline-parallel-size": ("pipeline_parallel", _count),
    "-pp": ("pipeline_parallel", _count),
    "--data-parallel-size": ("data_parallel", _count),
    "-dp": ("data_parallel", _count),
}
_SWITCHES: dict[str, tuple[str, bool]] = {
    "--enable-prefix-caching": ("prefix_caching", True),
    "--no-enable-prefix-caching": ("prefix_caching", False),
    "--disable-radix-cache": ("prefix_caching", False),
    "--no-cache-prompt": ("prefix_caching", False),
    "--speculative-config": ("speculative", True),
    "--speculative-model": ("speculative", True),
    "--speculative-algorithm": ("speculative", True),
    "--model-draft": ("speculative", True),
    "-md": ("speculative", True),
}


def declared_caps(kind: str, command: Sequence[str]) -> DeclaredCaps:
    """Read a command line; ``kind`` is that of `TargetInfo`. A value that can't be read counts as not given.

    llama.cpp's builds since October 2025 keep up to 8 GiB of prompts in host memory when nothing is said.
    """
    found: dict[str, int | float | bool] = {}
    for at, part in enumerate(command):
        name, equals, inline = part.partition("=")
        name = name.replace("_", "-") if name.startswith("--") else name
        if name in _SWITCHES:
            found[_SWITCHES[name][0]] = _SWITCHES[name][1]
        if name not in _FLAGS:
            continue
        text = inline if equals else command[at + 1] if at + 1 < len(command) else ""
        try:
            found[_FLAGS[name][0]] = _FLAGS[name][1](text)
        except (ValueError, OverflowError):
            continue
    defaults: tuple[str, ...] = ()
    if kind == "llamacpp" and command and "cache_ram_bytes" not in found:
        found["cache_ram_bytes"] = _LLAMACPP_CACHE_RAM
        defaults = ("cache_ram_bytes",)
    return DeclaredCaps(**found, defaults=defaults)  # type: ignore[arg-type]


def context_per_request(caps: DeclaredCaps, kind: str) -> int | None:
    """Tokens that one request may use by the command line alone: llama.cpp shares its context between the slots."""
    if not caps.context_tokens:
        return None
    if kind == "llamacpp" and caps.slots and caps.slots > 1:
        return caps.context_tokens // caps.slots
    return caps.context_tokens
