"""The simulated model's language: counts that add up, answers that belong to their prompt, corruption that shows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from soakd.rehearsal.scenarios import Garble
from soakd.rehearsal.text import answer, garbled, tokenize, tokenize_chat

GARBLE = Garble(at_fraction=0.5, garbage_fraction=0.6)


@given(st.text(max_size=60), st.integers(0, 5), st.integers(1, 300))
def test_an_answer_has_as_many_tokens_as_pieces(prompt: str, seed: int, most: int) -> None:
    pieces, reason = answer(prompt, seed, most)
    assert 1 <= len(pieces) <= most
    assert len(tokenize("".join(pieces))) == len(pieces)
    assert reason == ("stop" if len(pieces) < most else reason)


@given(st.text(max_size=200))
def test_tokens_grow_with_the_text_and_words_cost_one(text: str) -> None:
    assert len(tokenize(text)) <= len(tokenize(text + " more words"))
    assert len(tokenize_chat([("user", text)])) == len(tokenize(text)) + 7


def test_one_prompt_has_one_answer() -> None:
    assert answer("hello", 0, 64) == answer("hello", 0, 64)
    assert answer("hello", 0, 64) != answer("hello", 1, 64)
    assert answer("hello", 0, 64) != answer("hallo", 0, 64)


def test_an_exact_length_is_kept() -> None:
    pieces, reason = answer("hello", 0, 1000, exactly=True)
    assert (len(pieces), reason) == (1000, "stop")
    assert answer("hello", 0, 10)[1] == "length"


def test_corruption_comes_in_two_stages() -> None:
    pieces, _ = answer("hello", 0, 48)
    assert garbled(pieces, None, 0.9) == pieces
    assert garbled(pieces, GARBLE, 0.49) == pieces
    changed = garbled(pieces, GARBLE, 0.5)
    same = sum(a == b for a, b in zip(pieces, changed, strict=True))
    assert len(pieces) / 2 < same < len(pieces)
    assert set(garbled(pieces, GARBLE, 0.6)) == {"!"}
