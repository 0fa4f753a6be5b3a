"""``soakd report``, ``soakd runs`` and ``soakd compare``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table

from soakd import share
from soakd.commands.options import CONFIG, DATA_DIR, HTML, JSON, JUNIT, data_dir
from soakd.commands.pages import write_page
from soakd.commands.terminal import print_json, show, tell, write_stdout
from soakd.errors import SoakdError
from soakd.journal.lock import is_owned
from soakd.journal.reader import JournalReader
from soakd.journal.records import RunRecord
from soakd.model import RunState
from soakd.report.baseline import load_baseline
from soakd.report.charts import Charts
from soakd.report.compare import Subject, compare, subject_of
from soakd.report.compare import to_json_bytes as comparison_json
from soakd.report.facts import Journal as JournalFacts
from soakd.report.html import render_comparison, render_html
from soakd.report.junit import render_junit
from soakd.report.markdown import render_markdown
from soakd.report.model import Report, from_json, iso, to_json_bytes
from soakd.report.terminal import comparison_view, report_view
from soakd.soak.charts import read_charts
from soakd.soak.conclude import conclude, seen_of
from soakd.soak.gather import Window
from soakd.soak.run_facts import RunFacts

_COLUMNS = ("run", "started", "state", "outcome", "target", "profile")


def register(app: typer.Typer) -> None:
    app.command("report")(report)
    app.command("runs")(runs)
    app.command("compare")(compare_runs)


def report(
    run: Annotated[str, typer.Argument(help="A run's id, a unique prefix of it, 'latest', or a report.json.")],
    config: CONFIG = None,
    directory: DATA_DIR = None,
    html: HTML = None,
    junit: JUNIT = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Markdown to paste into an issue.")] = False,
    as_json: JSON = False,
) -> None:
    """Show the report of a run; one that was interrupted is judged by what it left in the journal."""
    found, charts = load_report(run, data_dir(config, directory))
    if html:
        write_page(html, render_html(found, charts))
    if junit:
        write_page(junit, render_junit(found))
    if as_json:
        write_stdout(to_json_bytes(found))
    elif markdown:
        tell(render_markdown(found))
    elif not html and not junit:
        show(report_view(found))


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
        if record.state is RunState.RUNNING and is_owned(directory):
            raise SoakdError(f"run {record.id} is still running", hint="its report comes at its end")
        facts = RunFacts.of_run(reader, record.id)
        return conclude(facts, seen_of(reader, record), reader, JournalFacts())


def _window(record: RunRecord) -> Window:
    return Window(record.id, record.started_ns, record.ended_ns or record.started_ns)


def compare_runs(
    subjects: Annotated[
        list[str], typer.Argument(help="Two or more runs (id, report.json) or baselines (a .yaml, or its name).")
    ],
    config: CONFIG = None,
    directory: DATA_DIR = None,
    html: HTML = None,
    as_json: JSON = False,
) -> None:
    """Compare runs with each other or with a baseline; better or worse only where the intervals say so."""
    if len(subjects) < 2:
        raise SoakdError("one run can't be compared", hint="name two or more")
    folder = data_dir(config, directory)
    comparison = compare([_subject(name, folder) for name in subjects])
    if html:
        write_page(html, render_comparison(comparison))
    if as_json:
        write_stdout(comparison_json(comparison))
    elif not html:
        show(comparison_view(comparison), wide=True)


def _subject(name: str, folder: Path) -> Subject:
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        return load_baseline(path)
    shipped = share.find("configs/baselines", f"{name}.yaml")
    if shipped.is_file():
        return load_baseline(shipped)
    return subject_of(load_report(name, folder)[0])


def runs(config: CONFIG = None, directory: DATA_DIR = None, as_json: JSON = False) -> None:
    """List the runs in the journal, newest first."""
    folder = data_dir(config, directory)
    with JournalReader(folder) as reader:
        records = reader.runs()
    if not is_owned(folder):
        # nobody is left to put down the end of a run that was killed
        records = tuple(replace(r, state=RunState.INTERRUPTED) if r.state is RunState.RUNNING else r for r in records)
    if as_json:
        print_json([_as_json(r) for r in records])
        return
    # the id is what is typed next: it is never cut
    table = Table(Column(_COLUMNS[0], no_wrap=True, min_width=18), *(Column(n, no_wrap=True) for n in _COLUMNS[1:]),
                  box=None, pad_edge=False)  # fmt: skip
    for record in records:
        shown = record.outcome or "-"
        simulated = " SIMULATED" if record.simulated else ""
        started = iso(record.started_ns)[:19] + "Z"
        table.add_row(record.id, started, record.state.value, shown + simulated, record.target, record.profile)
    show(table, wide=True)


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
