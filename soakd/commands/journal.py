"""``soakd journal``: size, lag and cursors."""

from __future__ import annotations

from dataclasses import asdict

import typer
from rich.table import Table

from soakd.commands.options import CONFIG, DATA_DIR, JSON, data_dir
from soakd.commands.terminal import print_json, show, tell
from soakd.journal import JournalReader, JournalSummary
from soakd.quantities import format_bytes, format_duration
from soakd.report.model import iso


def register(app: typer.Typer) -> None:
    app.command("journal")(journal)


def journal(config: CONFIG = None, directory: DATA_DIR = None, as_json: JSON = False) -> None:
    """Show what the journal holds, how large it is, and how far each sink has come."""
    with JournalReader(data_dir(config, directory)) as reader:
        found = reader.summary()
    if as_json:
        print_json(asdict(found))
        return
    for name, value in _lines(found):
        tell(f"{name:<14} {value}")
    if found.cursors:
        table = Table("sink", "behind", "rows", "set aside", box=None)
        for lag in found.cursors:
            table.add_row(lag.cursor.name, format_duration(lag.seconds), f"{lag.rows:,}", f"{lag.set_aside:,}")
        show(table, wide=True)


def _lines(found: JournalSummary) -> tuple[tuple[str, str], ...]:
    rows = found.hot_rows + found.sealed_rows
    each = f" ({found.used_bytes / rows:.1f} bytes a reading, all in all)" if rows else ""
    return (
        ("file", f"{found.path} (schema {found.schema})"),
        ("size", f"{format_bytes(found.file_bytes)}, {format_bytes(found.used_bytes)} of it in use{each}"),
        ("raw readings", f"{found.hot_rows:,} hot, {found.sealed_rows:,} sealed"),
        ("roll-ups", f"{found.rollup_buckets:,} steps"),
        ("events", f"{found.events:,}, findings {found.findings:,}, runs {found.runs:,}"),
        ("oldest raw", iso(found.oldest_raw_ns) if found.oldest_raw_ns else "none"),
        ("last commit", f"{found.commit_seq:,} at {iso(found.commit_at_ns) if found.commit_at_ns else 'never'}"),
    )
