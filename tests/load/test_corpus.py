from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.load.corpus import Writer, nonce, pieces
from soakd.load.prompts import ASSUMED, TokenTable

BYTES_TO_A_TOKEN = 4


def writer(table: TokenTable = ASSUMED, seed: int = 1, shard: int = 0, of: int = 1) -> Writer:
    return Writer(table, seed, shard, of)


def test_lines_are_distinct_and_end_where_tokenizers_split() -> None:
    lines = pieces()
    assert len(set(lines)) == len(lines) > 200
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in lines)


@pytest.mark.parametrize("wanted", [64, 200, 512, 2048, 10_000, 131_072])
def test_text_is_as_long_as_wanted(wanted: int) -> None:
    text = writer().distinct(wanted)
    assert wanted - 2 <= text.tokens <= wanted
    nonces = text.text.count(" is the case.\n")
    body = len(text.text.encode()) - nonces * len(nonce(0))
    assert body / BYTES_TO_A_TOKEN + nonces * ASSUMED.nonce_tokens == pytest.approx(text.tokens, abs=1)


def test_measured_lines_win_over_the_ratio() -> None:
    counted = TokenTable("endpoint", 0.25, 0, 0, 16, piece_tokens=tuple(10.0 for _ in pieces()))
    text = writer(counted).prose(100)
    assert text.tokens == 100
    assert text.text.count("\n") == 10


@given(st.floats(min_value=0, max_value=6000))
def test_prose_is_never_longer_than_its_room(room: float) -> None:
    text = writer().prose(room)
    assert text.tokens <= room
    assert text.tokens > room - 2 or room < 2


def test_no_two_texts_of_a_run_begin_alike() -> None:
    shards = [writer(seed=3, shard=i, of=3) for i in range(3)]
    starts = [w.distinct(40).text[:12] for w in shards for _ in range(2000)]
    assert len(set(starts)) == len(starts)
    # a prefix cache works in blocks of 16 tokens: neighbours must part in their first digits
    assert len({s[:4] for s in starts[:50]}) > 40


def test_same_seed_same_texts_other_seed_others() -> None:
    a, b, c = (writer(seed=s) for s in (5, 5, 6))
    first = [a.distinct(n).text for n in (50, 500, 5000)]
    assert first == [b.distinct(n).text for n in (50, 500, 5000)]
    assert all(x != y for x, y in zip(first, [c.distinct(n).text for n in (50, 500, 5000)], strict=True))


def test_no_room_gives_no_prose_and_no_tokens() -> None:
    assert writer().prose(0).text == ""
    assert writer().prose(-5).tokens == 0


@given(st.integers(min_value=0, max_value=10**13), st.integers(min_value=1, max_value=10**6))
def test_nonces_of_different_numbers_differ(number: int, further: int) -> None:
    assert nonce(number) != nonce(number + further)
    assert len(nonce(number)) == len(nonce(0))


def test_texts_of_one_length_vary_in_their_bodies() -> None:
    w = writer()
    bodies = [w.distinct(400).text.split("\n", 1)[1] for _ in range(20)]
    assert all(a != b for a, b in itertools.combinations(bodies, 2))
