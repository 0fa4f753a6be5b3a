"""Conversations that keep their history: each turn is the last one, the server's answer to it, and something new."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from soakd.load.prompts import Message, Prompt

_MAX_OPEN = 8192
_TRIES = 2
_NO_ANSWER = "(no answer)"


@dataclass(frozen=True, slots=True)
class Turn:
    """What a turn adds to the history, with its calibrated length (message overhead included)."""

    messages: tuple[Message, ...]
    tokens: float


@dataclass(frozen=True, slots=True)
class Conversation:
    """``turn`` counts from 1; ``tokens`` is the history's length, the last turn included."""

    session: int
    turn: int
    messages: tuple[Message, ...]
    tokens: float
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Rules:
    """``next_turn`` gives what the conversation goes on with, None at its end; ``tag`` names the class of a turn."""

    opening: Callable[[], Turn]
    next_turn: Callable[[Conversation], Turn | None]
    tag: Callable[[Conversation], str]
    answer_cap: Callable[[], int]
    tokens_of: Callable[[str], float]
    message_tokens: float
    template_tokens: float
    longest: float | None
    extra: bytes


class ConversationSource:
    """A prompt source over open conversations: the one that waits longest goes on, a new one starts when none waits.

    A failed turn is asked once more, then its conversation ends. Memory: as many histories as requests are in flight,
    plus those that wait (never more than were in flight at once).
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._ready: deque[Conversation] = deque()
        self._out: OrderedDict[int, Conversation] = OrderedDict()
        self._sessions = 0
        self.abandoned = 0

    def take(self) -> Prompt:
        conversation = self._ready.popleft() if self._ready else self._begin()
        self._out[conversation.session] = conversation
        if len(self._out) > _MAX_OPEN:
            self._out.popitem(last=False)
            self.abandoned += 1
        return Prompt(
            conversation.messages,
            self._rules.answer_cap(),
            self._rules.tag(conversation),
            round(conversation.tokens),
            self._rules.extra,
            conversation.session,
            cold=conversation.turn == 1 and not conversation.failures,
        )

    def done(self, prompt: Prompt, answer: str | None) -> None:
        if prompt.session is None:
            return
        conversation = self._out.pop(prompt.session, None)
        if conversation is None:
            return
        if answer is None:
            self._failed(conversation)
            return
        spoken = min(self._rules.tokens_of(answer), prompt.max_tokens) + self._rules.message_tokens
        answered = Conversation(
            conversation.session,
            conversation.turn,
            (*conversation.messages, Message("assistant", answer or _NO_ANSWER)),
            conversation.tokens + spoken,
        )
        turn = self._rules.next_turn(answered)
        if turn is None:
            return
        tokens = answered.tokens + turn.tokens
        if self._rules.longest is None or tokens <= self._rules.longest:
            messages = (*answered.messages, *turn.messages)
            self._ready.append(Conversation(answered.session, answered.turn + 1, messages, tokens))

    def _begin(self) -> Conversation:
        self._sessions += 1
        turn = self._rules.opening()
        return Conversation(self._sessions, 1, turn.messages, turn.tokens + self._rules.template_tokens)

    def _failed(self, conversation: Conversation) -> None:
        if conversation.failures + 1 < _TRIES:
            again = replace(conversation, failures=conversation.failures + 1)
            self._ready.append(again)
        else:
            self.abandoned += 1
