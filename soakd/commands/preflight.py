"""``soakd preflight``: is this host set up as the profile wants it? It looks, and changes nothing."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from soakd import share
from soakd.clock import RealClock
from soakd.commands.options import CONFIG, JSON
from soakd.commands.soaking import cards
from soakd.commands.terminal import print_json, run_async, say, show
from soakd.config import Loaded, load_config
from soakd.errors import SoakdError
from soakd.ports import CollectorContext, Roots
from soakd.preflight.check import CheckState, PreflightReport
from soakd.preflight.profile import Profile, load_profile
from soakd.preflight.run import run_preflight
from soakd.soak.prepare import access_of
from soakd.targets.discovery import Hints, identify


def register(app: typer.Typer) -> None:
    app.command("preflight")(preflight)


def preflight(
    config: CONFIG = None,
    target: Annotated[str | None, typer.Option("--target", help="Also check this server.")] = None,
    profile: Annotated[str, typer.Option("--profile", help="The wanted state: a name, or a .yaml file.")] = "default",
    as_json: JSON = False,
) -> None:
    """Check the host, its cards and the server against a profile. Exit 0 all hold, 1 some fail, 3 some unknown."""
    loaded = load_config(config, sets={"target.url": target} if target else {})
    wanted = load_profile(_profile_path(profile))
    report = run_async(lambda: _check(loaded, wanted))
    if as_json:
        print_json(report.as_json())
    else:
        _show(report)
    raise typer.Exit(report.exit_code)


def _profile_path(name: str) -> Path:
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        return path
    shipped = share.find("configs/preflight", f"{name}.yaml")
    if not shipped.is_file():
        known = ", ".join(share.names("configs/preflight"))
        raise SoakdError(f"no pre-flight profile named {name!r}", hint=f"one of {known}, or a .yaml file")
    return shipped


async def _check(loaded: Loaded, profile: Profile) -> PreflightReport:
    clock, roots, target = RealClock(), Roots(), loaded.config.target
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(cards(clock))
        if target.url is None:
            say("no target is given: the server is not checked")
            return await run_preflight(profile, CollectorContext(clock, roots, pool, None))
        access = access_of(loaded)
        info = await identify(access, clock, hints=Hints(target.model, target.pid, target.command), roots=roots)
        return await run_preflight(profile, CollectorContext(clock, roots, pool, info), access)


def _show(report: PreflightReport) -> None:
    table = Table("", "check", "found", "wanted", "why, and how to put it right", box=None)
    for result in report.results:
        said = result.judgement
        why = f"{said.why} {said.fix}".strip() if said.state in (CheckState.WRONG, CheckState.UNKNOWN) else ""
        table.add_row(said.state.value, f"{result.group}/{result.id}", said.found, said.wanted, why)
    show(table, wide=True)
