"""Figures and names as people read them: with units, unknown as the word, and nothing that could act on its reader."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from soakd.model import Outcome
from soakd.quantities import format_bytes, format_duration

UNKNOWN = "unknown"
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[P^_X][^\x1b]*(?:\x1b\\)?|.)?", re.DOTALL
)
# C0, C1, zero-width and bidirectional controls, line separators, surrogates, byte-order mark
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]+")
_ISO = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z$")
_LONG_UNITS: Mapping[str, str] = {
    "seconds": "s", "second": "s", "celsius": "°C", "watts": "W", "hertz": "Hz", "1/s": "/s", "per_second": "/s",
    "requests/s": "requests/s", "percent": "%", "bytes/s": "bytes/s", "celsius/hour": "°C/h", "%/hour": "%/h",
    "percent/hour": "%/h", "milliseconds": "ms",
}  # fmt: skip
_PER: Mapping[str, str] = {"hour": "h", "second": "s", "minute": "min"}
SYMBOLS: Mapping[Outcome, str] = {
    Outcome.PASS: "✔", Outcome.FAIL: "✘", Outcome.INCONCLUSIVE: "?", Outcome.NOT_JUDGED: "–"
}  # fmt: skip


def clean(text: object, limit: int = 300) -> str:
    """One printable line: escape sequences and control characters taken out, runs of space joined, cut to ``limit``."""
    line = _ESCAPES.sub("", str(text)[: limit * 8])
    line = " ".join(_CONTROLS.sub(" ", line).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def clean_lines(text: str, limit: int = 4000) -> str:
    """Like `clean`, but keeps line ends and indentation: for the tail of a log."""
    lines = [_CONTROLS.sub(" ", _ESCAPES.sub("", line)).rstrip() for line in text[: limit * 4].splitlines()]
    joined = "\n".join(lines)
    return joined if len(joined) <= limit else joined[: limit - 1] + "…"


def say(value: float | None, unit: str = "") -> str:
    """``412 ms``, ``1.5 GiB``, ``31.2 /s``, ``78 °C``; None and what is not finite is ``unknown``."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    base, _, per = unit.partition("/")
    if base in ("bytes", "B", "byte"):
        return format_bytes(value) + (f"/{_PER.get(per, per)}" if per else "")
    if unit in ("s", "seconds", "second"):
        return _seconds(value)
    if unit == "ratio":
        return f"{_number(value * 100)} %"
    return f"{_number(value)} {unit_word(unit)}".rstrip()


def unit_word(unit: str) -> str:
    """The short form of a unit: ``°C`` for ``celsius``."""
    base, _, per = unit.partition("/")
    return clean(_LONG_UNITS.get(unit, f"{_LONG_UNITS.get(base, base)}/{_PER.get(per, per)}" if per else unit), 40)


def say_count(value: int | None) -> str:
    """``12,345`` or ``unknown``."""
    return UNKNOWN if value is None else f"{value:,}"


def say_share(value: float | None) -> str:
    """A ratio as a percentage; never rounded up to 100 nor down to 0."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    percent = value * 100
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{percent:.1f} %" if percent % 1 else f"{percent:.0f} %"


def say_duration(seconds: float | None) -> str:
    return UNKNOWN if seconds is None or not math.isfinite(seconds) else format_duration(max(seconds, 0.0))


def say_offset(seconds: float | None) -> str:
    """A place on the run's axis: ``+01:02:03``."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    whole = abs(round(seconds))
    return f"{'-' if seconds < -0.5 else '+'}{whole // 3600:02d}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def say_moment(at: str) -> str:
    """``2026-12-01 03:56:09 UTC`` of an ISO time; other text is shown as it is."""
    found = _ISO.match(at)
    return f"{found[1]} {found[2]} UTC" if found else clean(at, 40)


def say_number_of(count: int, one: str) -> str:
    """``1 warning``, ``2 warnings``."""
    return f"{count:,} {one}{'' if count == 1 else 's'}"


def say_interval(low: float | None, high: float | None, unit: str) -> str:
    """``[390 ms, 412 ms]``, or ``no interval`` when nothing is known of the spread."""
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return "no interval"
    return f"[{say(low, unit)}, {say(high, unit)}]"


def say_labels(labels: Mapping[str, str]) -> str:
    """``bdf=0000:00:06.0, sensor=core``; at most six pairs. A card's UUID is left out where its PCI address is told."""
    if "bdf" in labels:
        labels = {k: v for k, v in labels.items() if k != "gpu"}
    pairs = [f"{clean(k, 40)}={clean(v, 80)}" for k, v in list(labels.items())[:6]]
    return ", ".join(pairs) + (", …" if len(labels) > 6 else "")


def say_outcome(outcome: Outcome) -> str:
    return "not judged" if outcome is Outcome.NOT_JUDGED else outcome.value


def _seconds(value: float) -> str:
    size = abs(value)
    if size == 0:
        return "0 s"
    if size < 1e-3:
        return f"{value * 1e6:.3g} µs"
    if size < 0.9995:
        return f"{value * 1e3:.3g} ms"
    if size < 120:
        return f"{value:.3g} s"
    return ("-" if value < 0 else "") + format_duration(size)


def _number(value: float) -> str:
    size = abs(value)
    if size >= 1e15:
        return f"{value:.3g}"
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if size >= 1e-4 or size == 0 else f"{value:.2e}"
