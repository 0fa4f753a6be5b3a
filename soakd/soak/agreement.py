"""Do client and server tell the same story? Requests, tokens, concurrency, and who else uses the cards. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from soakd.model import Finding, LimitResult, Outcome, Severity

_SHARE = 0.02
_SLACK = 5
_LOST = "the server was restarted, or the end of the run was lost, and with it part of a count"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing both count. ``outcome`` is unknown when the server does not tell or was restarted."""

    what: str
    client: float | None
    server: float | None
    unit: str
    outcome: Literal["agree", "disagree", "unknown"]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Counted:
    """What both sides counted between the first and the last reading of the server's counters.

    ``client_*`` include warm-up, ``client_requests`` the canaries too; ``unsettled`` are requests that failed or were
    cut off: the server may or may not have counted them. ``loose_tokens`` is how many tokens it may have counted beyond
    ``client_tokens`` (canaries, requests cut off). ``running_max`` and ``waiting_max`` are the server's gauges under
    load, ``asked`` the concurrency of a closed loop. None is unknown.
    """

    client_requests: int
    client_tokens: int | None
    unsettled: int
    loose_tokens: int
    server_requests: float | None
    server_tokens: float | None
    preemptions: float | None
    asked: float | None
    achieved: float | None
    running_max: float | None
    waiting_max: float | None
    restarted: bool
    strangers: tuple[str, ...] = ()


def check(counted: Counted) -> tuple[Check, ...]:
    requests = _compare(
        "requests", counted.client_requests, counted.server_requests, "requests", counted.unsettled, counted.restarted
    )
    tokens = _compare(
        "output tokens", counted.client_tokens, counted.server_tokens, "tokens", counted.loose_tokens,
        counted.restarted,
    )  # fmt: skip
    return (requests, tokens, _concurrency(counted))


def results(checks: Sequence[Check]) -> tuple[LimitResult, ...]:
    """What bears on the verdict: when the counts disagree, the figures can't be trusted, so INCONCLUSIVE."""
    return tuple(
        LimitResult(
            f"agreement.{c.what.replace(' ', '_')}", Outcome.INCONCLUSIVE, c.server, c.client, c.unit, 1.0, c.why
        )
        for c in checks
        if c.outcome == "disagree" and c.what != "concurrency"
    )


def findings(counted: Counted, checks: Sequence[Check], at_ns: int) -> tuple[Finding, ...]:
    """What the reader must know and what changes no outcome."""
    found = [
        Finding("agreement.concurrency", Severity.WARNING, "the server never ran what was asked", c.why, at_ns,
                value=c.server, unit=c.unit)
        for c in checks
        if c.what == "concurrency" and c.outcome == "disagree"
    ]  # fmt: skip
    if counted.preemptions:
        detail = f"the server preempted {counted.preemptions:g} requests: its KV cache was too small for this load"
        found.append(Finding("agreement.preemptions", Severity.WARNING, "preemptions", detail, at_ns,
                             value=counted.preemptions, unit="requests"))  # fmt: skip
    if counted.strangers:
        detail = "processes that are not the target's use its cards: " + ", ".join(counted.strangers)
        found.append(Finding("agreement.gpu_sharing", Severity.WARNING, "the cards are shared", detail, at_ns))
    return tuple(found)


def _compare(
    what: str, client: float | None, server: float | None, unit: str, unsettled: float, restarted: bool
) -> Check:
    if client is None or server is None:
        side = "the server does not count them" if server is None else "no usage was reported to the client"
        return Check(what, client, server, unit, "unknown", side)
    if restarted:
        return Check(
            what,
            client,
            server,
            unit,
            "unknown",
            _LOST,
        )
    slack = max(_SLACK if unit == "requests" else 200, _SHARE * client)
    if server > client + unsettled + slack:
        why = f"the server counted {server:,.0f} {what}, this run caused {client:,.0f}: something else uses the server"
        return Check(what, client, server, unit, "disagree", why)
    if server < client - slack:
        why = f"the server counted {server:,.0f} {what}, this run received {client:,.0f}: one of the two is wrong"
        return Check(what, client, server, unit, "disagree", why)
    return Check(what, client, server, unit, "agree")


def _concurrency(counted: Counted) -> Check:
    client, server = counted.achieved, counted.running_max
    if counted.asked is None or server is None:
        return Check("concurrency", client, server, "requests", "unknown", "the server does not tell, or open loop")
    if server < 0.9 * counted.asked and (counted.waiting_max or 0) > 0:
        why = f"{counted.asked:g} were asked; the server never ran more than {server:g} at once and queued the rest"
        return Check("concurrency", client, server, "requests", "disagree", why)
    return Check("concurrency", client, server, "requests", "agree")
