from __future__ import annotations

import numpy as np
import pytest

from soakd.analysis.causes import Cause, explain_outage, explained
from soakd.analysis.evidence import OutageEvidence
from soakd.analysis.judge import SeriesQuestion, judge_series
from soakd.model import Event, Labels, labels

AT = 1_000_000_000_000


def event(kind: str, after_s: float = 1.0, what: str = "", **attrs: str) -> Event:
    return Event(kind, AT + int(after_s * 1e9), what or kind, attrs=labels(**attrs))


def exit_of(cause: str, what: str = "the server's process 7 ended") -> Event:
    return event("server.exit", 2.0, what, cause=cause)


XID79 = Event("xid", AT - 5_000_000_000, "XID 79", attrs=(("class", "reboot"), ("xid", "79")))
XID31: Labels = (("class", "application"), ("xid", "31"))


@pytest.mark.parametrize(
    ("events", "cause"),
    [
        ([exit_of("crash")], Cause.CRASH),
        ([exit_of("error_exit")], Cause.CRASH),
        ([exit_of("external_kill")], Cause.KILLED),
        ([exit_of("oom_kill")], Cause.OOM_KILL),
        ([exit_of("external_kill"), event("kernel.oom_kill")], Cause.OOM_KILL),
        ([exit_of("clean_exit")], Cause.PLANNED),
        ([exit_of("crash"), XID79], Cause.XID),
        ([exit_of("crash"), Event("xid", AT, "XID 31", attrs=XID31)], Cause.XID),
        ([exit_of("external_kill"), Event("xid", AT, "XID 31", attrs=XID31)], Cause.KILLED),
        ([exit_of("crash"), event("gpu.lost"), XID79], Cause.GPU_LOST),
        ([exit_of("external_kill"), event("host.reboot", 90.0)], Cause.HOST_REBOOT),
        ([exit_of("error_exit", "exit code 1: torch.OutOfMemoryError: CUDA out of memory")], Cause.OUT_OF_MEMORY),
        ([], Cause.UNKNOWN),
        ([exit_of("unknown")], Cause.UNKNOWN),
        ([event("kernel.oom_kill", -300.0)], Cause.UNKNOWN),
    ],
)
def test_causes_are_told_apart(events: list[Event], cause: Cause) -> None:
    assert explain_outage(AT, events).cause is cause


def test_a_leak_is_named_beside_the_cause_and_never_as_it() -> None:
    x = np.arange(3600.0)
    growing = judge_series(SeriesQuestion(x, 1e9 + 1e5 * x, name="server RSS"))
    killed = explain_outage(AT, [event("kernel.oom_kill", what="Killed process 7 (llama-server)")], [growing])
    alone = explain_outage(AT, [], [growing])
    assert killed.cause is Cause.OOM_KILL
    assert killed.leaking == ("server RSS",)
    assert "after server RSS grew" in killed.why
    assert alone.cause is Cause.UNKNOWN
    assert "does not end a server" in alone.why


def outage(cause: str = "", planned: bool = False) -> OutageEvidence:
    return OutageEvidence(AT, AT + 9_000_000_000, None, 12, cause, planned)


def test_each_outage_gets_its_cause_and_a_drill_keeps_its_own() -> None:
    events = [exit_of("external_kill", "the server's process 7 ended: killed by SIGKILL")]
    killed, drill = explained([outage(), outage("drill 1: systemctl restart vllm", planned=True)], events)
    assert killed.cause.startswith("killed: something outside killed it: the server's process 7 ended")
    assert (drill.cause, drill.planned) == ("drill 1: systemctl restart vllm", True)
    (nothing_known,) = explained([outage()], [])
    assert nothing_known.cause.startswith("unknown: ")


def test_of_a_log_only_the_line_that_tells_is_quoted() -> None:
    log = "\n".join(["loading"] * 50 + ["torch.OutOfMemoryError: CUDA out of memory"] + ["bye"] * 50)
    found = explain_outage(AT, [event("server.log_tail", what=log)])
    assert found.cause is Cause.OUT_OF_MEMORY
    assert "torch.OutOfMemoryError" in found.why
    assert "loading" not in found.why
