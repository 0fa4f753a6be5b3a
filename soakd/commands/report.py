"""``soakd report``, ``soakd runs`` and ``soakd compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from soakd.commands.options import CONFIG, DATA_DIR, data_dir
from soakd.commands.pages import write_page
from soakd.commands.terminal import print_json, write_stdout
from soakd.errors import SoakdError
from soakd.journal.reader import JournalReader
from soakd.journal.records import RunRecord
from soakd.model import RunState
from soakd.report.charts import Charts
from soakd.report.facts import Journal as JournalFacts
from soakd.report.html import render_html
from soakd.report.markdown import render_markdown
from soakd.report.model import Report, from_json, iso, to_json_bytes
from soakd.report.terminal import render_terminal
from soakd.soak.charts import read_charts
from soakd.soak.conclude import conclude, seen_of
from soakd.soak.gather import Window
from soakd.soak.run_facts import RunFacts

HTML = Annotated[Path | None, typer.Option("--html", help="Write a page to this file.")]
JSON = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]


def register(app: typer.Typer) -> None:
    app.command("report")(report)
    app.command("runs")(runs)


def report(
    run: Annotated[str, typer.Argument(help="A run's id, a unique prefix of it, 'latest', or a report.json.")],
    config: CONFIG = None,
    directory: DATA_DIR = None,
    html: HTML = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Markdown to paste into an issue.")] = False,
    as_json: JSON = False,
) -> None:
    """Show the report of a run; one that was interrupted is judged by what it left in the journal."""
    found, charts = load_report(run, data_dir(config, directory))
    if html:
        write_page(html, render_html(found, charts))
    if as_json:
        write_stdout(to_json_bytes(found))
    elif markdown:
        typer.echo(render_markdown(found))
    elif not html:
        render_terminal(found, Console())


def load_report(which: str, directory: Path) -> tuple[Report, Charts | None]:
    """By file or by run. Raises SoakdError."""
    if which.endswith(".json"):
        try:
            return from_json(Path(which).read_bytes()), None
        except OSError as error:
            raise SoakdError(f"{which}: {error.strerror}", hint="give a report.json or a run's id") from None
    with JournalReader(directory) as reader:
        record = reader.run(which)
        if record.report:
            return from_json(record.report), read_charts(reader, _window(record))
        if record.state is RunState.RUNNING:
            raise SoakdError(f"run {record.id} is still running", hint="its report comes at its end")
        facts = RunFacts.of_run(reader, record.id)
        return conclude(facts, seen_of(reader, record), reader, JournalFacts())


def _window(record: RunRecord) -> Window:
    return Window(record.id, record.started_ns, record.ended_ns or record.started_ns)


def runs(config: CONFIG = None, directory: DATA_DIR = None, as_json: JSON = False) -> None:
    """List the runs in the journal, newest first."""
    with JournalReader(data_dir(config, directory)) as reader:
        records = reader.runs()
    if as_json:
        print_json([_as_json(r) for r in records])
        return
    table = Table("run", "started", "state", "outcome", "target", "profile", box=None)
    for record in records:
        shown = record.outcome or "-"
        simulated = " SIMULATED" if record.simulated else ""
        table.add_row(
            record.id, iso(record.started_ns), record.state.value, shown + simulated, record.target, record.profile
        )
    Console().print(table)


def _as_json(record: RunRecord) -> dict[str, object]:
    ended = record.ended_ns
    return {
        "run_id": record.id,
        "started_at": iso(record.started_ns),
        "ended_at": iso(ended) if ended else None,
        "state": record.state.value,
        "outcome": record.outcome or None,
        "target": record.target,
        "profile": record.profile,
        "simulated": record.simulated,
    }
