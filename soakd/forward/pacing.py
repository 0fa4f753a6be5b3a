"""How long to wait: after failures, and between pieces of a backlog. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_FIRST_S = 0.5
_LONGEST_S = 60.0
_LONGEST_REFUSED_S = 300.0
_SHORTEST_S = 0.001


def backoff_s(failures: int, jitter: float, *, retry_after_s: float | None = None, refused: bool = False) -> float:
    """Seconds to wait after so many failures in a row (1 or more). ``jitter`` from 0 to 1 spreads many hosts.

    Doubles from half a second to a minute (five where a person has to act); never before the server's own wish.
    """
    longest = _LONGEST_REFUSED_S if refused else _LONGEST_S
    wait = min(longest, _FIRST_S * 2.0 ** min(failures - 1, 20)) * (0.5 + 0.5 * jitter)
    return wait if retry_after_s is None else max(wait, retry_after_s * (1.0 + 0.1 * jitter))


@dataclass(slots=True)
class Allowance:
    """Rows that may be sent now: grows by ``rate`` a second up to one second's worth."""

    rate: float
    rows: float
    at_ns: int

    def wait_s(self, now_ns: int) -> float:
        """0 when something may be sent; then any number may, and what is over is waited for afterwards."""
        self.rows = min(self.rate, self.rows + (now_ns - self.at_ns) / 1e9 * self.rate)
        self.at_ns = now_ns
        return 0.0 if self.rows > 0 else max(_SHORTEST_S, -self.rows / self.rate)

    def spend(self, rows: int) -> None:
        self.rows -= rows
