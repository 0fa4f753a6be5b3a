"""The pre-flight: reads the facts once, judges every check, and waives what the profile waives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from soakd.blocking import BlockingReader
from soakd.errors import ConfigError, Problem
from soakd.ports import CollectorContext
from soakd.preflight import checks_hardware, checks_host, checks_server
from soakd.preflight.check import Check, CheckResult, CheckState, PreflightReport
from soakd.preflight.facts import Fact, Facts
from soakd.preflight.profile import Profile
from soakd.preflight.reading_hardware import read_driver, read_gpus
from soakd.preflight.reading_host import read_clock, read_host
from soakd.preflight.reading_server import read_answers, read_server, read_unit
from soakd.targets.access import Access

CHECKS: tuple[Check, ...] = (*checks_hardware.CHECKS, *checks_host.CHECKS, *checks_server.CHECKS)


async def run_preflight(profile: Profile, context: CollectorContext, access: Access | None = None) -> PreflightReport:
    """Read and judge. ``access`` reaches the target of ``context``; without it the server is not asked anything.

    Raises ConfigError when the profile waives a check that does not exist.
    """
    refuse_unknown_waivers(profile)
    return judge_all(profile, await read_facts(context, access))


async def read_facts(context: CollectorContext, access: Access | None) -> Facts:
    """Every fact there is. Files are read on a thread of its own that can't keep the process alive."""
    roots, target = context.roots, context.target
    fast = await context.gpus.ask("fast") if context.gpus else ()
    slow = await context.gpus.ask("slow") if context.gpus else ()
    no_answer = Fact(None, "the server", "it was not asked")
    answers = await read_answers(access, target, context.clock) if access and target else (no_answer,) * 3
    unit = await read_unit(roots, target.pid if target and target.local else None)
    clock = await read_clock()
    reader = BlockingReader("preflight")
    try:
        gpus, why = await reader.call(lambda: read_gpus(roots, fast, slow))
        driver = await reader.call(lambda: read_driver(roots))
        host = await reader.call(lambda: read_host(roots, clock))
        server = await reader.call(lambda: read_server(roots, target, answers, unit))
    finally:
        reader.close()
    return Facts(gpus, why, driver, host, server)


def judge_all(profile: Profile, facts: Facts, checks: Sequence[Check] = CHECKS) -> PreflightReport:
    """Pure: the same facts and profile give the same report."""
    return PreflightReport(profile.name, tuple(_judge(check, facts, profile) for check in checks))


def _judge(check: Check, facts: Facts, profile: Profile) -> CheckResult:
    judgement = check.judge(facts, profile)
    reason = profile.waived.get(check.id)
    if reason is not None and judgement.state in (CheckState.WRONG, CheckState.UNKNOWN):
        judgement = replace(judgement, state=CheckState.WAIVED, why=f"waived: {reason} ({judgement.why})", fix="")
    return CheckResult(check.id, check.group, judgement)


def refuse_unknown_waivers(profile: Profile) -> None:
    known = {check.id for check in CHECKS}
    wrong = [name for name in profile.waived if name not in known]
    if wrong:
        wanted = f"one of {', '.join(sorted(known))}"
        raise ConfigError(
            [Problem(profile.name, None, f"waived.{name}", "there is no such check", wanted) for name in wrong]
        )
