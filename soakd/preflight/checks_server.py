"""Checks of the server under test: its process, its unit, what it answers and the model it serves."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from soakd.preflight.check import Check, CheckState, Judgement
from soakd.preflight.facts import Facts
from soakd.preflight.judging import at_least, equals, judged, matches, not_asked, unknown
from soakd.preflight.profile import Profile
from soakd.quantities import format_bytes

Judge = Callable[[Facts, Profile], Judgement]


def _of_target(judge: Judge, *, local: bool = True) -> Judge:
    """A check that needs the target, and its host unless it is asked over the network."""

    def judge_target(facts: Facts, profile: Profile) -> Judgement:
        judgement = judge(facts, profile)
        if judgement.state is CheckState.NOT_APPLICABLE:
            return judgement
        if not facts.server.there:
            return Judgement(CheckState.UNKNOWN, "", judgement.wanted, "no target is configured", "set target.url")
        if local and not facts.server.local:
            why = "the target runs on another host; run the pre-flight there"
            return Judgement(CheckState.UNKNOWN, "", judgement.wanted, why)
        return judgement

    return judge_target


def open_files(facts: Facts, profile: Profile) -> Judgement:
    fix = "LimitNOFILE= in the server's unit, or ulimit -n before it starts"
    return at_least(facts.server.open_files_limit, profile.server.open_files, fix)


def unit_enabled(facts: Facts, profile: Profile) -> Judgement:
    return equals(facts.server.unit_enabled, profile.server.unit_enabled, "systemctl enable the server's unit")


def memory_limit(facts: Facts, profile: Profile) -> Judgement:
    if not profile.server.memory_limit_below_ram:
        return not_asked()
    limit, ram = facts.server.memory_limit, facts.host.ram
    wanted = f"below {format_bytes(ram.value)}" if isinstance(ram.value, int | float) else "below the host's memory"
    fix = "MemoryMax= in the server's unit (MemoryLimit= under cgroup v1); it caps host memory, not GPU memory"
    if limit.value is None or not isinstance(ram.value, int | float):
        return unknown(limit if limit.value is None else ram, wanted, fix)
    if not isinstance(limit.value, int | float):
        return Judgement(CheckState.WRONG, "no limit", wanted, f"from {limit.source}", fix)
    return judged(limit.value < ram.value, limit, wanted, fix, lambda v: format_bytes(float(str(v))))


def health(facts: Facts, profile: Profile) -> Judgement:
    return equals(facts.server.health, 200 if profile.server.health else None, "look at the server's log")


def generation(facts: Facts, profile: Profile) -> Judgement:
    return equals(facts.server.generation, profile.server.generation, "look at the server's log and its chat template")


def log_errors(facts: Facts, profile: Profile) -> Judgement:
    wanted = 0 if profile.server.log_without_errors else None
    return equals(facts.server.log_errors, wanted, "journalctl -u UNIT -p err since the server's start")


def flags(facts: Facts, profile: Profile) -> Judgement:
    """Every wanted flag with its value, in the forms ``--flag value`` and ``--flag=value``."""
    wanted = profile.server.flags
    if not wanted:
        return not_asked()
    text = " ".join(f"{flag} {value}".strip() for flag, value in wanted.items())
    fix = "start the server with the flags of the profile"
    if not isinstance(facts.server.command.value, tuple):
        return unknown(facts.server.command, text, fix)
    arguments = facts.server.command.value
    found = {flag: flag_value(arguments, flag) for flag in wanted}
    wrong = [flag for flag, value in wanted.items() if found[flag] != value]
    shown = ", ".join(f"{flag} {found[flag] if found[flag] is not None else 'not set'}" for flag in wanted)
    state = CheckState.WRONG if wrong else CheckState.OK
    return Judgement(state, shown, text, f"from {facts.server.command.source}", fix if wrong else "")


def flag_value(arguments: Sequence[str], flag: str) -> str | None:
    """The last value of a flag (argparse's rule); an empty text for a switch; None when it is not there."""
    value: str | None = None
    for argument, following in itertools.pairwise((*arguments, "-")):
        if argument == flag:
            value = "" if following.startswith("-") else following
        elif argument.startswith(f"{flag}="):
            value = argument[len(flag) + 1 :]
    return value


def version(facts: Facts, profile: Profile) -> Judgement:
    return matches(facts.server.version, profile.server.version, "install the server that the profile pins")


def torch(facts: Facts, profile: Profile) -> Judgement:
    return matches(facts.server.torch, profile.server.torch, "install the torch that the profile pins")


def cuda(facts: Facts, profile: Profile) -> Judgement:
    return matches(facts.server.cuda, profile.server.cuda, "install the torch build for the CUDA the profile pins")


def model_complete(facts: Facts, profile: Profile) -> Judgement:
    if not profile.model.complete:
        return not_asked()
    missing = facts.server.model_missing_files
    wanted, fix = "every file of its index", "fetch the model again"
    if not isinstance(missing.value, tuple):
        return unknown(missing, wanted, fix)
    found = f"{len(missing.value)} missing: {', '.join(missing.value[:5])}" if missing.value else "complete"
    state = CheckState.WRONG if missing.value else CheckState.OK
    return Judgement(state, found, wanted, f"from {missing.source}", fix if missing.value else "")


def max_position(facts: Facts, profile: Profile) -> Judgement:
    wanted = profile.model.max_position_embeddings
    return equals(facts.server.max_position_embeddings, wanted, "check that this is the model the profile is for")


CHECKS = (
    Check("server.health", "server", _of_target(health, local=False)),
    Check("server.generation", "server", _of_target(generation, local=False)),
    Check("server.version", "server", _of_target(version, local=False)),
    Check("server.torch", "server", _of_target(torch)),
    Check("server.cuda", "server", _of_target(cuda)),
    Check("server.flags", "server", _of_target(flags)),
    Check("server.open_files", "server", _of_target(open_files)),
    Check("server.unit_enabled", "server", _of_target(unit_enabled)),
    Check("server.memory_limit", "server", _of_target(memory_limit)),
    Check("server.log_errors", "server", _of_target(log_errors)),
    Check("model.complete", "model", _of_target(model_complete)),
    Check("model.max_position", "model", _of_target(max_position)),
)
