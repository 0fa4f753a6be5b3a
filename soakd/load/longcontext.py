"""Long prompts under background load: time to first token, whether answers repeat, the first length that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import orjson

from soakd.load.arrivals import Closed
from soakd.load.canary import excerpt, first_difference
from soakd.load.failure import DOWN
from soakd.load.garbage import TextStats, garbage, text_stats
from soakd.load.histogram import Histogram
from soakd.load.messages import Done, Window
from soakd.load.prompts import ASSUMED, Prompt, TokenTable, build_source, make_spec
from soakd.load.single import SingleAnswer, SingleRequests
from soakd.load.spec import LoadSpec, Stage
from soakd.load.sweep import Driver

_TRUNCATED_BELOW = 0.85
_LONGEST_S = 6 * 3600.0
_ERROR_ALLOWED = 0.05


@dataclass(frozen=True, slots=True)
class LongContextPlan:
    """For each length: ``documents`` new documents, each asked ``repeats`` times (greedy, same seed).

    The first asking of a document is cold and gives TTFT; the others are compared with it. ``background`` requests
    of the usual mix are kept in flight throughout (0 for none).
    """

    lengths: tuple[int, ...] = (8_192, 16_384, 32_768, 65_536, 131_072)
    documents: int = 3
    repeats: int = 2
    answer_tokens: int = 64
    background: int = 4


@dataclass(frozen=True, slots=True)
class LengthResult:
    """One length. ``identical`` is None when there was no pair of answers to compare. TTFT is of cold prompts,
    ``warm_ttft_s`` the median of repeats. ``failure`` says how it failed, empty when it did not."""

    tokens: int
    asked: int
    completed: int
    ttft_s: tuple[float, ...] = ()
    warm_ttft_s: float | None = None
    prompt_tokens: int | None = None
    identical: bool | None = None
    difference: str = ""
    garbled: tuple[str, ...] = ()
    failure: str = ""

    @property
    def ttft_max_s(self) -> float | None:
        """With so few requests a P95 would be a guess: the largest is given."""
        return max(self.ttft_s, default=None)


@dataclass(frozen=True, slots=True)
class LongContextResult:
    """``first_failing`` is the shortest length that failed, ``how`` says how. ``background_p95_s`` is of E2E."""

    lengths: tuple[LengthResult, ...]
    first_failing: int | None
    how: str
    background_completed: int = 0
    background_failed: int = 0
    background_p95_s: float | None = None

    def to_json(self) -> bytes:
        return orjson.dumps(asdict(self))


Ask = Callable[[Prompt], Awaitable[SingleAnswer]]
Probe = tuple[int, int, Prompt, SingleAnswer]
"""(document, repeat, prompt, answer)."""


async def run_long_context(
    plan: LongContextPlan, base: LoadSpec, driver: Driver | None, on_length: Callable[[LengthResult], Awaitable[None]]
) -> LongContextResult:
    """Ask every length in turn, until one at which nothing completes. ``base`` gives target, prompts and timeouts.

    ``driver`` runs the background load (None for none). Raises what it raises when it can't be started.
    """
    background = _Background()
    task: asyncio.Task[None] | None = None
    if driver is not None and plan.background:
        stage = Stage("background", Closed(plan.background), _LONGEST_S)
        await driver.start(replace(base, stages=(stage,), canary=None, records=False))
        task = asyncio.create_task(background.listen(driver))
    try:
        async with SingleRequests(base.target, base.timeouts, base.transport) as ask:
            lengths = await ask_lengths(plan, base.prompts.table, base.seed, ask, on_length)
    finally:
        if driver is not None and task is not None:
            try:
                await driver.stop()
                await task
            finally:
                await driver.close()
    return background.joined(summarise(lengths))


async def ask_lengths(
    plan: LongContextPlan, table: TokenTable, seed: int, ask: Ask, on_length: Callable[[LengthResult], Awaitable[None]]
) -> tuple[LengthResult, ...]:
    """One request at a time; nothing is cut to the server's context, because its answer to what is too long counts."""
    results: list[LengthResult] = []
    normal: list[TextStats] = []
    for tokens in sorted(plan.lengths):
        probes: list[Probe] = []
        for document, repeat, prompt in _prompts(plan, tokens, table, seed):
            answer = await ask(prompt)
            probes.append((document, repeat, prompt, answer))
            if answer.failed and answer.error in DOWN:
                break
        result = judge_length(tokens, probes, table, normal)
        normal += [text_stats(p[3].text) for p in probes if not p[3].failed]
        results.append(result)
        await on_length(result)
        if not result.completed:
            break
    return tuple(results)


