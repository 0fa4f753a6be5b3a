"""``soakd check-config`` and ``soakd init``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from soakd import share
from soakd.alerting.rule_files import load_rules, rule_files
from soakd.commands.terminal import say, tell
from soakd.config import load_config
from soakd.errors import SoakdError
from soakd.metrics import catalogue
from soakd.soak.drill import planned_drills
from soakd.soak.plan import phases, stages
from soakd.soak.prepare import prompts_of


def register(app: typer.Typer) -> None:
    app.command("check-config")(check_config)
    app.command("init")(init)


def check_config(file: Annotated[Path, typer.Argument(help="The configuration file.")]) -> None:
    """Check a configuration file; say what a run by it would do."""
    loaded = load_config(file)
    planned = phases(loaded)
    drills = planned_drills(loaded, planned)
    prompts_of(loaded)
    files = rule_files(loaded.config.rules)
    rules = load_rules(files, catalogue().by_name)
    names = ", ".join(stage.name for stage in stages(loaded))
    collectors = ", ".join(name for name, entry in loaded.collectors.items() if entry.enabled)
    tell(f"{file}: good")
    tell(f"  target      {loaded.config.target.url or 'to be given on the command line'}")
    tell(f"  load        {loaded.config.load.profile}, {planned.total_s:g} s in all ({names})")
    for drill in drills:
        tell(f"  drill       {drill.due_s:g} s after the start: {drill.shown}")
    tell(f"  collectors  {collectors}")
    tell(f"  alert rules {len(rules)} of {len(files)} {'file' if len(files) == 1 else 'files'}")
    tell(f"  tells       {', '.join(loaded.notifiers) or 'nobody: no notifiers are configured'}")


def init(directory: Annotated[Path, typer.Argument(help="Where to put the files; it may exist.")]) -> None:
    """Write the configurations, alert rules and dashboards that ship with soakd, to start from.

    Files that are there already are never changed.
    """
    written, kept = 0, 0
    try:
        for folder in share.FOLDERS:
            for source in sorted((share.root() / folder).rglob("*")):
                if not source.is_file() or source.name.startswith("."):
                    continue
                target = directory / source.relative_to(share.root())
                if target.exists():
                    kept += 1
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
                written += 1
    except OSError as error:
        raise SoakdError(f"{error.filename or directory}: {error.strerror}", hint="give a folder to write in") from None
    say(f"{directory}: {written} files written" + (f", {kept} left as they were" if kept else ""))
