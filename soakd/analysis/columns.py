"""What the names of columns say: time or a count of work, a unit, a quantum."""

from __future__ import annotations

import re
from dataclasses import dataclass

from soakd.analysis.series import NVML_PAGE_BYTES

_SUFFIX = re.compile(r"[_\s.(\[]*(bytes|byte|kib|mib|gib|tib|kb|mb|gb|tb|b)[\])]*$", re.IGNORECASE)
SIZES = {
    "b": 1.0, "byte": 1.0, "bytes": 1.0,
    "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
    "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40,
}  # fmt: skip

# DCGM field identifiers and other exports whose names do not end in their unit
_KNOWN_SIZES = {
    "dcgm_fi_dev_fb_used": 2.0**20,
    "dcgm_fi_dev_fb_free": 2.0**20,
    "dcgm_fi_dev_fb_reserved": 2.0**20,
    "dcgm_fi_dev_fb_total": 2.0**20,
    "fbusd": 2.0**20,
    "memory.used": 2.0**20,
    "memory.free": 2.0**20,
}

_SECONDS = {
    "time_s": 1.0, "t_s": 1.0, "t": 1.0, "seconds": 1.0, "elapsed_s": 1.0, "elapsed": 1.0, "uptime_s": 1.0,
    "time_seconds": 1.0, "elapsed_seconds": 1.0, "serving_s": 1.0, "sec": 1.0, "secs": 1.0,
    "time_ms": 1e-3, "t_ms": 1e-3, "timestamp_ms": 1e-3, "elapsed_ms": 1e-3, "ms": 1e-3,
    "timestamp_us": 1e-6, "time_us": 1e-6, "timestamp_ns": 1e-9, "time_ns": 1e-9,
    "minutes": 60.0, "time_min": 60.0, "elapsed_min": 60.0, "min": 60.0,
    "hours": 3600.0, "hour": 3600.0, "time_h": 3600.0, "t_h": 3600.0, "elapsed_h": 3600.0,
}  # fmt: skip
_STAMPS = frozenset({"time", "timestamp", "date", "datetime", "ts", "utc", "at", "iso", "time_utc", "#time"})
_WORK = frozenset({
    "request", "token", "turn", "cycle", "round", "reading", "iteration", "step", "call", "session", "batch", "query",
    "message", "generation", "epoch", "sample", "run",
})  # fmt: skip
_MEMORY = re.compile(r"vram|rss|pss|uss|mem|fb_used|fbusd|nvml|alloc|reserved|heap|used|shm|swap|bytes", re.IGNORECASE)
_OTHER = re.compile(
    r"total|util|free|pct|percent|ratio|peak|limit|temp|_ms\b|_s\b|seconds|pcie|rx_|tx_|num_|count|cost|clock|mhz|power",
    re.IGNORECASE,
)
_FREE = re.compile(r"free|avail", re.IGNORECASE)
_LEAST_BYTES = 2.0**20
_CARD = re.compile(r"vram|fb_|fbusd|nvml|gpu_?mem|memory[._]used|proc_bytes|gpu.*(used|bytes)", re.IGNORECASE)
_COUNTED = re.compile(r"^(fds?|files|open_files|threads|handles|sockets|connections|blocks)(_total)?$", re.IGNORECASE)
HOST_PAGE = 4096.0


@dataclass(frozen=True, slots=True)
class Axis:
    """What the first column counts. ``scale`` makes seconds (or work) of a number; ``stamp`` is wall-clock time, a
    text or a number of seconds, ms, us or ns since the epoch."""

    per: str
    scale: float = 1.0
    stamp: bool = False


def axis_of(name: str) -> Axis | None:
    """None where the name says neither time nor work."""
    plain = name.strip().strip('"').lower().replace(" ", "_")
    if plain in _SECONDS:
        return Axis("hour", _SECONDS[plain])
    if plain in _STAMPS:
        return Axis("hour", stamp=True)
    for word in (plain, plain.removesuffix("_total"), plain.removesuffix("_id"), plain.removeprefix("n_")):
        single = {"batches": "batch", "queries": "query"}.get(word, word.removesuffix("s"))
        if single in _WORK:
            return Axis(single)
    return None


@dataclass(frozen=True, slots=True)
class Unit:
    """``scale`` makes ``name`` units of a number; ``page`` is the quantum in them."""

    name: str
    scale: float
    page: float


def unit_of(name: str, typical: float = 0.0) -> Unit:
    """The unit that a value's column carries: bytes for sizes, else the column's own words. A name of memory without
    a unit is bytes where the ``typical`` value is a million or more."""
    plain = name.strip().strip('"').lower()
    bare = plain.split("{")[0].split("[")[0].strip()
    scale = _KNOWN_SIZES.get(bare)
    if scale is None:
        match = _SUFFIX.search(plain.split("{")[0].strip())
        scale = SIZES[match.group(1).lower()] if match and (match.group(1) != "b" or "[b]" in plain) else None
    if scale is None and _MEMORY.search(plain) and not _OTHER.search(_FREE.sub("", plain)):
        scale = 1.0 if "bytes" in plain or typical >= _LEAST_BYTES else None
    if scale is not None:
        return Unit("bytes", scale, NVML_PAGE_BYTES if _CARD.search(plain) else HOST_PAGE)
    if _COUNTED.match(bare):
        return Unit(bare, 1.0, 1.0)
    return Unit(bare.replace("_", " ") if len(bare) <= 24 else "", 1.0, 0.0)


def is_memory(name: str, unit: str) -> bool:
    """Whether a column is one that leaks are looked for in when none was named."""
    held = (unit == "bytes" and bool(_MEMORY.search(name))) or bool(_COUNTED.match(name))
    return held and not _OTHER.search(name.split("{")[0])


def is_free(name: str, unit: str) -> bool:
    """Whether a column says what is left, so that a leak makes it fall."""
    return unit == "bytes" and bool(_FREE.search(name.split("{")[0]))
