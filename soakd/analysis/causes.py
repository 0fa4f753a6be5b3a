"""Why a server went away: crash, external kill, OOM kill, XID, host reboot, planned restart, told apart.

Reads the events that the collectors leave: ``host.reboot``, ``gpu.lost``, ``xid``, ``kernel.oom_kill``,
``server.exit``/``server.restart`` with their ``cause`` (or ``signal``, ``exit_code``) and ``server.log_errors``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from soakd.analysis.evidence import OutageEvidence
from soakd.analysis.series import Leak, SeriesJudgement
from soakd.model import Event
from soakd.quantities import format_duration


class Cause(enum.Enum):
    HOST_REBOOT = "host_reboot"
    GPU_LOST = "gpu_lost"
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


_CRASH_SIGNALS = frozenset({"4", "6", "7", "8", "11", "SIGILL", "SIGABRT", "SIGBUS", "SIGFPE", "SIGSEGV"})
_KILL_SIGNALS = frozenset({"1", "2", "3", "9", "15", "SIGHUP", "SIGINT", "SIGQUIT", "SIGKILL", "SIGTERM"})
_END_KINDS = ("server.exit", "server.restart")
_LONGEST_LINE = 200
_OOM_TEXT = ("out of memory", "outofmemoryerror", "cuda_error_out_of_memory", "std::bad_alloc", "cudamalloc failed")


def explain_outage(
    at_ns: int,
    events: Sequence[Event],
    memory: Sequence[SeriesJudgement] = (),
    *,
    before_s: float = 60.0,
    after_s: float = 120.0,
) -> Explanation:
    """What ended the server at ``at_ns``: the strongest evidence among the events from ``before_s`` before it to
    ``after_s`` after it (a reboot or an exit is noticed late), the deepest cause first: a host that restarts also
    kills, and a kernel that runs out of memory also sends SIGKILL. A leak is named beside the cause, never as it,
    except where memory ran out.
    """
    near = [e for e in events if at_ns - before_s * 1e9 <= e.at_ns <= at_ns + after_s * 1e9]
    leaking = tuple(dict.fromkeys(j.name or j.unit for j in memory if j.verdict is Leak.LEAK))
    for cause, belongs, words in _TESTS:
        found = tuple(e for e in near if belongs(e))
        if found:
            why = f"{words}: {_said(found[0])}{_apart(found[0], at_ns)}"
            if leaking:
                link = "after" if cause in (Cause.OOM_KILL, Cause.OUT_OF_MEMORY) else "while, apart from that,"
                why += f"; {link} {', '.join(leaking)} grew"
            return Explanation(cause, at_ns, why, found, leaking)
    why = "no event near it says why the server went away"
    if leaking:
        why += f"; {', '.join(leaking)} grew before, which alone does not end a server"
    return Explanation(Cause.UNKNOWN, at_ns, why, (), leaking)


def explained(
    outages: Sequence[OutageEvidence], events: Sequence[Event], memory: Sequence[SeriesJudgement] = ()
) -> tuple[OutageEvidence, ...]:
    """Outages with their causes, ``killed: something outside killed it: ...``; one that has a cause keeps it."""
    return tuple(
        o if o.cause else replace(o, cause=_in_words(explain_outage(o.start_ns, events, memory))) for o in outages
    )


def _in_words(found: Explanation) -> str:
    return f"{found.cause.value}: {found.why}"


def _said(event: Event) -> str:
    """One line of the event: of a log the line that tells, not the whole of it."""
    lines = event.what.splitlines() or [""]
    telling = [line for line in lines if any(text in line.lower() for text in _OOM_TEXT)]
    return " ".join((telling or lines)[0].split())[:_LONGEST_LINE]


def _apart(event: Event, at_ns: int) -> str:
    seconds = (event.at_ns - at_ns) / 1e9
    if abs(seconds) < 1:
        return ""
    return f" ({format_duration(abs(seconds))} {'before' if seconds < 0 else 'after'} the outage began)"


def _attr(event: Event, name: str) -> str:
    return dict(event.attrs).get(name, "")


def _is(*kinds: str) -> Callable[[Event], bool]:
    return lambda e: e.kind in kinds


def _fatal_xid(event: Event) -> bool:
    return event.kind == "xid" and _attr(event, "class") in ("reboot", "reset", "unknown", "")


def _any_xid(event: Event) -> bool:
    return event.kind == "xid" and _attr(event, "class") != "ignore"


def _oom_killed(event: Event) -> bool:
    return event.kind == "kernel.oom_kill" or (event.kind in _END_KINDS and _attr(event, "cause") == "oom_kill")


def _ran_out(event: Event) -> bool:
    said = event.what.lower()
    return event.kind.startswith("server.") and any(text in said for text in _OOM_TEXT)


def _killed(event: Event) -> bool:
    return event.kind in _END_KINDS and (
        _attr(event, "cause") == "external_kill" or _attr(event, "signal") in _KILL_SIGNALS
    )


def _planned(event: Event) -> bool:
    return event.kind == "safety.stop" or (event.kind in _END_KINDS and _attr(event, "cause") == "clean_exit")


def _crashed(event: Event) -> bool:
    if event.kind == "server.worker_exit":
        return True
    if event.kind not in _END_KINDS:
        return False
    code = _attr(event, "exit_code")
    return (
        _attr(event, "cause") in ("crash", "error_exit")
        or _attr(event, "signal") in _CRASH_SIGNALS
        or code not in ("", "0")
    )


_TESTS: tuple[tuple[Cause, Callable[[Event], bool], str], ...] = (
    (Cause.HOST_REBOOT, _is("host.reboot"), "the host restarted"),
    (Cause.GPU_LOST, _is("gpu.lost", "pcie.device_lost"), "a card was lost"),
    (Cause.XID, _fatal_xid, "a card reported a fault"),
    (Cause.OOM_KILL, _oom_killed, "the kernel killed it for memory"),
    (Cause.OUT_OF_MEMORY, _ran_out, "it ran out of memory itself"),
    (Cause.PLANNED, _planned, "it was stopped in order"),
    (Cause.KILLED, _killed, "something outside killed it"),
    (Cause.XID, _any_xid, "a card reported an error of the program"),
    (Cause.CRASH, _crashed, "it crashed"),
)
