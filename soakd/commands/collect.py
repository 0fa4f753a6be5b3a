"""``soakd collect``: what every collector sees now."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from soakd.clock import RealClock
from soakd.commands.options import CONFIG
from soakd.commands.recording import record_cards, replayed
from soakd.commands.soaking import cards
from soakd.commands.terminal import print_json, run_async, say, show
from soakd.config import Loaded, load_config
from soakd.errors import SoakdError, TargetError
from soakd.model import Sample, State, TargetInfo
from soakd.ports import Clock, CollectorContext, Roots
from soakd.schedule import Job, Reading, Runner
from soakd.soak.prepare import access_of
from soakd.targets.discovery import Hints, identify


def register(app: typer.Typer) -> None:
    app.command("collect")(collect)


def collect(
    config: CONFIG = None,
    target: Annotated[str | None, typer.Option("--target", help="Also watch this server and its process.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Read once and end (the default).")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
    record: Annotated[
        Path | None, typer.Option("--record", help="Save what the cards and their sysfs say to this folder, redacted.")
    ] = None,
    frames: Annotated[int, typer.Option("--frames", min=1, max=3600, help="Readings to record, one a second.")] = 1,
    replay: Annotated[
        list[Path] | None, typer.Option("--replay", help="A recorded card to read in place of this host's; repeatable.")
    ] = None,
) -> None:
    """Show what every collector sees now, each with its status; or record the cards, or look at recorded ones."""
    del once
    if record is not None and replay:
        raise SoakdError("--record and --replay do not go together", hint="a recording is already one")
    loaded = load_config(config, sets={"target.url": target} if target else {})
    if record is not None:
        record_cards(record, frames, as_json=as_json)
        return
    if replay:
        say("REPLAYED: cards and their PCI devices are recorded ones, everything else is this host's")
        with replayed(replay) as (command, roots):
            readings = run_async(lambda: read_collectors(loaded, roots, command))
    else:
        readings = run_async(lambda: read_collectors(loaded, Roots()))
    if as_json:
        print_json(as_contract(readings))
        return
    table = Table("collector", "status", "took", "metric", "value", "unit", "labels", box=None)
    for reading in readings:
        took = f"{reading.took_s * 1000:.1f} ms"
        table.add_row(reading.name, reading.status, took, reading.why, "", "", "", style="bold")
        for sample in reading.samples:
            shown = f"{sample.value:g}" if sample.value is not None else sample.state.value
            tags = " ".join(f"{k}={v}" for k, v in sample.labels)
            table.add_row("", "", "", sample.metric.name, shown, sample.metric.unit, tags)
    show(table, wide=True)


async def read_collectors(loaded: Loaded, roots: Roots, command: tuple[str, ...] | None = None) -> tuple[Reading, ...]:
    """Twice, so that collectors that need a difference have one. What is read less often (the slow tier of NVML) is in
    the first reading only, so both count; the second one's samples win."""
    clock = RealClock()
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(cards(clock, command))
        if pool.why_none:
            say(pool.why_none)
        context = CollectorContext(clock, roots, pool, await _target(loaded, clock, roots))
        jobs = [
            Job(name, entry.plugin.build(entry.options, context), entry.interval_s, entry.deadline_s)
            for name, entry in loaded.collectors.items()
            if entry.enabled
        ]
        runner = Runner(jobs, clock, lambda items: None)
        stack.push_async_callback(runner.stop)
        first = await runner.read_all()
        return tuple(merged(one, two) for one, two in zip(first, await runner.read_all(), strict=True))


def merged(first: Reading, second: Reading) -> Reading:
    """The second reading with the samples that only the first one has."""
    samples = {(s.metric.name, s.labels): s for s in (*first.samples, *second.samples)}
    return replace(second, items=tuple(samples.values()))


async def _target(loaded: Loaded, clock: Clock, roots: Roots) -> TargetInfo | None:
    target = loaded.config.target
    if target.url is None:
        return None
    try:
        return await identify(
            access_of(loaded), clock, hints=Hints(target.model, target.pid, target.command), roots=roots,
            loading_wait_s=1.0,
        )  # fmt: skip
    except TargetError as error:
        say(f"the target can't be watched: {error}")
        return None


def as_contract(readings: tuple[Reading, ...]) -> dict[str, object]:
    """``soakd collect --once --json``: names fixed by the contract."""
    return {
        "host": socket.gethostname(),
        "collectors": [
            {
                "name": r.name,
                "status": r.status,
                "took_s": round(r.took_s, 6),
                "why": r.why,
                "samples": [_sample(s) for s in r.samples],
            }
            for r in readings
        ],
    }


def _sample(sample: Sample) -> dict[str, object]:
    found: dict[str, object] = {
        "metric": sample.metric.name,
        "value": sample.value,
        "status": sample.state.value,
        "unit": sample.metric.unit,
        "labels": dict(sample.labels),
    }
    if sample.state is not State.OK and sample.why:
        found["why"] = sample.why
    return found
