"""A series judged while it grows: O(1) per reading, bounded memory, looks corrected for repetition."""

from __future__ import annotations

from dataclasses import dataclass

from soakd.analysis.series import SeriesJudgement


@dataclass(frozen=True, slots=True)
class MonitorConfig:
    """What is constant over a run. ``wanted_span`` is the planned length in units of ``x`` (None: open-ended);
    ``family`` is how many series are watched together; the other fields as in SeriesQuestion."""

    per: str = "hour"
    page: float = 0.0
    total: float | None = None
    cap: float | None = None
    limit: float | None = None
    warmup: float | None = None
    wanted_span: float | None = None
    family: int = 1
    name: str = ""
    unit: str = "bytes"


class SeriesMonitor:
    """``add`` each reading; ``look`` when it suits: it judges only when a look is due and returns None otherwise.

    A LEAK is returned once two looks in a row say so; ``detected_at`` is then the ``x`` of the second.
    """

    def __init__(self, config: MonitorConfig) -> None:
        self._config = config

    @property
    def detected_at(self) -> float | None:
        raise NotImplementedError

    def add(self, x: float, y: float, load: float | None = None) -> None:
        """Take one reading in, in constant time. ``x`` in seconds (or work) must not go back; NaN is left out."""
        raise NotImplementedError

    def restarted(self, x: float) -> None:
        """A new process answers from ``x`` on: the lifetime before it is closed."""
        raise NotImplementedError

    def look(self, now: float) -> SeriesJudgement | None:
        """The judgement so far when a look is due at ``now``, else None."""
        raise NotImplementedError

    def dump(self) -> bytes:
        """The state as JSON, for a checkpoint; ``load`` restores it."""
        raise NotImplementedError

    @classmethod
    def restore(cls, config: MonitorConfig, state: bytes) -> SeriesMonitor:
        """A monitor that goes on where ``dump`` left off. Raises ValueError for a state of another version."""
        raise NotImplementedError
