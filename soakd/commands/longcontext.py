"""``soakd long-context``: the first prompt length at which the server fails, and how."""

from __future__ import annotations

import os
import re
from typing import Annotated

import typer
from rich.table import Table

from soakd.clock import RealClock
from soakd.commands.options import CONFIG, JSON
from soakd.commands.run import TARGET_ENV
from soakd.commands.terminal import run_async, say, show, tell, write_stdout
from soakd.config import Loaded, load_config
from soakd.errors import SoakdError
from soakd.load.driver import LoadDriver
from soakd.load.longcontext import LengthResult, LongContextPlan, LongContextResult, run_long_context
from soakd.load.spec import LoadSpec, Timeouts
from soakd.ports import Roots
from soakd.report.wording import clean
from soakd.soak.plan import target_spec
from soakd.soak.prepare import prepare

_K = 1024
_SHORTEST = 16
_MOST = 4_000_000
_TOKENS = re.compile(r"(\d+(?:\.\d+)?)\s*(k?)", re.IGNORECASE)


def register(app: typer.Typer) -> None:
    app.command("long-context")(long_context)


def long_context(
    config: CONFIG = None,
    target: Annotated[str | None, typer.Option("--target", help="Address of the server under test.")] = None,
    first: Annotated[str, typer.Option("--from", help="The shortest prompt, in tokens.")] = "8K",
    last: Annotated[str, typer.Option("--to", help="The longest; lengths double up to it.")] = "128K",
    documents: Annotated[int, typer.Option("--documents", help="New documents of each length.", min=1, max=100)] = 3,
    repeats: Annotated[
        int, typer.Option("--repeats", help="How often each is asked; answers must not change.", min=1, max=100)
    ] = 2,
    answer: Annotated[int, typer.Option("--answer-tokens", help="Length of each answer.", min=1, max=8192)] = 64,
    background: Annotated[
        int, typer.Option("--background", help="Requests of the usual mix kept in flight beside.", min=0, max=10_000)
    ] = 4,
    as_json: JSON = False,
) -> None:
    """Ask longer and longer prompts, beside a background load: time to first token, whether answers repeat, and the
    first length that fails. Exit 0 whatever the lengths do, 2 when it could not start."""
    lengths = doubling(tokens("--from", first), tokens("--to", last))
    plan = LongContextPlan(lengths, documents, repeats, answer, background)
    address = target or os.environ.get(TARGET_ENV) or None
    loaded = load_config(config, sets={"target.url": address} if address else {})
    result = run_async(lambda: _ask(loaded, plan))
    if as_json:
        write_stdout(result.to_json() + b"\n")
    else:
        _show(result)


def tokens(option: str, text: str) -> int:
    """``8192``, ``8K`` (1,024 tokens each). Raises SoakdError."""
    found = _TOKENS.fullmatch(text.strip())
    count = int(float(found[1]) * (_K if found[2] else 1)) if found else 0
    if not _SHORTEST <= count <= _MOST:
        raise SoakdError(f"{option}: {text!r} is not a length in tokens", hint="write it as 8192 or 8K")
    return count


def doubling(first: int, last: int) -> tuple[int, ...]:
    """From the first length, each twice the one before, up to the last, which is always one of them."""
    if last < first:
        raise SoakdError(f"--to {last} is below --from {first}")
    found = [first]
    while found[-1] * 2 < last:
        found.append(found[-1] * 2)
    return tuple(dict.fromkeys((*found, last)))


async def _ask(loaded: Loaded, plan: LongContextPlan) -> LongContextResult:
    prepared = await prepare(loaded, RealClock(), Roots())
    load, info = loaded.config.load, prepared.info
    context = f"{info.context_tokens:,} tokens" if info.context_tokens else "unknown"
    say(f"target: {info.server or prepared.server_kind} at {info.url}, context {context}")
    patience = load.timeouts
    base = LoadSpec(
        target_spec(loaded, info), (), prepared.prompts, max_in_flight=load.max_in_flight,
        timeouts=Timeouts(patience.connect, patience.first_token, patience.stall, patience.total), seed=load.seed,
        transport=load.transport, workers=1,
    )  # fmt: skip

    async def told(result: LengthResult) -> None:
        say(f"{result.tokens} tokens: {result.failure or _seconds(result.ttft_max_s) + ' to the first token'}")

    return await run_long_context(plan, base, LoadDriver() if plan.background else None, told)


def _show(result: LongContextResult) -> None:
    table = Table("tokens", "counted", "answered", "TTFT cold", "worst", "warm", "answers", box=None)
    for length in result.lengths:
        middle = sorted(length.ttft_s)[len(length.ttft_s) // 2] if length.ttft_s else None
        table.add_row(
            f"{length.tokens:,}",
            f"{length.prompt_tokens:,}" if length.prompt_tokens is not None else "unknown",
            f"{length.completed} of {length.asked}",
            _seconds(middle),
            _seconds(length.ttft_max_s),
            _seconds(length.warm_ttft_s),
            _answers(length),
        )
    show(table, wide=True)
    for length in result.lengths:
        for why in filter(None, (length.difference, *length.garbled)):
            tell(f"{length.tokens:,} tokens: {clean(why, 300)}")
    if result.first_failing is None:
        tell(f"every length up to {result.lengths[-1].tokens:,} tokens was answered")
    else:
        tell(f"fails first at {result.first_failing:,} tokens: {clean(result.how, 300)}")
    if result.background_completed or result.background_failed:
        p95 = _seconds(result.background_p95_s)
        beside = f"{result.background_completed:,} completed, {result.background_failed:,} failed"
        tell(f"background load: {beside}, E2E P95 {p95}")


def _answers(length: LengthResult) -> str:
    same = {True: "identical", False: "differ", None: "not compared"}[length.identical]
    return f"{same}, garbled" if length.garbled else same


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g} s"
