"""``soakd analyze``: is this series a leak? For any CSV or JSONL, a turn log of club-3090, a Prometheus range query."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from soakd.analysis.analyze import AnalyzeOptions, analyze_file
from soakd.analysis.plot import write_plot
from soakd.commands.options import JSON
from soakd.commands.terminal import print_json, say, tell
from soakd.errors import SoakdError
from soakd.quantities import parse_duration, parse_size


def register(app: typer.Typer) -> None:
    app.command("analyze")(analyze)


def analyze(
    file: Annotated[Path, typer.Argument(help="CSV, JSONL or range-query JSON; the first column is time or work.")],
    column: Annotated[str | None, typer.Option("--column", help="The column to judge.")] = None,
    total: Annotated[str | None, typer.Option("--total", help="Size of what fills up, such as 32GiB.")] = None,
    cap: Annotated[str | None, typer.Option("--cap", help="A declared cap within which growth is by design.")] = None,
    limit: Annotated[str | None, typer.Option("--limit", help="Growth allowed per hour, such as 16MiB.")] = None,
    warmup: Annotated[str | None, typer.Option("--warmup", help="Left out at the start, such as 10m.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Write a chart to this .html or .png file.")] = None,
    as_json: JSON = False,
) -> None:
    """Judge a series for growth. Exit 0 no leak, 1 leak, 3 inconclusive."""
    options = AnalyzeOptions(
        column=column, total=_size("--total", total), cap=_size("--cap", cap), limit=_size("--limit", limit),
        warmup=_seconds("--warmup", warmup),
    )  # fmt: skip
    found = analyze_file(file, options)
    if plot:
        write_plot(found, plot)
        say(f"written to {plot}")
    if as_json:
        print_json(found.to_json())
    else:
        tell(found.to_text())
    raise typer.Exit(found.exit_code)


def _size(option: str, text: str | None) -> float | None:
    try:
        return None if text is None else float(parse_size(text))
    except ValueError as error:
        raise SoakdError(f"{option}: {error}") from None


def _seconds(option: str, text: str | None) -> float | None:
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise SoakdError(f"{option}: {error}") from None
