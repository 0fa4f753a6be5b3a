"""The verdict on one series, and on a family of them. Pure: arrays in, judgement out."""

from __future__ import annotations

from collections.abc import Sequence

from soakd.analysis.series import (
    Evidence,
    Jump,
    Leak,
    Segment,
    SeriesJudgement,
    SeriesQuestion,
    Shape,
)

__all__ = [
    "Evidence",
    "Jump",
    "Leak",
    "Segment",
    "SeriesJudgement",
    "SeriesQuestion",
    "Shape",
    "judge_family",
    "judge_series",
]

DEFAULT_ALPHA = 0.01


def judge_series(question: SeriesQuestion, alpha: float = DEFAULT_ALPHA) -> SeriesJudgement:
    """Judge one series: LEAK at one-sided level ``alpha``. Raises ValueError where ``x`` and ``y`` differ in length."""
    raise NotImplementedError


def judge_family(questions: Sequence[SeriesQuestion], alpha: float = DEFAULT_ALPHA) -> tuple[SeriesJudgement, ...]:
    """Judge many series so that the chance of any false LEAK among them stays ``alpha`` (Holm), in the order given."""
    raise NotImplementedError
