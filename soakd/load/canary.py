"""Canaries: deterministic prompts asked again and again, whose answers must not change.

The first answers, taken under load, are the reference. Where they already vary (batching changes the order of
floating-point sums, and a near tie falls the other way), exactness can't be asked of that server: it is said, and
only garbage is judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import orjson

from soakd.load.garbage import TextStats, garbage, text_stats
from soakd.load.prompts import Message, Prompt

TAG = "canary"
_EXCERPT = 40
_QUESTIONS = (
    "Count from one to twenty in words, separated by commas.",
    "Write the alphabet in capital letters, one letter after the other.",
    "A customer asks how to return a damaged parcel. Answer in three short sentences.",
    "List the months of the year with the number of days of each.",
    "Explain in two sentences why the sky is blue.",
    "Write a Python function that adds two numbers, with a docstring.",
    "Translate into French: the train leaves at noon from platform four.",
    "Name the eight planets from the Sun outwards, with one fact about each.",
)
CALIBRATING, EXACT, GARBAGE_ONLY = "calibrating", "exact", "garbage-only"


@dataclass(frozen=True, slots=True)
class CanaryPrompt:
    id: str
    text: str


@dataclass(frozen=True, slots=True)
class CanarySpec:
    """Every ``interval_s`` a round: each prompt once. The first ``calibration_rounds`` rounds give the reference."""

    prompts: tuple[CanaryPrompt, ...]
    max_tokens: int = 48
    interval_s: float = 60.0
    calibration_rounds: int = 3
    extra: str = ""

    def as_prompts(self) -> tuple[Prompt, ...]:
        """What to send in a round, in order; the tag of each is ``canary:ID``."""
        return tuple(
            Prompt((Message("user", p.text),), self.max_tokens, f"{TAG}:{p.id}", 0, self.extra.encode())
            for p in self.prompts
        )

    def to_json(self) -> bytes:
        return orjson.dumps(asdict(self))

    @classmethod
    def from_json(cls, raw: bytes | str) -> CanarySpec:
        """Raises ValueError when the text is not a specification."""
        try:
            data = orjson.loads(raw)
            return cls(**{**data, "prompts": tuple(CanaryPrompt(**p) for p in data["prompts"])})
        except (KeyError, TypeError, orjson.JSONDecodeError) as error:
            raise ValueError(f"not a canary specification: {error}") from None


def plan_canary(
    duration_s: float, *, target_kind: str = "openai", prompts: int = 3, max_tokens: int = 48, interval_s: float = 60.0,
    extra: Mapping[str, object] | None = None,
) -> CanarySpec:  # fmt: skip
    """A specification whose rounds fit the run: in a short one they come oftener, so that three are judged at least.

    Greedy with a fixed seed; llama.cpp is told not to reuse its prompt cache, which would change its batches.
    """
    rounds = 3 if duration_s >= 6 * interval_s else 2
    fields: dict[str, object] = {"temperature": 0, "seed": 1}
    if target_kind == "llamacpp":
        fields["cache_prompt"] = False
    fields |= extra or {}
    chosen = []
    for i in range(prompts):
        again = f" (Question {i + 1}.)" if i >= len(_QUESTIONS) else ""
        chosen.append(CanaryPrompt(f"c{i + 1}", _QUESTIONS[i % len(_QUESTIONS)] + again))
    every = min(interval_s, duration_s / (rounds + 4))
    packed = orjson.dumps(fields, option=orjson.OPT_SORT_KEYS).decode()
    return CanarySpec(tuple(chosen), max_tokens, every, rounds, packed)


@dataclass(frozen=True, slots=True)
class CanaryAnswer:
    """One complete answer: all text of it (reasoning first), its tokens and mean log-probability where known."""

    prompt_id: str
    at_ns: int
    text: str
    tokens: tuple[str, ...] = ()
    mean_logprob: float | None = None


@dataclass(frozen=True, slots=True)
class CanaryResult:
    """``matched`` is None while exactness is not judged. ``first_difference`` counts characters from 0,
    ``first_difference_token`` tokens where they are known; ``expected`` and ``found`` are the text around it."""

    prompt_id: str
    at_ns: int
    mode: str
    matched: bool | None
    first_difference: int | None = None
    first_difference_token: int | None = None
    garbage: tuple[str, ...] = ()
    expected: str = ""
    found: str = ""

    @property
    def bad(self) -> bool:
        return self.matched is False or bool(self.garbage)

    @property
    def what(self) -> str:
        """One line for an event."""
        parts = []
        if self.matched is False:
            parts.append(f"differs from character {self.first_difference}: {self.expected} became {self.found}")
        if self.garbage:
            parts.append("; ".join(self.garbage) + (f": {self.found}" if self.matched is not False else ""))
        return f"canary {self.prompt_id}: {', '.join(parts) or 'as expected'}"


@dataclass(frozen=True, slots=True)
class CanarySummary:
    """Totals. ``identical_ratio`` is None unless exactness is judged; ``note`` states mode and tolerance."""

    mode: str
    answers: int
    judged: int
    matched: int
    mismatched: int
    garbled: int
    identical_ratio: float | None
    note: str
    first_bad: CanaryResult | None = None
    failed: int = 0
    """Questions that got no whole answer."""


@dataclass(slots=True)
class _Reference:
    texts: list[str] = field(default_factory=list)
    tokens: tuple[str, ...] = ()
    stats: list[TextStats] = field(default_factory=list)


class CanaryJudge:
    """Compares answers with the first ones. Holds a few answers a prompt, whatever the length of the run."""

    def __init__(self, spec: CanarySpec) -> None:
        self._rounds = max(spec.calibration_rounds, 1)
        self._references = {p.id: _Reference() for p in spec.prompts}
        self._answers = self._matched = self._mismatched = self._garbled = self._judged = self._failed = 0
        self._first_bad: CanaryResult | None = None

    @property
    def mode(self) -> str:
        """``calibrating`` until every prompt has its first answers, then ``exact`` or ``garbage-only``."""
        if any(len(set(r.texts)) > 1 for r in self._references.values()):
            return GARBAGE_ONLY
        return EXACT if all(len(r.texts) >= self._rounds for r in self._references.values()) else CALIBRATING

    def judge(self, answer: CanaryAnswer) -> CanaryResult:
        """One more answer, in order of time. Raises KeyError for a prompt that is not of the specification."""
        reference = self._references[answer.prompt_id]
        stats = text_stats(answer.text, answer.mean_logprob)
        self._answers += 1
        if len(reference.texts) < self._rounds:
            wrong = garbage(stats, reference.stats)
            if not wrong:
                reference.texts.append(answer.text)
                reference.tokens = reference.tokens or answer.tokens
                reference.stats.append(stats)
                return CanaryResult(answer.prompt_id, answer.at_ns, CALIBRATING, None)
            return self._count(self._compared(answer, reference, None, wrong))
        wrong = garbage(stats, [s for r in self._references.values() for s in r.stats])
        matched = answer.text == reference.texts[0] if self.mode == EXACT else None
        if matched:
            wrong = ()
        return self._count(self._compared(answer, reference, matched, wrong))

    def failed(self) -> None:
        """A question failed: no answer, so nothing to judge. The load's own figures tell of the server's failures."""
        self._failed += 1

    def _count(self, result: CanaryResult) -> CanaryResult:
        self._judged += 1
        self._matched += result.matched is True
        self._mismatched += result.matched is False
        self._garbled += bool(result.garbage)
        if result.bad and self._first_bad is None:
            self._first_bad = result
        return result

    def _compared(
        self, answer: CanaryAnswer, reference: _Reference, matched: bool | None, wrong: tuple[str, ...]
    ) -> CanaryResult:
        expected = reference.texts[0]
        at = first_difference(expected, answer.text)
        mode = EXACT if matched is not None else self.mode
        if at is None or (matched is None and not wrong):
            return CanaryResult(answer.prompt_id, answer.at_ns, mode, matched, garbage=wrong)
        token = first_difference(reference.tokens, answer.tokens) if reference.tokens and answer.tokens else None
        shown = (excerpt(expected, at), excerpt(answer.text, at))
        return CanaryResult(answer.prompt_id, answer.at_ns, mode, matched, at, token, wrong, *shown)

    def summary(self) -> CanarySummary:
        mode = self.mode
        judged_exactly = self._matched + self._mismatched
        ratio = self._matched / judged_exactly if mode == EXACT and judged_exactly else None
        return CanarySummary(
            mode, self._answers, self._judged, self._matched, self._mismatched, self._garbled, ratio, self._note(mode),
            self._first_bad, self._failed,
        )  # fmt: skip

    def _note(self, mode: str) -> str:
        if mode == CALIBRATING:
            lost = f" ({self._failed} questions failed)" if self._failed else ""
            return f"{self._answers} canary answers{lost}: too few to be a reference, nothing was compared"
        if mode == EXACT:
            return f"the first {self._rounds} answers to each canary, under load, were identical: any change counts"
        varied = [r.texts for r in self._references.values() if len(set(r.texts)) > 1]
        agree = min(first_difference(texts[0], t) or 0 for texts in varied for t in texts if t != texts[0])
        return (
            f"greedy answers of this server vary under load ({len(varied)} of {len(self._references)} canaries, "
            f"from character {agree} on): exactness is not judged, only garbage is"
        )


def first_difference(a: str | tuple[str, ...], b: str | tuple[str, ...]) -> int | None:
    """The first place where two sequences differ, None when they are equal; a shorter one differs at its end."""
    if a == b:
        return None
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))


def excerpt(text: str, at: int) -> str:
    """The text around a place, quoted, with what can't be printed escaped."""
    start, end = max(0, at - _EXCERPT), at + _EXCERPT
    shown = ascii(text[start:end])[1:-1] if not text[start:end].isprintable() else text[start:end]
    return f"“{'…' if start else ''}{shown}{'…' if end < len(text) else ''}”"
