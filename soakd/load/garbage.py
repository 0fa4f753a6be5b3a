"""Tells garbled text from text that is merely odd, by comparison with answers known to be this model's normal ones.

Nothing here knows a language: a random-weight model's nonsense is normal for that model. What is flagged is a change:
text that begins to repeat, loses its encoding, or is made of other characters than all the answers before.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_SHORTEST = 24
_JUDGED_EACH_END = 2000
_LONGEST_PERIOD = 64
_REPEATED_AT_LEAST = 0.5
_REPEATED_ABOVE_NORMAL = 0.3
_ENTROPY_MARGIN_BITS = 1.0
_CLASS_DISTANCE = 0.5
_RATE_MARGIN = 0.02
_LOGPROB_MARGIN = 1.5
_CLASSES = ("latin", "other letters", "digits", "spaces", "punctuation", "other")


@dataclass(frozen=True, slots=True)
class TextStats:
    """``repeated`` is the share of the text in its longest run of one repeated unit; ``classes`` the shares of latin
    letters, other letters, digits, spaces, punctuation and the rest; ``entropy_bits`` is per character."""

    length: int
    repeated: float
    replacement: float
    control: float
    entropy_bits: float
    classes: tuple[float, ...]
    mean_logprob: float | None = None


def text_stats(text: str, mean_logprob: float | None = None) -> TextStats:
    """Figures of one answer (of both ends of a long one). A replacement character at the very end is left out: the
    answer was cut there."""
    body = text.rstrip("\ufffd")
    if len(body) > 2 * _JUDGED_EACH_END:
        body = body[:_JUDGED_EACH_END] + body[-_JUDGED_EACH_END:]
    length = len(body)
    if not length:
        return TextStats(len(text), 0.0, 1.0 if text else 0.0, 0.0, 0.0, (0.0,) * len(_CLASSES), mean_logprob)
    counts = Counter(body)
    entropy = -sum(n / length * math.log2(n / length) for n in counts.values())
    by_class = [0] * len(_CLASSES)
    control = 0
    for char, n in counts.items():
        by_class[_class_of(char)] += n
        if unicodedata.category(char) == "Cc" and char not in "\n\r\t":
            control += n
    return TextStats(
        length,
        _longest_repeat(body),
        counts.get("\ufffd", 0) / length,
        control / length,
        entropy,
        tuple(n / length for n in by_class),
        mean_logprob,
    )


def garbage(stats: TextStats, normal: Sequence[TextStats]) -> tuple[str, ...]:
    """What is wrong with an answer, beside the normal ones; empty when nothing is. No normal answers: no judgement."""
    if not normal:
        return ()
    if not stats.length:
        return ("empty answer",) if all(n.length for n in normal) else ()
    reasons = []
    if stats.replacement > max(n.replacement for n in normal) + (_RATE_MARGIN if _any(normal, "replacement") else 0):
        reasons.append(f"{stats.replacement:.1%} of characters are not valid UTF-8")
    if stats.control > max(n.control for n in normal) + (_RATE_MARGIN if _any(normal, "control") else 0):
        reasons.append(f"{stats.control:.1%} of characters are control characters")
    if stats.length >= _SHORTEST:
        reasons += _shifted(stats, normal)
    logprobs = [n.mean_logprob for n in normal if n.mean_logprob is not None]
    if stats.mean_logprob is not None and logprobs and stats.mean_logprob < min(logprobs) - _LOGPROB_MARGIN:
        reasons.append(f"mean log-probability {stats.mean_logprob:.2f}, normally {min(logprobs):.2f} or more")
    return tuple(reasons)


def _any(normal: Sequence[TextStats], name: str) -> bool:
    return any(getattr(n, name) > 0 for n in normal)


def _shifted(stats: TextStats, normal: Sequence[TextStats]) -> list[str]:
    long = [n for n in normal if n.length >= _SHORTEST]
    if not long:
        return []
    reasons = []
    repeated = max(n.repeated for n in long)
    if stats.repeated >= max(_REPEATED_AT_LEAST, repeated + _REPEATED_ABOVE_NORMAL):
        reasons.append(f"{stats.repeated:.0%} of the text is one thing repeated, normally up to {repeated:.0%}")
    low, high = min(n.entropy_bits for n in long), max(n.entropy_bits for n in long)
    if not low - _ENTROPY_MARGIN_BITS <= stats.entropy_bits <= high + _ENTROPY_MARGIN_BITS:
        reasons.append(f"entropy {stats.entropy_bits:.1f} bits a character, normally {low:.1f} to {high:.1f}")
    nearest = min(long, key=lambda n: _distance(stats.classes, n.classes))
    if _distance(stats.classes, nearest.classes) > _CLASS_DISTANCE:
        most = max(range(len(_CLASSES)), key=lambda i: stats.classes[i] - nearest.classes[i])
        reasons.append(f"{stats.classes[most]:.0%} {_CLASSES[most]}, normally about {nearest.classes[most]:.0%}")
    return reasons


def _distance(a: Sequence[float], b: Sequence[float]) -> float:
    """Total variation: 0 for the same mix of characters, 1 for nothing in common."""
    return sum(abs(x - y) for x, y in zip(a, b, strict=True)) / 2


def _class_of(char: str) -> int:
    category = unicodedata.category(char)
    if category[0] in "LM":
        return 0 if ord(char) < 0x250 else 1
    if category[0] == "N":
        return 2
    if category[0] == "Z" or char in "\n\r\t":
        return 3
    return 4 if category[0] in "PS" and char != "\ufffd" else 5


def _longest_repeat(text: str) -> float:
    """The longest stretch in which each character equals the one ``p`` before it, over all small ``p``, as a share."""
    longest = 0
    for period in range(1, min(_LONGEST_PERIOD, len(text) // 2) + 1):
        run = 0
        for a, b in zip(text, text[period:], strict=False):
            run = run + 1 if a == b else 0
            if run >= 2 * period and run + period > longest:
                longest = run + period
    return longest / len(text)
