"""The simulated model's language: a tokenizer whose counts can be foretold, and answers that belong to their prompt."""

from __future__ import annotations

import hashlib
import random
import re
import zlib
from collections.abc import Iterable

from soakd.rehearsal.scenarios import Garble

_PIECE = re.compile(r"\s?\w{1,8}|\s?[^\w\s]|\s")
_SENTENCES = (
    "hello thanks your order was shipped on monday and should arrive within two days please check the number "
    "in our mail we are sorry for the delay a refund takes five working days to reach account if router lights "
    "stay red restart it wait one minute then try again contract can be renewed online or by phone is there "
    "anything else that i help you with today team will call back tomorrow morning"
)
_WORDS = tuple(_SENTENCES.split())
_OTHER_WORDS = ("purple", "seven", "ladder", "under", "cloud", "fork")
_MESSAGE_START, _MESSAGE_END, _ANSWER_START = (151_644, 151_646), (151_645, 151_647), (151_644, 151_648, 151_647)
_SHORTEST, _LONGEST = 24, 220
_CHANGED_ONE_IN = 6


def tokenize(text: str) -> list[int]:
    """Token ids: pieces of up to eight letters, or single marks."""
    return [zlib.crc32(piece.encode()) % 150_000 for piece in _PIECE.findall(text)]


def tokenize_chat(messages: Iterable[tuple[str, str]]) -> list[int]:
    """Token ids of (role, content) pairs with the chat template around them; the template's own are above 150,000."""
    ids: list[int] = []
    for _, content in messages:
        ids += [*_MESSAGE_START, *tokenize(content), *_MESSAGE_END]
    return [*ids, *_ANSWER_START]


def answer(prompt: str, seed: int, most: int, exactly: bool = False) -> tuple[list[str], str]:
    """The pieces (a token each) that answer a prompt, and the finish reason: ``stop`` or ``length``.

    ``exactly`` gives ``most`` pieces (what ``ignore_eos`` asks for). One prompt and seed give one answer.
    """
    rng = random.Random(hashlib.blake2b(f"{seed}\n{prompt}".encode(), digest_size=16).digest())
    own = most if exactly else rng.randint(_SHORTEST, _LONGEST)
    words = rng.choices(_WORDS, k=min(own, most))
    return [word if i == 0 else f" {word}" for i, word in enumerate(words)], "stop" if own <= most else "length"


def garbled(pieces: list[str], garble: Garble | None, fraction: float) -> list[str]:
    """The answer as a server with corrupted weights gives it at that point of the run; same number of pieces."""
    if garble is None or fraction < garble.at_fraction:
        return pieces
    if fraction >= garble.garbage_fraction:
        return ["!"] * len(pieces)
    return [
        f" {_OTHER_WORDS[i % len(_OTHER_WORDS)]}" if i % _CHANGED_ONE_IN == 2 else piece
        for i, piece in enumerate(pieces)
    ]
