"""One alert, labelled as a test, through every channel: fired, then resolved."""

from __future__ import annotations

import asyncio
import getpass
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from soakd.clock import RealClock
from soakd.model import Alert, AlertState, Severity, labels
from soakd.ports import Clock, Notice, Notifier

NAME = "SoakdTestAlert"


@dataclass(frozen=True, slots=True)
class ChannelResult:
    """``problem`` says why a channel did not take it."""

    channel: str
    delivered: bool
    problem: str = ""


def labelled_alert(now_ns: int) -> Alert:
    host = socket.gethostname()
    return Alert(
        NAME, AlertState.FIRING, Severity.INFO, labels(host=host, test="true"),
        f"Test alert of soakd on {host}: nothing is wrong", since_ns=now_ns, seen_ns=now_ns, fired_ns=now_ns,
        description=f"Sent by hand with `soakd alert test` by {getpass.getuser()}. It is resolved at once.",
        metric="", value=42.0, limit=41.0, unit="celsius", recent=(38.0, 39.0, 40.5, 41.0, 42.0),
    )  # fmt: skip


async def tell_all(build: Callable[[Clock], Sequence[Notifier]]) -> tuple[ChannelResult, ...]:
    """Every channel at once; one that fails does not hold up the others."""
    clock = RealClock()
    notifiers = build(clock)
    try:
        return tuple(await asyncio.gather(*(_tell(n, labelled_alert(clock.wall_ns())) for n in notifiers)))
    finally:
        await asyncio.gather(*(n.close() for n in notifiers))


async def _tell(notifier: Notifier, alert: Alert) -> ChannelResult:
    told = await notifier.notify([Notice(alert)])
    memory = told.memories.get(alert.key)
    if memory is None:
        return ChannelResult(notifier.name, False, told.problem or "it was not taken")
    over = replace(alert, state=AlertState.RESOLVED, ended_ns=alert.since_ns + 1_000_000_000, over="it was a test")
    told = await notifier.notify([Notice(over, memory)])
    return ChannelResult(notifier.name, over.key in told.memories, told.problem)
