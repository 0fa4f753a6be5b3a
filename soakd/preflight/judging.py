"""The few shapes that judgements have. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence

from soakd.preflight.check import CheckState, Judgement
from soakd.preflight.facts import Fact, Facts, GpuFacts, Value

Show = Callable[[Value], str]
_WORST = (CheckState.WRONG, CheckState.UNKNOWN, CheckState.OK, CheckState.NOT_APPLICABLE)


def plain(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(value) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)


def not_asked() -> Judgement:
    return Judgement(CheckState.NOT_APPLICABLE, "", "", "the profile does not ask for it")


def unknown(fact: Fact, wanted: str, fix: str = "") -> Judgement:
    return Judgement(CheckState.UNKNOWN, "", wanted, f"{fact.why or 'not known'} ({fact.source})", fix)


def judged(holds: bool, fact: Fact, wanted: str, fix: str, show: Show = plain) -> Judgement:
    """``fix`` is only told when it is wanted."""
    found = show(fact.value) if fact.value is not None else ""
    state = CheckState.OK if holds else CheckState.WRONG
    return Judgement(state, found, wanted, f"from {fact.source}", "" if holds else fix)


def equals(fact: Fact, wanted: Value | None, fix: str, show: Show = plain) -> Judgement:
    if wanted is None:
        return not_asked()
    if fact.value is None:
        return unknown(fact, show(wanted), fix)
    return judged(fact.value == wanted, fact, show(wanted), fix, show)


def at_least(fact: Fact, wanted: float | None, fix: str, show: Show = plain, slack: float = 0.0) -> Judgement:
    """``slack`` is the share that may be missing: firmware and kernel keep a part of a nominal 128 GB."""
    if wanted is None:
        return not_asked()
    text = f"at least {show(wanted)}"
    if not isinstance(fact.value, int | float):
        return unknown(fact, text, fix)
    return judged(fact.value >= wanted * (1 - slack), fact, text, fix, show)


def at_most(fact: Fact, wanted: float | None, fix: str, show: Show = plain) -> Judgement:
    if wanted is None:
        return not_asked()
    text = f"at most {show(wanted)}"
    if not isinstance(fact.value, int | float):
        return unknown(fact, text, fix)
    return judged(abs(fact.value) <= wanted, fact, text, fix, show)


def matches(fact: Fact, pattern: str | None, fix: str) -> Judgement:
    """A version against ``515.65.01`` or ``515.*``."""
    if pattern is None:
        return not_asked()
    if fact.value is None:
        return unknown(fact, pattern, fix)
    return judged(fnmatch.fnmatchcase(str(fact.value), pattern), fact, pattern, fix)


def each_gpu(facts: Facts, judge: Callable[[GpuFacts], Judgement]) -> Judgement:
    """One judgement of all cards: the worst state, with what was found on each card."""
    if not facts.gpus:
        return Judgement(CheckState.NOT_APPLICABLE, "", "", facts.gpus_why or "no NVIDIA GPU found")
    return _together([(gpu.bdf, judge(gpu)) for gpu in facts.gpus])


def _together(results: Sequence[tuple[str, Judgement]]) -> Judgement:
    worst = min((j.state for _, j in results), key=_WORST.index)
    first = next(j for _, j in results if j.state is worst)
    found = {j.found for _, j in results}
    shown = found.pop() if len(found) == 1 else "; ".join(f"{bdf} {j.found or 'unknown'}" for bdf, j in results)
    affected = [bdf for bdf, j in results if j.state is worst]
    why = first.why if worst in (CheckState.OK, CheckState.NOT_APPLICABLE) else f"{', '.join(affected)}: {first.why}"
    return Judgement(worst, shown, first.wanted, why, first.fix)
