"""A series judged while it grows: O(1) per reading, bounded memory, looks corrected for repetition.

Looks are due after a quarter of the wanted run (two minutes and 60 readings where none is known), then nine times
while the series doubles, so that their number grows with the logarithm of the length. A LEAK is said when three looks
in a row find it. Where the length is known the error is spent at half-time: the three looks that end there are held
to the level itself, those before to its critical value over the square root of the fraction elapsed (O'Brien &
Fleming), those after to a tenth of it at first and to more towards the end. What that leaves of mistakes is measured in
``bench/detection``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import numpy as np
import orjson

from soakd.analysis.blocks import BlockBuilder
from soakd.analysis.critical import normal_tail_at
from soakd.analysis.examine import examine_blocks
from soakd.analysis.judge import DEFAULT_ALPHA, FEWEST_READINGS, decide
from soakd.analysis.series import Leak, SeriesJudgement, SeriesQuestion

FIRST_LOOK_SHARE = 0.25
FIRST_LOOK_S = 120.0
FIRST_LOOK_READINGS = 60
LOOK_GROWTH = 2.0 ** (1.0 / 9.0)
"""A look is due when the span has grown by this factor (8 %): 18 take a run from its first quarter to its end."""

INTERIM = (0.42, 0.52)
"""Shares of the run between which most of the error is spent: on three looks, the last at half-time."""

_LATE_POWER = 10.0 / 3.0
"""After half-time a look is held to the level times this power of the fraction elapsed: a tenth at first, and all of it
at the end."""

CONFIRMATIONS = 3
"""Looks in a row that must find a leak before it is said: neighbours share most of their readings, so that two agree
by chance too often."""

LONGEST_WARMUP_S = 600.0

_STATE_VERSION = 2
_MOST_STARTS = 64


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
    alpha: float = DEFAULT_ALPHA


@dataclass(frozen=True, slots=True)
class MonitorState:
    """All that a monitor knows, as plain values. ``found`` is how many of the last looks in a row found a leak."""

    rows: tuple[tuple[float, ...], ...] = ()
    width: float = 0.0
    last_x: float | None = None
    last_y: float | None = None
    refused: int = 0
    starts: tuple[float, ...] = ()
    looks: int = 0
    last_look: float | None = None
    found: int = 0
    detected_at: float | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """One look that is due: everything it needs, copied, so that ``judge`` may run on another thread."""

    question: SeriesQuestion
    readings: BlockBuilder
    level: float
    now: float

    def judge(self) -> SeriesJudgement:
        """About 10 ms of one core. ``SeriesMonitor.settle`` makes the answer of it."""
        return decide(examine_blocks(self.question, self.readings.blocks()), self.level)


class SeriesMonitor:
    """``add`` each reading; ``look`` when it suits: it judges only when a look is due and returns None otherwise.

    A LEAK is returned once three looks in a row say so (those before are given as INCONCLUSIVE); ``detected_at`` is
    then the ``x`` of the third.
    """

    def __init__(self, config: MonitorConfig) -> None:
        self._config = config
        self._blocks = BlockBuilder()
        self._starts: list[float] = []
        self._looks = 0
        self._last_look: float | None = None
        self._found = 0
        self._detected_at: float | None = None

    @property
    def detected_at(self) -> float | None:
        return self._detected_at

    @property
    def refused(self) -> int:
        """Readings left out: not a number, or not later than the one before."""
        return self._blocks.refused

    def add(self, x: float, y: float, load: float | None = None) -> None:
        """Take one reading in, in constant time. ``x`` in seconds (or work) must not go back; NaN is left out."""
        self._blocks.add(x, y, load)

    def restarted(self, x: float) -> None:
        """A new process answers from ``x`` on: the lifetime before it is closed. The last 64 are kept."""
        self._starts = [*self._starts[1 - _MOST_STARTS :], x]
        self._found = 0

    def due(self, now: float) -> bool:
        """Whether ``look`` would judge at ``now``; cheap enough to ask every second."""
        span = self._span(now)
        if span is None:
            return False
        if self._last_look is None:
            wanted = self._config.wanted_span
            if wanted is not None:
                return span >= FIRST_LOOK_SHARE * wanted and self._readings >= FEWEST_READINGS
            enough = self._config.per != "hour" or span >= FIRST_LOOK_S
            return enough and self._readings >= FIRST_LOOK_READINGS
        return span >= self._next_look(self._last_look)

    def _next_look(self, last: float) -> float:
        """The span of the next look; of a run of known length they fall on fixed shares, however late the last was."""
        if not self._config.wanted_span:
            return LOOK_GROWTH * last
        first = FIRST_LOOK_SHARE * self._config.wanted_span
        done = math.floor(math.log(max(last / first, 1.0), LOOK_GROWTH) + 1e-9)
        return float(first * LOOK_GROWTH ** (done + 1))

    @property
    def _readings(self) -> int:
        return self._blocks.taken

    def _span(self, now: float) -> float | None:
        rows = self._blocks.rows
        return max(now, self._blocks.last_x) - rows[0][0] if rows else None

    def look(self, now: float) -> SeriesJudgement | None:
        """The judgement so far when a look is due at ``now``, else None."""
        found = self.begin(now)
        return self.settle(found, found.judge()) if found else None

    def begin(self, now: float) -> Look | None:
        """The first half of ``look``, in microseconds: what is to be judged, None when no look is due."""
        if not self.due(now):
            return None
        self._last_look = self._span(now)
        self._looks += 1
        return Look(self._question(), self._blocks.copy(), self._level(), now)

    def known(self, *, family: int, total: float | None, limit: float | None) -> None:
        """What is known of the series by now: how many are watched beside it, what fills up, what is allowed."""
        self._config = replace(self._config, family=family, total=total, limit=limit)

    def final(self) -> SeriesJudgement:
        """The judgement at the end of a run, at the full level, whatever was looked at before."""
        judgement = decide(examine_blocks(self._question(), self._blocks.blocks()), self._alpha)
        if self._detected_at is not None or judgement.verdict is not Leak.LEAK:
            return judgement
        self._detected_at = self._blocks.last_x
        return judgement

    @property
    def _alpha(self) -> float:
        return self._config.alpha / max(self._config.family, 1)

    def _level(self) -> float:
        """The level that this look is held to. Open-ended series spend a sixth of what is left by each doubling."""
        wanted, span = self._config.wanted_span, self._last_look or 0.0
        if not wanted:
            return normal_tail_at(self._alpha, 1.0 / (1.0 + 0.25 * np.log2(1.0 + self._looks)))
        share = span / wanted
        if share < INTERIM[0]:
            return normal_tail_at(self._alpha, max(share, 1e-3))
        return self._alpha * (1.0 if share <= INTERIM[1] else float(min(share, 1.0) ** _LATE_POWER))

    def settle(self, look: Look, judgement: SeriesJudgement) -> SeriesJudgement:
        """The answer of a look: a leak is said at the third in a row that finds it."""
        if judgement.verdict is not Leak.LEAK:
            self._found = 0
            return judgement
        self._found = min(self._found + 1, CONFIRMATIONS)
        if self._detected_at is None and self._found < CONFIRMATIONS:
            why = f"{judgement.why}; found at {self._found} of {CONFIRMATIONS} looks in a row, to be confirmed"
            return replace(judgement, verdict=Leak.INCONCLUSIVE, why=why)
        if self._detected_at is None:
            self._detected_at = look.now
        return judgement

    def _question(self) -> SeriesQuestion:
        c = self._config
        empty = np.empty(0)
        warmup = c.warmup
        if warmup is None and c.wanted_span is not None:
            # a look must not take the start of a long warm-up for the run: it leaves out what the whole run would
            warmup = c.wanted_span / 4
            warmup = min(warmup, LONGEST_WARMUP_S) if c.per == "hour" else warmup
            warmup = min(warmup, (self._span(self._blocks.last_x) or 0.0) / 2)
        return SeriesQuestion(
            empty, empty, per=c.per, page=c.page, total=c.total, cap=c.cap, limit=c.limit, starts=tuple(self._starts),
            warmup=warmup, name=c.name, unit=c.unit,
        )  # fmt: skip

    def state(self) -> MonitorState:
        b = self._blocks
        finite = np.isfinite(b.last_x)
        return MonitorState(
            rows=tuple(tuple(row) for row in b.rows),
            width=b.width,
            last_x=b.last_x if finite else None,
            last_y=b.last_y if finite else None,
            refused=b.refused,
            starts=tuple(self._starts),
            looks=self._looks,
            last_look=self._last_look,
            found=self._found,
            detected_at=self._detected_at,
        )

    def dump(self) -> bytes:
        """The state as JSON, for a checkpoint."""
        state = self.state()
        values = {f.name: getattr(state, f.name) for f in fields(state)}
        # JSON knows neither infinity nor NaN: a second lowest of one reading, an unknown load
        values["rows"] = [[_plain(v) for v in row] for row in state.rows]
        return orjson.dumps({"version": _STATE_VERSION, **values}, option=orjson.OPT_SERIALIZE_NUMPY)

    @classmethod
    def restore(cls, config: MonitorConfig, state: bytes) -> SeriesMonitor:
        """A monitor that goes on where ``dump`` left off. Raises ValueError for a state of another version."""
        try:
            values = orjson.loads(state)
            if not isinstance(values, dict) or values.pop("version", None) != _STATE_VERSION:
                raise ValueError("a state of another version")
            rows = [[_number(v) for v in row] for row in values.pop("rows")]
            kept = MonitorState(
                width=float(values["width"]),
                last_x=values["last_x"],
                last_y=values["last_y"],
                refused=int(values["refused"]),
                starts=tuple(values["starts"]),
                looks=int(values["looks"]),
                last_look=values["last_look"],
                found=int(values["found"]),
                detected_at=values["detected_at"],
            )
        except (orjson.JSONDecodeError, KeyError, TypeError) as e:
            raise ValueError(f"not the state of a monitor: {e}") from e
        monitor = cls(config)
        last_x = -np.inf if kept.last_x is None else kept.last_x
        last_y = np.nan if kept.last_y is None else kept.last_y
        monitor._blocks = BlockBuilder(kept.width, rows, last_x, last_y, kept.refused, int(sum(r[3] for r in rows)))
        monitor._starts = list(kept.starts)
        monitor._looks, monitor._last_look = kept.looks, kept.last_look
        monitor._found, monitor._detected_at = kept.found, kept.detected_at
        return monitor


def _plain(value: float) -> float | str | None:
    if np.isnan(value):
        return None
    return "inf" if np.isposinf(value) else value


def _number(value: float | str | None) -> float:
    return np.nan if value is None else float(value)
