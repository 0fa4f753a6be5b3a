"""What the journal keeps beside samples, events and findings, and what it says of itself."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from soakd.model import Labels, Metric, RunState

Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]


def new_run_id(at_ns: int) -> str:
    """``20261201-0402-ab12``: sorts by time of start, short enough to type a prefix of."""
    at = datetime.fromtimestamp(at_ns / 1e9, UTC)
    return f"{at:%Y%m%d-%H%M}-{secrets.token_hex(2)}"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One soak as the journal knows it.

    ``config`` is redacted JSON, ``report`` the JSON of the finished report (empty until then); ``outcome`` is the
    text of a ``soakd.model.Outcome`` or empty; ``boot_id`` is the kernel's, so that a reboot is known for one.
    """

    id: str
    started_ns: int
    state: RunState
    target: str = ""
    profile: str = ""
    simulated: bool = False
    boot_id: str = ""
    config: bytes = b""
    ended_ns: int | None = None
    outcome: str = ""
    report: bytes = b""


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """One series: a metric and its labels; ``count`` readings are kept of it, unknown ones included."""

    metric: Metric
    labels: Labels
    count: int


@dataclass(frozen=True, slots=True)
class Blob:
    """Packed records of one kind (``load.windows``, ``load.requests``); the journal doesn't look inside."""

    kind: str
    run_id: str
    from_ns: int
    to_ns: int
    count: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Buckets:
    """A series cut into steps of equal width: arrays of equal length, empty steps left out.

    ``start_ns`` is the first nanosecond of each step; ``count`` known readings and ``unknown`` others fell into it.
    ``minimum``, ``mean``, ``maximum`` and ``last`` are NaN where ``count`` is 0. ``increase`` is what a counter
    gained from the last reading before the step to the last one inside, over epochs (0 for other kinds).
    """

    metric: Metric
    labels: Labels
    width_ns: int
    start_ns: Int64s
    count: Int64s
    unknown: Int64s
    minimum: Float64s
    mean: Float64s
    maximum: Float64s
    last: Float64s
    increase: Float64s


Gap = tuple[int, int]
"""Commits after the first and up to and including the second."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far one reader (a sink of the forwarder) has come.

    Everything up to commit ``head`` is done but for the ``gaps``, which were jumped over so that live data
    stays live and are caught up behind it.
    """

    name: str
    head: int = 0
    gaps: tuple[Gap, ...] = ()

    @property
    def done_to(self) -> int:
        """The commit up to which nothing is missing."""
        return min((start for start, _ in self.gaps), default=self.head)


@dataclass(frozen=True, slots=True)
class SetAside:
    """A line that a sink refused for good, and why."""

    sink: str
    at_ns: int
    reason: str
    line: str


@dataclass(frozen=True, slots=True)
class CursorLag:
    """``rows`` not yet forwarded, the oldest of them committed ``seconds`` ago."""

    cursor: Cursor
    rows: int
    seconds: float
    set_aside: int


@dataclass(frozen=True, slots=True)
class JournalStats:
    """``rows`` counts samples, events and findings kept; ``file_bytes`` includes the write-ahead log.

    ``dropped`` counts items that found the queue full or could not be stored, since the journal was opened.
    """

    rows: int
    file_bytes: int
    queue_depth: int
    dropped: int
    commit_seq: int
    last_commit_seconds: float
    hot_rows: int = 0


@dataclass(frozen=True, slots=True)
class JournalSummary:
    """What `soakd journal` shows, read from the file alone."""

    path: str
    schema: int
    file_bytes: int
    used_bytes: int
    hot_rows: int
    sealed_rows: int
    rollup_buckets: int
    events: int
    findings: int
    runs: int
    oldest_raw_ns: int | None
    commit_seq: int
    commit_at_ns: int | None
    cursors: tuple[CursorLag, ...]
