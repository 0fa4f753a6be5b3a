"""Figures in sentences: amounts, rates and spans as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from soakd.analysis.series import SeriesQuestion
from soakd.quantities import format_bytes, format_duration

if TYPE_CHECKING:
    from soakd.analysis.examine import Examined

_MULTIPLES = {"request": (1000.0, "1,000 requests"), "token": (1e6, "million tokens")}
"""Counts of work are spoken of per 1,000 requests and per million tokens."""


def amount(value: float, question: SeriesQuestion) -> str:
    """``1.5 MiB`` for bytes, else the number with its unit."""
    if question.unit == "bytes":
        return format_bytes(value)
    return f"{value:.4g} {question.unit}".rstrip()


def rate(slope: float, facts: Examined) -> str:
    """``slope`` (per unit of x) as ``1.5 MiB/h`` or ``126 MiB per 1,000 requests``."""
    per = facts.question.per
    if per == "hour":
        return f"{amount(slope * facts.per_factor, facts.question)}/h"
    factor, words = _MULTIPLES.get(per, (1.0, per))
    return f"{amount(slope * factor, facts.question)} per {words}"


def span_text(span: float, question: SeriesQuestion) -> str:
    """``2h 10m`` of time, or ``1,200 requests``."""
    if question.per == "hour":
        return format_duration(span)
    return f"{span:,.0f} {question.per}s"
