"""``soakd run`` and ``soakd rehearse``."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer

from soakd.clock import RealClock
from soakd.commands.daemon_client import DaemonClient
from soakd.commands.options import CONFIG, DATA_DIR, JUNIT
from soakd.commands.soaking import Output, cards, identities, soak, soak_by_daemon
from soakd.commands.terminal import run_async, say
from soakd.config import Loaded, load_config
from soakd.demo.launch import DemoServer
from soakd.errors import SoakdError
from soakd.nvml.pool import GpuPool
from soakd.quantities import parse_duration
from soakd.rehearsal.scenarios import SCENARIOS
from soakd.rehearsal.session import DEFAULT_DURATION_S, Rehearsal
from soakd.rehearsal.target import TargetOptions
from soakd.soak.drill import planned_drills
from soakd.soak.environment import Environment
from soakd.soak.plan import phases, stages
from soakd.soak.prepare import prompts_of

TARGET_ENV = "SOAKD_TARGET"
_DURATION = Annotated[str | None, typer.Option("--duration", help="Length of the load, such as 90s, 30m or 2h.")]
_PROFILE = Annotated[str | None, typer.Option("--profile", help="A load profile by name, or a .yaml file.")]
_ITL_S = 0.010
"""Real seconds between tokens of the simulated server: long against the jitter of a busy machine."""
_JSON = Annotated[bool, typer.Option("--json", help="The report as JSON on stdout, and nothing else there.")]
_HTML = Annotated[Path | None, typer.Option("--html", help="Write the report as a page to this file too.")]


def register(app: typer.Typer) -> None:
    app.command("run")(run)
    app.command("rehearse")(rehearse)


def run(
    config: CONFIG = None,
    target: Annotated[str | None, typer.Option("--target", help="Address of the server under test.")] = None,
    duration: _DURATION = None,
    profile: _PROFILE = None,
    directory: DATA_DIR = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Soak llama.cpp's server with a generated tiny Qwen3, started for the run.")
    ] = False,
    as_json: _JSON = False,
    html: _HTML = None,
    junit: JUNIT = None,
) -> None:
    """Soak a server once: load, telemetry, verdict. Exit 0 PASS, 1 FAIL, 2 could not start, 3 INCONCLUSIVE."""
    address = target or os.environ.get(TARGET_ENV) or None
    if demo and address:
        raise SoakdError(
            f"--demo and a target ({address}) do not go together", hint=f"unset {TARGET_ENV}, or leave out --demo"
        )
    loaded = _load(config, profile, directory, duration, {"target.url": address} if address else {})
    output = Output.to(as_json, html, junit)
    client = None if demo else DaemonClient.of(loaded.config.data_dir, loaded.config.web)
    if client:
        order = _order(config, profile, duration, address)
        raise typer.Exit(run_async(lambda: soak_by_daemon(client, order, output)))
    raise typer.Exit(run_async(lambda: _run(loaded, demo, output)))


def _order(config: Path | None, profile: str | None, duration: str | None, address: str | None) -> dict[str, object]:
    sets: dict[str, object] = {}
    if duration:
        sets["load.duration"] = duration
    if address:
        sets["target.url"] = address
    return {"config": str(config.absolute()) if config else None, "profile": profile, "sets": sets}


async def _run(loaded: Loaded, demo: bool, output: Output) -> int:
    clock = RealClock()
    async with AsyncExitStack() as stack:
        if demo:
            say("demo: llama.cpp's HTTP server with a generated random-weight Qwen3; its answers mean nothing")
            server = await stack.enter_async_context(DemoServer.start(loaded.config.data_dir / "demo"))
            loaded = loaded.with_target(server.url)
        pool = await stack.enter_async_context(cards(clock))
        environment = Environment(clock=clock, gpus=pool, cards=await identities(pool), gpu_note=_note(pool))
        return await soak(loaded, environment, output)


def _note(pool: GpuPool) -> str:
    return pool.why_none


def rehearse(
    scenario: Annotated[str, typer.Option("--scenario", help="One of: " + ", ".join(SCENARIOS))] = "healthy",
    duration: _DURATION = None,
    speed: Annotated[float, typer.Option("--speed", help="How many times faster the simulated clock runs.")] = 60.0,
    config: CONFIG = None,
    directory: DATA_DIR = None,
    as_json: _JSON = False,
    html: _HTML = None,
    junit: JUNIT = None,
) -> None:
    """The same soak against a simulated server and simulated hardware; everything it says is labelled SIMULATED.

    The duration is simulated time; requests per second of real time stay what this machine can do.
    """
    output = Output.to(as_json, html, junit)
    length = parse_or_fail(duration) if duration else DEFAULT_DURATION_S
    loaded = _load(config, "rehearsal", directory, f"{length:g}s", {})
    raise typer.Exit(run_async(lambda: _rehearse(loaded, scenario, speed, output)))


async def _rehearse(loaded: Loaded, scenario: str, speed: float, output: Output) -> int:
    say(f"SIMULATED: scenario {scenario}, {speed:g} times faster than real time")
    total_s = phases(loaded).total_s
    _folder(loaded.config.data_dir)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rehearsal-", dir=loaded.config.data_dir))
        rehearsal = await stack.enter_async_context(
            Rehearsal.start(
                scenario, directory=Path(folder), duration_s=total_s, speed=speed, target=TargetOptions(itl_s=_ITL_S)
            )
        )
        pool = await stack.enter_async_context(cards(rehearsal.clock, rehearsal.nvml_command))
        environment = Environment(
            clock=rehearsal.clock, fast=rehearsal.clock, roots=rehearsal.roots, gpus=pool, simulated=True,
            scenario=scenario, cards=await identities(pool),
        )  # fmt: skip
        return await soak(loaded.with_target(rehearsal.url), environment, output)


def _folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SoakdError(
            f"{path}: {error.strerror}", hint="give a folder that can be written with --data-dir"
        ) from None


def _load(
    config: Path | None, profile: str | None, directory: Path | None, duration: str | None, more: Mapping[str, object]
) -> Loaded:
    sets: dict[str, object] = dict(more)
    if duration is not None:
        sets["load.duration"] = f"{parse_or_fail(duration):g}s"
    if directory is not None:
        sets["data_dir"] = str(directory)
    loaded = load_config(config, profile=profile, sets=sets)
    planned_drills(loaded, phases(loaded))
    stages(loaded)
    prompts_of(loaded)
    return loaded


def parse_or_fail(duration: str) -> float:
    try:
        return parse_duration(duration)
    except ValueError as error:
        raise SoakdError(f"--duration: {error}") from None
