from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from soakd.analysis.drills import AFTER_S, attributed, drill_spans, is_planned
from soakd.analysis.evidence import LoadEvidence, OutageEvidence, RunEvidence
from soakd.analysis.limits import LOAD_JUDGES, Limit
from soakd.clock import RealClock
from soakd.config import load_config
from soakd.errors import ConfigError
from soakd.model import Event, Outcome, labels
from soakd.ports import Item
from soakd.soak.drill import Drill, Drills, Outlet, planned_drills, run_command
from soakd.soak.plan import phases
from soakd.soak.run_facts import redacted

S = 10**9


def a_drill(*command: str, timeout_s: float = 5.0, planned: bool = True, number: int = 1, due_s: float = 0.0) -> Drill:
    return Drill(number, due_s, command, timeout_s, planned)


async def told(*drills: Drill, simulated: bool = False, secrets: Sequence[str] = (), ends: int = 1) -> list[Event]:
    """The events of drills that are run now, up to the given number of ends."""
    events: list[Event] = []
    enough = asyncio.Event()

    def emit(items: Sequence[Item]) -> None:
        events.extend(item for item in items if isinstance(item, Event))
        if sum(e.kind == "drill.ended" for e in events) >= ends:
            enough.set()

    running = asyncio.create_task(
        Drills(drills, RealClock(), emit, simulated=simulated, secrets=secrets).run(time.monotonic_ns())
    )
    async with asyncio.timeout(20):
        await enough.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return events


async def test_a_command_is_run_without_a_shell_and_told_with_its_exit_code_and_output() -> None:
    code = "import sys; print(sys.argv[1]); sys.exit(3)"
    began, ended = await told(a_drill(sys.executable, "-c", code, "$HOME; ls"))
    assert (began.kind, dict(began.attrs)["planned"]) == ("drill.started", "true")
    attrs = dict(ended.attrs)
    assert (ended.kind, attrs["exit_code"], attrs["output"]) == ("drill.ended", "3", "$HOME; ls")
    assert ended.severity.value == "warning"
    assert ended.at_ns >= began.at_ns


async def test_a_command_at_its_time_limit_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = f"(sleep 3; touch {mark}) & echo begun; wait"
    outlet = Outlet()
    ran = await run_command(("sh", "-c", script), 0.3, outlet)
    assert (ran.code, ran.output) == (None, "begun")
    assert "time limit of 0.3 s" in ran.problem
    # the end of the pipe comes when the last process of the session is gone
    async with asyncio.timeout(2):
        await outlet.over.wait()
    outlet.close()
    assert not mark.exists()


async def test_what_a_command_leaves_in_the_background_lives_on_and_delays_nothing() -> None:
    outlet = Outlet()
    ran = await run_command(("sh", "-c", "sleep 30 & echo $!"), 10.0, outlet)
    assert (ran.code, ran.problem) == (0, "")
    pid = int(ran.output)
    os.kill(pid, signal.SIGKILL)  # raises unless it lives
    outlet.close()


async def test_output_is_bounded_and_its_end_kept() -> None:
    outlet = Outlet()
    ran = await run_command((sys.executable, "-c", "print('x' * 3_000_000 + 'the end')"), 10.0, outlet)
    outlet.close()
    assert len(ran.output) <= 4096
    assert ran.output.endswith("xthe end")


async def test_keys_are_taken_out_of_command_and_output() -> None:
    code = "print('the key is top-secret-1 and sk-abcdefghijklmnop')"
    events = await told(a_drill(sys.executable, "-c", code, "--api-key", "hush-hush"), secrets=["top-secret-1"])
    shown = "".join(e.what + str(e.attrs) for e in events)
    assert "top-secret-1" not in shown
    assert "sk-abcdef" not in shown
    assert "hush-hush" not in shown


async def test_a_program_that_is_not_there_is_told_and_the_next_drill_still_runs() -> None:
    events = await told(a_drill("/no/such/program"), a_drill("true", number=2), ends=2)
    first, second = [e for e in events if e.kind == "drill.ended"]
    assert "could not be started: No such file" in first.what
    assert dict(second.attrs)["exit_code"] == "0"


async def test_a_rehearsal_runs_no_command(tmp_path: Path) -> None:
    _, ended = await told(a_drill("touch", str(tmp_path / "mark")), simulated=True)
    assert "not run: this is a rehearsal" in ended.what
    assert not (tmp_path / "mark").exists()


async def test_the_end_of_the_run_ends_a_command_that_still_runs() -> None:
    events: list[Event] = []
    begun = asyncio.Event()

    def emit(items: Sequence[Item]) -> None:
        events.extend(item for item in items if isinstance(item, Event))
        begun.set()

    running = asyncio.create_task(Drills([a_drill("sleep", "60")], RealClock(), emit).run(time.monotonic_ns()))
    await begun.wait()
    async with asyncio.timeout(4):
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert "cut off by the end of the run" in events[-1].what


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "soakd.yaml"
    path.write_text(text)
    return path


