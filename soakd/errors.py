"""The errors a user can meet. Each is one clear message and an exit code; none reaches a user as a traceback."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class SoakdError(Exception):
    """Something the user can act on. ``hint`` says what would be right."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of one file: where, what was found, what would be right."""

    file: str
    line: int | None
    key: str
    found: str
    wanted: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        key = f" {self.key}:" if self.key else ""
        wanted = f"; {self.wanted}" if self.wanted else ""
        return f"{place}:{key} {self.found}{wanted}"


class ConfigError(SoakdError):
    """Wrong configuration; carries every problem found, not just the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(p) for p in self.problems))


class TargetError(SoakdError):
    """The server under test can't be used: unreachable, not an LLM server, wrong model, TLS failure, refused key."""


class JournalError(SoakdError):
    """The journal can't be opened, is locked by another owner, or is of an unknown schema."""


class JournalFullError(JournalError):
    """The disk or the size cap of the journal is full; what was written stays readable. Ends a run with exit 3."""

    exit_code = 3


class WorkerError(SoakdError):
    """A child process (load engine, NVML) could not be started or broke its protocol."""
