"""Running a command: its loop, its errors as messages, its signals, its output. Nothing else prints."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import orjson
import typer
import uvloop
from rich.console import Console, RenderableType

from soakd.commands.streams import Gathered, mute
from soakd.errors import SoakdError

T = TypeVar("T")
_EXECUTOR_WITHIN_S = 1.0
_WIDE = 240


def run_async(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Like asyncio.run, on uvloop, but a thread that is stuck in a system call can't keep the process alive.

    Ctrl-C and SIGTERM cancel the work and raise typer.Exit with 130 or 143, unless it has called `on_signals`.
    """
    loop = uvloop.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        main = loop.create_task(work())
        ended_by: list[signal.Signals] = []

        def end(number: signal.Signals) -> None:
            ended_by.append(number)
            main.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, end, number)
        try:
            return loop.run_until_complete(main)
        except asyncio.CancelledError:
            if not ended_by:
                raise
            say("interrupted")
            raise typer.Exit(128 + ended_by[0]) from None
    finally:
        try:
            _cancel_rest(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(_executor(loop))
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def _cancel_rest(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


async def _executor(loop: asyncio.AbstractEventLoop) -> None:
    try:
        async with asyncio.timeout(_EXECUTOR_WITHIN_S):
            await loop.shutdown_default_executor()
    except TimeoutError:
        pass


def on_signals(stop: Callable[[str], None]) -> None:
    """Ctrl-C and SIGTERM end the work cleanly; a second one ends the process at once."""
    loop = asyncio.get_running_loop()

    def interrupt(name: str, number: signal.Signals) -> None:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)
        stop(name)

    for name, number in (("Ctrl-C", signal.SIGINT), ("SIGTERM", signal.SIGTERM)):
        loop.add_signal_handler(number, interrupt, name, number)


def print_json(value: object) -> None:
    """One JSON document on stdout, and nothing but it."""
    raw = orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE)
    write_stdout(raw)


def write_stdout(raw: bytes) -> None:
    """Raises SoakdError when it can't be written; that its reader has gone (``| head``) is no fault."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        mute(sys.stdout)
    except OSError as error:
        mute(sys.stdout)
        raise SoakdError(f"the output can't be written: {error.strerror}") from None


def show(view: RenderableType, *, wide: bool = False) -> None:
    """For a person, on stdout; in colour where that is a terminal. ``wide`` is for tables: their cells are cut to the
    width of a terminal, but not where something else reads them."""
    free = wide and not sys.stdout.isatty() and "COLUMNS" not in os.environ
    text = Gathered(sys.stdout)
    Console(file=text, width=_WIDE if free else None).print(view, highlight=False)
    tell(text.getvalue().rstrip("\n"))


def tell(text: str) -> None:
    """Text on stdout; what its encoding lacks becomes a question mark."""
    write_stdout(f"{text}\n".encode(sys.stdout.encoding or "utf-8", "replace"))


def say(text: str) -> None:
    """Text for a person, on stderr."""
    print(text, file=sys.stderr)


def fail(error: SoakdError) -> typer.Exit:
    """The message of an error and its exit code."""
    for line in error.message.splitlines():
        say(f"error: {line}")
    if error.hint:
        say(f"  hint: {error.hint}")
    return typer.Exit(error.exit_code)
