"""Carries out one soak from the command line: journal, cards, load, report, exit code."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import orjson
from pydantic import TypeAdapter
from rich.console import Console

from soakd.blocking import BlockingReader
from soakd.commands.daemon_client import DaemonClient
from soakd.commands.pages import write_page
from soakd.commands.terminal import on_signals, say, write_stdout
from soakd.config import Loaded
from soakd.errors import JournalFullError, SoakdError
from soakd.journal.reader import JournalReader
from soakd.journal.writer import Journal
from soakd.model import GpuIdentity
from soakd.nvml.pool import GpuPool
from soakd.ports import Clock, GpuSource
from soakd.report.charts import Charts
from soakd.report.facts import Journal as JournalFacts
from soakd.report.html import render_html
from soakd.report.model import Report, from_json, to_json_bytes
from soakd.report.outcome_metrics import outcome_samples
from soakd.report.progress import Progress, open_progress
from soakd.report.terminal import render_terminal
from soakd.service.alarms import alarmed, of_one_run
from soakd.service.opening import open_journal, reboot_between_runs
from soakd.soak.conclude import conclude, exit_code, finish, write_report
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


@asynccontextmanager
async def cards(clock: Clock, command: tuple[str, ...] | None = None) -> AsyncIterator[GpuPool]:
    """The NVML workers, started; ended on the way out."""
    pool = GpuPool(clock, command) if command else GpuPool(clock)
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
    config = loaded.config
    journal = open_journal(loaded)
    reading = BlockingReader("report")
    try:
        if not environment.simulated:
            journal.add(reboot_between_runs(loaded, journal, environment.roots, environment.clock.wall_ns()))
        run = Soak(loaded, prepared, environment, journal)
        on_signals(run.stop)
        facts, seen = await _with_alarms(run, loaded, environment, journal)
        full = await _flushed(journal)
        journal_facts = _journal_facts(journal)
        if full:
            seen = replace(seen, ending=replace(seen.ending, interrupted_by="journal full", journal_full=True))

        def judge() -> tuple[Report, Charts]:
            with JournalReader(config.data_dir) as reader:
                return conclude(facts, seen, reader, journal_facts)

        report, charts = await reading.call(judge)
        journal.add(outcome_samples(report, seen.ended_ns), report.run_id)
        finish(journal, seen, report)
        await _flushed(journal)
    finally:
        reading.close()
        await journal.close()
    _tell(report, charts, config.data_dir, output)
    return exit_code(report)


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
        run.on_tick(lambda tick, feed: view.show(live.snapshot(tick, feed)))
        return await run.run()


async def soak_by_daemon(client: DaemonClient, order: dict[str, object], output: Output) -> int:
    """Have the daemon of this host do the run; shows its progress and its report. Ctrl-C leaves the run to it."""
    say(f"the daemon at {client.url} does the run")
    console, report, code = Console(stderr=True), None, 2
    view = _PROGRESS
    with open_progress(console) as shown:
        async for message in client.stream("/soaks", order):
            if "progress" in message:
                shown.show(view.validate_python(message["progress"]))
            elif "report" in message:
                report = from_json(orjson.dumps(message["report"]))
                code = int(str(message["exit_code"]))
                say(f"report: {message['folder']}/report.html")
    if report is None:
        raise SoakdError("the daemon ended without a report", hint="see its log, and `soakd runs`")
    _show(report, None, output)
    return code


async def _flushed(journal: Journal) -> bool:
    """False when everything is in the journal, True when it is full."""
    try:
        await journal.flush()
    except JournalFullError as error:
        say(f"error: {error}")
        return True
    return False


def _journal_facts(journal: Journal) -> JournalFacts:
    stats = journal.stats()
    dropped = {"queue full": stats.dropped} if stats.dropped else {}
    return JournalFacts(samples=stats.rows, size_bytes=stats.file_bytes, dropped=dropped)


def _tell(report: Report, charts: Charts, data_dir: Path, output: Output) -> None:
    try:
        folder = write_report(report, charts, data_dir)
    except OSError as error:
        folder = None
        say(f"error: the report could not be written to {error.filename}: {error.strerror}")
    if folder:
        say(f"report: {folder / 'report.html'}")
    _show(report, charts, output)


def _show(report: Report, charts: Charts | None, output: Output) -> None:
    if output.as_json:
        write_stdout(to_json_bytes(report))
    else:
        render_terminal(report, Console())
    if output.html:
        write_page(output.html, render_html(report, charts))
