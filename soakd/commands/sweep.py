"""``soakd sweep``: the load at which latency leaves its plateau."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

import orjson
import typer
from rich.table import Table

from soakd.clock import RealClock
from soakd.commands.options import CONFIG, JSON
from soakd.commands.pages import write_page
from soakd.commands.run import TARGET_ENV, parse_or_fail
from soakd.commands.terminal import run_async, say, show, tell, write_stdout
from soakd.config import Loaded, load_config
from soakd.errors import SoakdError
from soakd.load.arrivals import Closed
from soakd.load.driver import LoadDriver
from soakd.load.spec import LoadSpec, Stage
from soakd.load.sweep import SweepLimits, SweepPlan, SweepState, run_sweep
from soakd.load.sweep_report import HEADER, markdown, rows, summary, svg
from soakd.ports import Roots
from soakd.soak.plan import target_spec
from soakd.soak.prepare import prepare

_DURATION = "a latency with its unit, such as 800ms"


def register(app: typer.Typer) -> None:
    app.command("sweep")(sweep)


def sweep(
    config: CONFIG = None,
    target: Annotated[str | None, typer.Option("--target", help="Address of the server under test.")] = None,
    axis: Annotated[Literal["concurrency", "rate"], typer.Option("--axis", help="What is raised.")] = "concurrency",
    first: Annotated[float, typer.Option("--from", help="The first load.", min=0.001)] = 1,
    last: Annotated[float, typer.Option("--to", help="The highest load.", min=0.001)] = 256,
    step: Annotated[str, typer.Option("--step", help="The longest time at one load.")] = "2m",
    e2e_p95: Annotated[
        str | None, typer.Option("--e2e-p95", help=f"A good load's E2E P95 at most: {_DURATION}.")
    ] = None,
    ttft_p95: Annotated[str | None, typer.Option("--ttft-p95", help=f"Its TTFT P95 at most: {_DURATION}.")] = None,
    state: Annotated[Path | None, typer.Option("--state", help="Keep the steps here, and go on from them.")] = None,
    plot: Annotated[Path | None, typer.Option("--svg", help="Write a plot to this file.")] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="The table as markdown.")] = False,
    as_json: JSON = False,
) -> None:
    """Raise the load step by step; name the knee with its interval, and the highest load that meets the limits."""
    address = target or os.environ.get(TARGET_ENV) or None
    loaded = load_config(config, sets={"target.url": address} if address else {})
    longest = parse_or_fail(step)
    limits = SweepLimits(
        parse_or_fail(e2e_p95) if e2e_p95 else None,
        parse_or_fail(ttft_p95) if ttft_p95 else None,
        loaded.config.limits.error_rate_max,
    )
    plan = SweepPlan(axis, first, last, min_step_s=min(15.0, longest), max_step_s=longest, limits=limits)
    if last < first:
        raise SoakdError(f"--to {last:g} is below --from {first:g}")
    done = run_async(lambda: _sweep(loaded, _resumed(state, plan), state))
    if plot:
        write_page(plot, svg(done))
    if as_json:
        write_stdout(done.to_json() + b"\n")
    elif as_markdown:
        tell(markdown(done))
    else:
        _show(done)


def _resumed(path: Path | None, plan: SweepPlan) -> SweepState:
    if path is None or not path.exists():
        return SweepState(plan)
    try:
        found = SweepState.from_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SoakdError(f"{path}: {error}", hint="give the file of an earlier sweep, or a new name") from None
    if orjson.dumps(found.plan) != orjson.dumps(plan):
        raise SoakdError(f"{path} holds a sweep with other options", hint="repeat its options, or give a new name")
    say(f"going on after {len(found.steps)} steps of {path}")
    return found


async def _sweep(loaded: Loaded, state: SweepState, path: Path | None) -> SweepState:
    clock = RealClock()
    prepared = await prepare(loaded, clock, Roots())
    load = loaded.config.load
    base = LoadSpec(
        target_spec(loaded, prepared.info), (Stage("step", Closed(1), 1.0),), prepared.prompts,
        max_in_flight=load.max_in_flight, seed=load.seed, transport=load.transport,
        workers=0 if load.workers == "auto" else load.workers, records=False,
    )  # fmt: skip

    def keep(now: SweepState) -> None:
        newest = now.steps[-1]
        p95 = f"{newest.e2e_p95.value:.3f} s" if newest.e2e_p95 else "unknown"
        say(f"{now.plan.axis} {newest.load:g}: {newest.rate_per_s:.3g} requests/s, E2E P95 {p95} {newest.why}")
        if path:
            waiting = path.with_name(path.name + ".new")
            waiting.write_bytes(now.to_json())
            waiting.replace(path)

    async def on_step(now: SweepState) -> None:
        with suppress(OSError):  # a state that can't be kept must not end the sweep
            keep(now)

    return await run_sweep(state, base, LoadDriver, on_step)


def _show(state: SweepState) -> None:
    table = Table(*HEADER, box=None)
    for row in rows(state):
        table.add_row(*row)
    show(table, wide=True)
    for line in summary(state):
        tell(line)
