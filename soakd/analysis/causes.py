"""Why a server went away: crash, external kill, OOM kill, XID, host reboot, planned restart, told apart."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from soakd.analysis.series import SeriesJudgement
from soakd.model import Event


class Cause(enum.Enum):
    HOST_REBOOT = "host_reboot"
    XID = "xid"
    OOM_KILL = "oom_kill"
    OUT_OF_MEMORY = "out_of_memory"
    KILLED = "killed"
    CRASH = "crash"
    PLANNED = "planned"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The cause of one outage and the events that it rests on. ``leaking`` names the series that were growing."""

    cause: Cause
    at_ns: int
    why: str
    evidence: tuple[Event, ...] = ()
    leaking: tuple[str, ...] = ()


def explain_outage(
    at_ns: int,
    events: Sequence[Event],
    memory: Sequence[SeriesJudgement] = (),
    *,
    before_s: float = 60.0,
    after_s: float = 120.0,
) -> Explanation:
    """What ended the server at ``at_ns``."""
    raise NotImplementedError
