"""Outages of one replica, told from what each second brought. Pure: seconds in, steps out."""

from __future__ import annotations

import enum
import math
from collections import deque
from dataclasses import dataclass, field

from soakd.load.histogram import Histogram

BASELINE_SECONDS = 30
RECOVERY_RATIO = 0.10
"""Full health: rate and P95 within this of before."""
ERRORS_ONLY_SECONDS = 5
"""So long may a server answer nothing but errors before that counts as an outage."""
_FEWEST = 20
_SHORTEST, _LONGEST = 5, 60


@dataclass(frozen=True, slots=True)
class Second:
    """One real second of one replica, over all workers. ``down`` counts the failures of a server that is not there;
    ``first_down_ns`` is the first failure of any class, ``back_ns`` the first success of a request that was sent
    after a failure."""

    at_ns: int
    completed: int
    failed: int
    down: int
    retried: int = 0
    first_down_ns: int | None = None
    back_ns: int | None = None
    why: str = ""
    e2e: Histogram = field(default_factory=Histogram)


class Step(enum.Enum):
    STARTED = "started"
    ANSWERED = "answered"
    RECOVERED = "recovered"


@dataclass(frozen=True, slots=True)
class Change:
    """Something to tell: an outage began, the first request succeeded again, or all is as before."""

    step: Step
    at_ns: int
    what: str


@dataclass(slots=True)
class OpenOutage:
    """An outage as far as it is known."""

    start_ns: int
    lost: int
    retried: int = 0
    first_success_ns: int | None = None
    recovered_ns: int | None = None


class OutageTracker:
    """Feed it every second. ``outages`` holds what there was, bounded to the last ``keep``; ``count`` is all."""

    def __init__(self, keep: int = 1000) -> None:
        self.outages: deque[OpenOutage] = deque(maxlen=keep)
        self.count = 0
        self._open: OpenOutage | None = None
        self._before: deque[Second] = deque(maxlen=BASELINE_SECONDS)
        self._after: deque[Second] = deque(maxlen=_LONGEST)
        self._suspect_ns: int | None = None
        self._suspect_lost = 0
        self._suspect_seconds = 0

    def new_stage(self) -> None:
        """The load changes: what was before is no measure for what comes."""
        if self._open is None:
            self._before.clear()

    def step(self, second: Second) -> list[Change]:
        if self._open is None:
            return self._healthy(second)
        return self._down(self._open, second)

    def _healthy(self, second: Second) -> list[Change]:
        if not second.failed:
            if second.completed:
                self._suspect_ns = None
                self._suspect_lost = self._suspect_seconds = 0
            self._before.append(second)
            return []
        if self._suspect_ns is None or second.completed:
            self._suspect_ns = second.first_down_ns or second.at_ns
            self._suspect_lost = self._suspect_seconds = 0
        self._suspect_lost += second.failed
        self._suspect_seconds += 1
        if not self._is_outage(second):
            self._before.append(second)
            return []
        outage = OpenOutage(self._suspect_ns, self._suspect_lost, second.retried)
        self._suspect_ns = None
        self._open = outage
        self._after.clear()
        self.outages.append(outage)
        self.count += 1
        changes = [Change(Step.STARTED, outage.start_ns, second.why)]
        if second.back_ns is not None:
            changes += self._answered(outage, second.back_ns)
        return changes

    def _is_outage(self, second: Second) -> bool:
        lost_most = second.down >= 2 and second.down >= second.completed
        gone_on = second.down > 0 and not second.completed and self._suspect_seconds >= 2
        errors_only = not second.completed and self._suspect_seconds >= ERRORS_ONLY_SECONDS
        return lost_most or gone_on or errors_only

    def _answered(self, outage: OpenOutage, at_ns: int) -> list[Change]:
        outage.first_success_ns = at_ns
        took = (at_ns - outage.start_ns) / 1e9
        change = Change(Step.ANSWERED, at_ns, f"first success {took:.1f} s after the outage began, {outage.lost} lost")
        return [change, *self._recovery(outage, at_ns)]

    def _down(self, outage: OpenOutage, second: Second) -> list[Change]:
        outage.retried += second.retried
        if outage.first_success_ns is None:
            outage.lost += second.failed
            if second.back_ns is None:
                return []
            return self._answered(outage, second.back_ns)
        if second.down and not second.completed:
            # it went away again before it was back in full: one outage, not two
            outage.first_success_ns = None
            outage.lost += second.failed
            self._after.clear()
            return []
        self._after.append(second)
        return self._recovery(outage, second.at_ns)

    def _recovery(self, outage: OpenOutage, at_ns: int) -> list[Change]:
        if not self._as_before():
            return []
        outage.recovered_ns = at_ns
        self._open = None
        took = (at_ns - outage.start_ns) / 1e9
        return [Change(Step.RECOVERED, at_ns, f"rate and P95 as before {took:.1f} s after the outage began")]

    def _as_before(self) -> bool:
        completed = sum(second.completed for second in self._before)
        if not completed:
            return True
        rate = completed / len(self._before)
        span = min(max(math.ceil(_FEWEST / rate), _SHORTEST), _LONGEST)
        if len(self._after) < span:
            return False
        recent = list(self._after)[-span:]
        if sum(second.completed for second in recent) / span < (1 - RECOVERY_RATIO) * rate:
            return False
        was = Histogram.merged(second.e2e for second in self._before).quantile_s(0.95)
        now = Histogram.merged(second.e2e for second in recent).quantile_s(0.95)
        return was is None or now is None or now <= (1 + RECOVERY_RATIO) * was
