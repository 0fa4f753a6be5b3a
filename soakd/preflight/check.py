"""What a pre-flight check is: facts in, one judgement out. A check reads nothing and changes nothing."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from soakd.preflight.facts import Facts
    from soakd.preflight.profile import Profile


class CheckState(enum.Enum):
    """UNKNOWN is never OK: a pre-flight with an unknown exits 3."""

    OK = "ok"
    WRONG = "wrong"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not_applicable"
    WAIVED = "waived"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was found against what is wanted; ``fix`` says what a person would do (it is never done here)."""

    state: CheckState
    found: str
    wanted: str
    why: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the list; ``judge`` is pure."""

    id: str
    group: str
    judge: Callable[[Facts, Profile], Judgement]


@dataclass(frozen=True, slots=True)
class CheckResult:
    id: str
    group: str
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class PreflightReport:
    """All results in the order of the list."""

    profile: str
    results: tuple[CheckResult, ...]

    @property
    def exit_code(self) -> int:
        """1 when something is wrong, else 3 when something is unknown, else 0."""
        states = {r.judgement.state for r in self.results}
        return 1 if CheckState.WRONG in states else 3 if CheckState.UNKNOWN in states else 0

    def as_json(self) -> dict[str, object]:
        """The documented shape of ``soakd preflight --json``."""
        return {"profile": self.profile, "checks": [_as_json(r) for r in self.results]}


def _as_json(result: CheckResult) -> dict[str, object]:
    j = result.judgement
    return {
        "id": result.id, "group": result.group, "state": j.state.value,
        "found": j.found, "wanted": j.wanted, "why": j.why, "fix": j.fix,
    }  # fmt: skip
