"""``soakd test-rules``, ``soakd rules --replay`` and ``soakd alert test``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from soakd.alerting.probe import ChannelResult, tell_all
from soakd.alerting.replay import Episode, replay
from soakd.alerting.rule_files import kinds, load_rules, rule_files
from soakd.alerting.rule_tests import load_tests, run_test
from soakd.alerting.setup import build_notifiers
from soakd.commands.options import CONFIG, DATA_DIR, JSON
from soakd.commands.terminal import print_json, run_async, say, show
from soakd.config import load_config
from soakd.errors import SoakdError
from soakd.metrics import catalogue
from soakd.quantities import format_duration
from soakd.report.model import iso
from soakd.rules.options import RuleContext

_REPLAY = Annotated[str | None, typer.Option("--replay", help="A run by its id, a prefix of it, or `latest`.")]
_RULES = Annotated[
    list[Path] | None, typer.Option("--rules", help="Rule files; without it those of the configuration.")
]


def register(app: typer.Typer) -> None:
    app.command("test-rules")(test_rules)
    app.command("rules")(rules)
    alert = typer.Typer(help="Alerts by hand.", no_args_is_help=True)
    alert.callback()(_alert)
    alert.command("test")(alert_test)
    app.add_typer(alert, name="alert")


def _alert() -> None:
    """Alerts by hand."""


def test_rules(files: Annotated[list[Path], typer.Argument(help="Test files (alerts/*_test.yaml).")]) -> None:
    """Run the tests of alert rules. Exit 0 all hold, 1 some fail, 2 a file is wrong."""
    context = RuleContext(catalogue().by_name, kinds())
    failed = count = 0
    for path in files:
        for case in load_tests(path, context):
            result = run_test(case)
            count += 1
            if result.failures:
                failed += 1
                say(f"FAILED {case.place} {case.config.name} ({', '.join(case.config.rule)})")
                for failure in result.failures:
                    say(f"  {failure}")
    say(f"{count} tests, {failed} failed" if failed else f"{count} tests, all hold")
    raise typer.Exit(1 if failed else 0)


def rules(
    run: _REPLAY = None,
    files: _RULES = None,
    config: CONFIG = None,
    directory: DATA_DIR = None,
    as_json: JSON = False,
) -> None:
    """List the rules, or with --replay show what would have fired on a recorded run."""
    loaded = load_config(config).config
    chosen = load_rules(rule_files(files or loaded.rules), catalogue().by_name)
    if run is None:
        _list(
            [(r.config.name, r.config.kind, r.config.severity.value, r.rule.definition.place) for r in chosen], as_json
        )
        return
    episodes = replay(directory or loaded.data_dir, run, chosen)
    if as_json:
        print_json([asdict(e) for e in episodes])
        return
    _show(episodes)


def _list(rows: list[tuple[str, str, str, str]], as_json: bool) -> None:
    if as_json:
        print_json([dict(zip(("name", "kind", "severity", "place"), row, strict=True)) for row in rows])
        return
    table = Table("rule", "kind", "severity", "where", box=None)
    for row in rows:
        table.add_row(*row)
    show(table, wide=True)


def _show(episodes: tuple[Episode, ...]) -> None:
    if not episodes:
        say("nothing would have fired")
        return
    table = Table("fired", "lasted", "severity", "alert", "what", box=None)
    for e in episodes:
        lasted = format_duration((e.ended_ns - e.fired_ns) / 1e9) if e.ended_ns is not None else "to the end"
        table.add_row(iso(e.fired_ns), lasted, e.severity, e.name, e.summary)
    show(table, wide=True)


def alert_test(config: CONFIG = None, as_json: JSON = False) -> None:
    """Send one alert, labelled as a test, through every configured channel. Exit 0 all took it, 1 one did not, 2."""
    loaded = load_config(config)
    if not loaded.notifiers:
        raise SoakdError("no notifiers are configured", hint="add a section `notifiers`; see `soakd init`")
    results = run_async(lambda: tell_all(lambda clock: build_notifiers(loaded.notifiers, clock)))
    if as_json:
        print_json([asdict(r) for r in results])
    else:
        for result in results:
            say(f"{result.channel}: {'took it' if result.delivered else 'FAILED: ' + result.problem}")
    raise typer.Exit(_code(results))


def _code(results: tuple[ChannelResult, ...]) -> int:
    return 0 if all(r.delivered for r in results) else 1
