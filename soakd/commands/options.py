"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from soakd.config import load_config

CONFIG = Annotated[Path | None, typer.Option("--config", "-c", help="The configuration file.")]
JSON = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]
HTML = Annotated[Path | None, typer.Option("--html", help="Write a page to this file.")]
JUNIT = Annotated[Path | None, typer.Option("--junit", help="Write the limits as JUnit XML to this file.")]
DATA_DIR = Annotated[Path | None, typer.Option("--data-dir", help="The folder of the journal (default .soakd).")]


def data_dir(config: Path | None, given: Path | None) -> Path:
    """The folder of the journal: as given, else the configuration's, else the default."""
    return given if given is not None else load_config(config).config.data_dir