def test_drills_count_from_the_start_of_the_measured_part(tmp_path: Path) -> None:
    text = """load: {duration: 1h, warmup: 5m, idle_before: 30s}
drill:
  - {at: 40m, command: [sh, -c, exit 0], planned: false}
  - {at: 10m, command: ["true", -9, 80], timeout: 5s}
"""
    loaded = load_config(write(tmp_path, text))
    first, second = planned_drills(loaded, phases(loaded))
    assert (first.number, first.due_s, first.timeout_s, first.planned) == (1, 330 + 600, 5.0, True)
    assert first.command == ("true", "-9", "80")
    assert (second.number, second.due_s, second.command, second.planned) == (2, 330 + 2400, ("sh", "-c", "exit 0"), False)  # noqa: E501  # fmt: skip


@pytest.mark.parametrize(
    ("drill", "key", "says"),
    [
        ("{at: 56m, command: ['true']}", "drill[0].at", "beyond the measured part"),
        ("{at: 1m, command: [no-such-program-here]}", "drill[0].command", "no program"),
    ],
)
def test_a_drill_that_can_t_be_run_is_told_before_the_run(tmp_path: Path, drill: str, key: str, says: str) -> None:
    loaded = load_config(write(tmp_path, f"load: {{duration: 1h}}\ndrill:\n  - {drill}\n"))
    with pytest.raises(ConfigError, match=says) as caught:
        planned_drills(loaded, phases(loaded))
    assert (caught.value.problems[0].key, caught.value.problems[0].line) == (key, 3)


@pytest.mark.parametrize("drill", ["{at: 1m}", "{at: 0s, command: [x]}", "{at: 1m, command: []}", "{at: 1m, run: x}"])
def test_a_drill_that_is_not_one_is_refused(tmp_path: Path, drill: str) -> None:
    with pytest.raises(ConfigError, match="drill"):
        load_config(write(tmp_path, f"drill:\n  - {drill}\n"))


def test_a_key_on_a_drill_s_command_line_stays_out_of_the_report(tmp_path: Path) -> None:
    loaded = load_config(write(tmp_path, "drill:\n  - {at: 1m, command: [curl, --api-key, hush-hush, url]}\n"))
    assert "hush-hush" not in redacted(loaded.config)
    assert "curl" in redacted(loaded.config)


def ran(start_s: int, end_s: int | None, planned: bool = True, number: int = 1) -> list[Event]:
    about = labels(drill=number, planned=str(planned).lower(), command="restart", timeout_seconds="20")
    events = [Event("drill.started", start_s * S, "drill", attrs=about)]
    if end_s is not None:
        events.append(Event("drill.ended", end_s * S, "drill", attrs=labels(drill=number)))
    return events


def outage(start_s: float, back_s: float | None = None) -> OutageEvidence:
    return OutageEvidence(int(start_s * S), None if back_s is None else int(back_s * S), None, 5)


@pytest.mark.parametrize(
    ("start_s", "caused"),
    [(99.9, False), (100, True), (104, True), (110 + AFTER_S, True), (111 + AFTER_S, False)],
)
def test_an_outage_belongs_to_the_drill_that_it_follows(start_s: float, caused: bool) -> None:
    (found,) = attributed([outage(start_s, start_s + 9)], drill_spans(ran(100, 110)))
    assert found.planned is caused
    assert found.cause == ("drill 1: restart" if caused else "")


def test_a_drill_whose_end_is_unknown_ended_at_its_time_limit() -> None:
    (span,) = drill_spans(ran(100, None))
    assert span.end_ns == 120 * S


def judged(name: str, value: float, outages: Sequence[OutageEvidence], events: Sequence[Event]) -> tuple[Outcome, float | None]:  # noqa: E501  # fmt: skip
    found = attributed(outages, drill_spans(events))
    load = LoadEvidence(started=100, completed=90, failed=10, outages=found)
    evidence = RunEvidence(1000.0, 0.0, 1000.0, 1000 * S, load, events=tuple(events))
    (result,) = LOAD_JUDGES[name](Limit(name, value, ""), evidence)
    return result.outcome, result.value


def test_a_planned_outage_is_not_counted_and_its_seconds_are() -> None:
    planned = [outage(101, 125)], ran(100, 110)
    assert judged("outages_max", 0, *planned) == (Outcome.PASS, 0)
    assert judged("outage_seconds_max", 20, *planned) == (Outcome.FAIL, 24)
    assert judged("outages_max", 0, [outage(101, 125)], ran(100, 110, planned=False)) == (Outcome.FAIL, 1)
    assert judged("outages_max", 0, [outage(101, 125), outage(400, 410)], ran(100, 110)) == (Outcome.FAIL, 1)


def test_a_target_that_stays_away_after_a_planned_drill_is_counted() -> None:
    assert judged("outages_max", 0, [outage(101, None)], ran(100, 110)) == (Outcome.FAIL, 1)


def test_a_restart_in_a_planned_outage_is_not_counted() -> None:
    def restart(at_s: int) -> Event:
        return Event("server.restart", at_s * S, "the server was restarted")

    drill = ran(100, 101)
    spans = drill_spans(drill)
    slow = attributed([outage(102, 300)], spans)
    assert is_planned(290 * S, spans, slow)
    assert not is_planned(310 * S, spans, slow)
    assert judged("restarts_max", 0, [outage(102, 300)], [*drill, restart(290)]) == (Outcome.PASS, 0)
    assert judged("restarts_max", 0, [outage(102, 300)], [*drill, restart(500)]) == (Outcome.FAIL, 1)
