"""``soakd analyze``: a file and options in, the judgement as JSON or text out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from soakd.analysis.ingest import FileSeries
from soakd.analysis.series import SeriesJudgement


@dataclass(frozen=True, slots=True)
class AnalyzeOptions:
    """``total``, ``cap`` and ``limit`` (per hour or unit of work) in units of the column (bytes for sizes)."""

    column: str | None = None
    total: float | None = None
    cap: float | None = None
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Analysis:
    """``exit_code`` is 0 no leak, 1 leak, 3 inconclusive."""

    series: FileSeries
    judgement: SeriesJudgement
    others: tuple[SeriesJudgement, ...]

    @property
    def exit_code(self) -> int:
        raise NotImplementedError

    def to_json(self) -> dict[str, object]:
        """The JSON contract of ``soakd analyze --json``."""
        raise NotImplementedError

    def to_text(self) -> str:
        raise NotImplementedError


def analyze_file(path: Path, options: AnalyzeOptions) -> Analysis:
    """Raises ConfigError where the file or the options do not fit."""
    raise NotImplementedError


def write_plot(analysis: Analysis, path: Path) -> None:
    """PNG (needs the extra ``plot``) or HTML by the suffix. Raises ConfigError for another suffix."""
    raise NotImplementedError
