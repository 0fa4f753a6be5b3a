"""Carries out one soak from the command line: journal, cards, load, report, exit code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson
from pydantic import TypeAdapter
from rich.console import Console

from soakd.commands.daemon_client import DaemonClient
from soakd.commands.pages import check_place, write_page
from soakd.commands.terminal import fail, on_signals, say, show, write_stdout
from soakd.config import Loaded
from soakd.errors import JournalError, SoakdError
from soakd.journal.writer import Journal
from soakd.model import GpuIdentity
from soakd.nvml.pool import GpuPool, nvml_command
from soakd.ports import Clock, GpuSource
from soakd.report.charts import Charts
from soakd.report.html import render_html
from soakd.report.junit import render_junit
from soakd.report.model import Report, from_json, to_json_bytes
from soakd.report.progress import Progress, open_progress
from soakd.report.terminal import report_view
from soakd.service.alarms import alarmed, of_one_run
from soakd.service.judging import judge
from soakd.service.opening import open_journal, reboot_between_runs
from soakd.soak.conclude import exit_code
from soakd.soak.environment import Environment
from soakd.soak.live import LiveView
from soakd.soak.prepare import prepare
from soakd.soak.run_facts import RunFacts
from soakd.soak.session import Seen, Soak

_PROGRESS: TypeAdapter[Progress] = TypeAdapter(Progress)


@dataclass(frozen=True, slots=True)
class Output:
    """``as_json``: the report as JSON on stdout, and nothing else there."""

    as_json: bool = False
    html: Path | None = None
    junit: Path | None = None

    @classmethod
    def to(cls, as_json: bool, html: Path | None, junit: Path | None) -> Output:
        """Raises SoakdError where one of the files could not be written."""
        check_place(html)
        check_place(junit)
        return cls(as_json, html, junit)


@asynccontextmanager
async def cards(clock: Clock, command: tuple[str, ...] | None = None) -> AsyncIterator[GpuPool]:
    """The NVML workers, started; ended on the way out."""
    pool = GpuPool(clock, command or nvml_command())
    try:
        await pool.start()
        yield pool
    finally:
        await pool.close()


async def identities(source: GpuSource) -> tuple[GpuIdentity, ...]:
    return tuple(reply.gpu for reply in await source.ask("fast"))


async def soak(loaded: Loaded, environment: Environment, output: Output) -> int:
    """One soak. Returns the exit code; raises SoakdError when the run could not start or could not be judged."""
    prepared = await prepare(loaded, environment.clock, environment.roots)
    info = prepared.info
    say(f"target: {info.server or prepared.server_kind} at {info.url}, model {info.model or 'unnamed'}")
    say(f"process: {info.picked_by}")
    for note in (*prepared.prompts.notes, environment.gpu_note):
        if note:
            say(f"note: {note}")
    journal = open_journal(loaded)
    try:
        if not environment.simulated:
            journal.add(reboot_between_runs(loaded, journal, environment.roots, environment.clock.wall_ns()))
        run = Soak(loaded, prepared, environment, journal)
        on_signals(run.stop)
        facts, seen = await _with_alarms(run, loaded, environment, journal)
        judged = await judge(journal, loaded.config.data_dir, facts, seen)
    finally:
        await _closed(journal)
    if judged.folder:
        say(f"report: {judged.folder / 'report.html'}")
    _show(judged.report, judged.charts, output)
    return exit_code(judged.report)


async def _closed(journal: Journal) -> None:
    """What a full disk did not take is said; it takes nothing from the verdict."""
    try:
        await journal.close()
    except JournalError as error:
        say(f"error: {error}")


async def _with_alarms(run: Soak, loaded: Loaded, environment: Environment, journal: Journal) -> tuple[RunFacts, Seen]:
    """Alerts are sent where notifiers are configured."""
    alarms = of_one_run(loaded, environment, journal, run)
    if alarms is None:
        return await _with_progress(run, environment)
    await alarms.start()
    try:
        with alarmed(alarms, run, loaded):
            return await _with_progress(run, environment)
    finally:
        await alarms.stop()


async def _with_progress(run: Soak, environment: Environment) -> tuple[RunFacts, Seen]:
    console = Console(stderr=True)
    with open_progress(console, every_s=60.0 * environment.clock.speed) as view:
        live = LiveView("", simulated=environment.simulated, gpus=environment.cards, gpu_note=environment.gpu_note)
        run.on_start(lambda facts: live.begins(facts.run_id))
        run.on_tick(lambda tick, feed: view.show(live.snapshot(tick, feed)))
        return await run.run()


async def soak_by_daemon(client: DaemonClient, order: dict[str, object], output: Output) -> int:
    """Have the daemon of this host do the run; shows its progress and its report. Ctrl-C leaves the run to it."""
    say(f"the daemon at {client.url} does the run")
    console, report, code = Console(stderr=True), None, 2
    view = _PROGRESS
    try:
        with open_progress(console) as shown:
            async for message in client.stream("/soaks", order):
                if "progress" in message:
                    shown.show(view.validate_python(message["progress"]))
                elif "report" in message:
                    report = from_json(orjson.dumps(message["report"]))
                    code = int(str(message["exit_code"]))
                    if message["folder"]:
                        say(f"report: {message['folder']}/report.html")
    except asyncio.CancelledError:
        say("the run goes on in the daemon; `soakd runs` lists it")
        raise
    if report is None:
        raise SoakdError("the daemon ended without a report", hint="see its log, and `soakd runs`")
    _show(report, None, output)
    return code


def _show(report: Report, charts: Charts | None, output: Output) -> None:
    if output.as_json:
        write_stdout(to_json_bytes(report))
    else:
        show(report_view(report))
    try:
        if output.html:
            write_page(output.html, render_html(report, charts))
        if output.junit:
            write_page(output.junit, render_junit(report))
    except SoakdError as error:
        # the verdict is known and told: its exit code stays
        fail(error)
