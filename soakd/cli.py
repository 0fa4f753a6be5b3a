"""The command line. Exit codes: 0 good, 1 bad, 2 usage or configuration, 3 inconclusive; see DESIGN in docs/."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from types import TracebackType
from typing import Annotated

import typer

from soakd import __version__, logs
from soakd.commands import analyze, collect, daemon, journal, longcontext, preflight, report, rules, run, setup, sweep
from soakd.commands.streams import flush_all, settle
from soakd.commands.terminal import fail, say, tell
from soakd.errors import SoakdError

app = typer.Typer(
    name="soakd",
    help="Will this LLM server, on this hardware, survive hours of real load?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        tell(f"soakd {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and end.", is_eager=True, callback=_version)
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more, on stderr.")] = False,
) -> None:
    del version
    logs.configure(verbose=verbose)


for part in (run, report, analyze, collect, preflight, sweep, longcontext, daemon, journal, setup, rules):
    part.register(app)


def main() -> None:
    """The entry point: every error becomes a message and an exit code, never a traceback."""
    sys.excepthook = _on_fault
    settle()
    code = _run(sys.argv[1:])
    flush_all()
    # not sys.exit: a thread that is stuck in the kernel (a dead disk, a driver) would be waited for without end
    os._exit(code)


def _on_fault(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A fault of soakd itself: what happened on one line, the traceback in a file, exit code 2 (1 would mean FAIL)."""
    with tempfile.NamedTemporaryFile("w", prefix="soakd-fault-", suffix=".txt", delete=False) as file:
        traceback.print_exception(kind, error, trace, file=file)
    say(f"error: soakd itself failed: {kind.__name__}: {error}")
    say(f"  hint: this is a fault of soakd; please report it with {file.name}; the journal is not affected")
    flush_all()
    os._exit(2)


def _run(arguments: list[str]) -> int:
    try:
        # not app(...): that puts typer's own excepthook in the place of ours
        typer.main.get_command(app)(args=arguments)
    except SoakdError as error:
        return fail(error).exit_code
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 2
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    return 0
