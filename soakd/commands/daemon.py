"""``soakd daemon`` and the orders to a running one: ``soakd gpu release|acquire``."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Literal

import typer

from soakd.commands.daemon_client import DaemonClient
from soakd.commands.options import CONFIG, DATA_DIR, data_dir
from soakd.commands.terminal import on_signals, run_async, say
from soakd.config import Loaded, load_config
from soakd.daemon import serve
from soakd.errors import SoakdError


def register(app: typer.Typer) -> None:
    app.command("daemon")(daemon)
    app.command("gpu")(gpu)


def daemon(
    config: Annotated[Path, typer.Option("--config", "-c", help="The configuration file.")],
    directory: DATA_DIR = None,
) -> None:
    """Watch this server until SIGTERM: collectors, journal, forwarding, alert rules, scheduled soaks, web API."""
    loaded = load_config(config, sets={"data_dir": str(directory)} if directory else {})
    run_async(lambda: _serve(loaded, config.absolute()))


async def _serve(loaded: Loaded, path: Path) -> None:
    stopping = asyncio.Event()
    on_signals(lambda name: stopping.set())
    await serve(loaded, path, stopping)


def gpu(
    verb: Annotated[Literal["release", "acquire"], typer.Argument(help="Let go of the cards, or take them back.")],
    config: CONFIG = None,
    directory: DATA_DIR = None,
) -> None:
    """Have the daemon let go of every NVML handle (so that a card can be reset), and take them back."""
    folder, web = data_dir(config, directory), load_config(config).config.web
    client = DaemonClient.of(folder, web)
    if client is None:
        raise SoakdError("no daemon is running on this data directory", hint="nothing holds the cards then")
    run_async(lambda: client.order(f"/gpu/{verb}"))
    say(f"the daemon has {'let go of' if verb == 'release' else 'taken back'} the cards")
