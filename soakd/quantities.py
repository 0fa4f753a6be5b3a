"""Durations and sizes as people write them: ``90s``, ``10m``, ``2h``, ``800ms``, ``32GiB``, ``28GB``."""

from __future__ import annotations

import re

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?b?)", re.IGNORECASE | re.ASCII)
_BYTES = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip


def parse_duration(text: str | int | float) -> float:
    """Seconds of ``2h``, ``1h30m``, ``250ms``; a bare number is refused, because its unit would be a guess.

    Raises ValueError with what would be right.
    """
    if isinstance(text, str):
        parts = _DURATION.findall(text.strip())
        if parts and "".join(n + u for n, u in parts) == text.strip():
            return float(sum(float(n) * _SECONDS[u] for n, u in parts))
        if text.strip() == "0":
            return 0.0
    elif text == 0:
        return 0.0
    raise ValueError(f"{text!r} is not a duration; write it with a unit, such as 90s, 10m or 2h")


def parse_size(text: str | int | float) -> int:
    """Bytes of ``32GiB``, ``28GB``, ``512MiB`` or a plain number of bytes. Raises ValueError."""
    if isinstance(text, bool):
        raise ValueError(f"{text!r} is not a size")
    if isinstance(text, int | float):
        if text < 0:
            raise ValueError(f"{text!r} is not a size; it is below zero")
        return int(text)
    match = _SIZE.fullmatch(text.strip())
    unit = match.group(2).lower() if match else ""
    if not match or unit not in _BYTES:
        raise ValueError(f"{text!r} is not a size; write it as 32GiB, 28GB or a number of bytes")
    return int(float(match.group(1)) * _BYTES[unit])


def format_duration(seconds: float) -> str:
    """``2h``, ``1h 30m``, ``45s``, ``0.25s``: at most two parts, for people."""
    if seconds < 60:
        return f"{seconds:.0f}s" if seconds >= 10 or seconds == int(seconds) else f"{seconds:.3g}s"
    whole = round(seconds)
    parts = [(whole // 86400, "d"), (whole % 86400 // 3600, "h"), (whole % 3600 // 60, "m"), (whole % 60, "s")]
    return " ".join(f"{n}{u}" for n, u in [p for p in parts if p[0]][:2])


def format_bytes(value: float) -> str:
    """``1.5 GiB``, ``-2 MiB``: three significant digits, binary units."""
    size, sign = abs(value), "-" if value < 0 else ""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{sign}{size:.4g} {unit}"
        size /= 1024
    return f"{sign}{size:.4g} TiB"


def format_value(value: float | None, unit: str) -> str:
    """A value with its unit, as people read it; a rate's unit is ``bytes/h``."""
    if value is None:
        return "unknown"
    base, slash, over = unit.partition("/")
    match base:
        case "bytes":
            return format_bytes(value) + slash + over
        case "seconds" if not over:
            return f"{value * 1000:.4g} ms" if abs(value) < 1 else format_duration(value)
        case "ratio":
            return f"{value * 100:.4g} %{slash}{over}"
        case "celsius":
            return f"{value:.4g} °C{slash}{over}"
        case "watts":
            return f"{value:.4g} W{slash}{over}"
        case "hertz":
            return f"{value / 1e6:.4g} MHz"
        case "":
            return f"{value:.6g}"
    return f"{value:.6g} {unit}"