def _prompts(plan: LongContextPlan, tokens: int, table: TokenTable, seed: int) -> Sequence[tuple[int, int, Prompt]]:
    options: Mapping[str, object] = {
        "tokens": [tokens],
        "repeats": plan.repeats,
        "answer": {"low": plan.answer_tokens, "high": plan.answer_tokens},
        "request": {"sampling": {"temperature": 0, "seed": 1}},
    }
    source = build_source(make_spec("long_documents", options, table), seed + tokens)
    return [(d, r, source.take()) for d in range(plan.documents) for r in range(plan.repeats)]


def judge_length(
    tokens: int, probes: Sequence[Probe], table: TokenTable = ASSUMED, normal: Sequence[TextStats] = ()
) -> LengthResult:
    """What the answers to one length say, beside the ``normal`` answers to shorter prompts. Pure."""
    good = [p for p in probes if not p[3].failed]
    cold = [p[3].ttft_s for p in good if p[1] == 0 and p[3].ttft_s is not None]
    warm = sorted(p[3].ttft_s for p in good if p[1] > 0 and p[3].ttft_s is not None)
    counted = min((p[3].prompt_tokens for p in good if p[3].prompt_tokens is not None), default=None)
    identical, difference = _compared(good)
    return LengthResult(
        tokens,
        asked=len(probes),
        completed=len(good),
        ttft_s=tuple(cold),
        warm_ttft_s=warm[len(warm) // 2] if warm else None,
        prompt_tokens=counted,
        identical=identical,
        difference=difference,
        garbled=_garbled(good, normal),
        failure=_failure(probes, counted, table),
    )


def _compared(good: Sequence[Probe]) -> tuple[bool | None, str]:
    """Each document's answers with its first one."""
    first: dict[int, str] = {}
    pairs = 0
    for document, _, _, answer in good:
        if document not in first:
            first[document] = answer.text
            continue
        pairs += 1
        expected = first[document]
        at = first_difference(expected, answer.text)
        if at is not None:
            sides = f"{excerpt(expected, at)} became {excerpt(answer.text, at)}"
            return False, f"document {document + 1} differs from character {at}: {sides}"
    return (True, "") if pairs else (None, "")


def _garbled(good: Sequence[Probe], normal: Sequence[TextStats]) -> tuple[str, ...]:
    """Answers that are unlike those to shorter prompts."""
    found = ((p[0], reason) for p in good for reason in garbage(text_stats(p[3].text), normal))
    return tuple(dict.fromkeys(f"document {document + 1}: {reason}" for document, reason in found))


def _failure(probes: Sequence[Probe], counted: int | None, table: TokenTable) -> str:
    failed = [p[3] for p in probes if p[3].failed]
    if failed:
        first = failed[0]
        gone = "the server was gone: " if first.error in DOWN else ""
        detail = f" ({first.detail})" if first.detail else ""
        return f"{len(failed)} of {len(probes)} requests failed: {gone}{first.error_label}{detail}"
    expected = min((p[2].expected_tokens for p in probes), default=0)
    allowed = _TRUNCATED_BELOW - (table.error_ratio or _ERROR_ALLOWED)
    if counted is not None and counted < expected * allowed:
        return f"the prompt was cut: the server counted {counted} tokens of about {expected}"
    return ""


def summarise(lengths: Sequence[LengthResult]) -> LongContextResult:
    """The first length that failed. Pure."""
    failing = next((r for r in lengths if r.failure), None)
    return LongContextResult(tuple(lengths), failing.tokens if failing else None, failing.failure if failing else "")


class _Background:
    """Listens to the background load."""

    def __init__(self) -> None:
        self._e2e = Histogram()
        self._completed = self._failed = 0

    async def listen(self, driver: Driver) -> None:
        async for message in driver.messages():
            if isinstance(message, Window):
                self._e2e.merge(message.histograms.e2e)
            elif isinstance(message, Done):
                self._completed, self._failed = message.total.counts.completed, message.total.counts.failed

    def joined(self, result: LongContextResult) -> LongContextResult:
        return replace(
            result,
            background_completed=self._completed,
            background_failed=self._failed,
            background_p95_s=self._e2e.quantile_s(0.95),
        )
