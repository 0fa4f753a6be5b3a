from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.load.failure import ErrorClass, Finish
from soakd.load.records import RETRIED, SIZE, USAGE_MISSING, Record, cut_tag, decode, pack

RECORD = Record(
    1_700_000_000_000_000_000, 0.001, 0.04, 0.05, 0.06, 1.5, 0.02, 100, 64, 0, None, 64, 200, 3, ErrorClass.NONE,
    Finish.LENGTH, 1, 2, USAGE_MISSING | RETRIED, "turn-3",
)  # fmt: skip


def test_a_record_comes_back_as_it_was() -> None:
    failed = dataclasses.replace(
        RECORD, sent_s=None, first_byte_s=None, first_token_s=None, first_content_s=None, tokens_in=None,
        tokens_out=None, max_gap_s=None, error=ErrorClass.CONNECT, finish=Finish.MISSING, status=0,
    )  # fmt: skip
    assert list(decode(pack(RECORD) + pack(failed))) == [RECORD, failed]


def test_a_record_is_about_a_hundred_bytes() -> None:
    assert len(pack(RECORD)) == SIZE <= 100


def test_times_beyond_the_range_are_capped_not_wrapped() -> None:
    (record,) = decode(pack(dataclasses.replace(RECORD, last_s=1e9)))
    assert record.last_s == pytest.approx(4294.967294)


def test_a_torn_blob_is_refused() -> None:
    with pytest.raises(ValueError, match="whole number of records"):
        list(decode(pack(RECORD)[:-1]))


@given(st.text(max_size=40))
def test_a_long_tag_is_cut_between_characters(tag: str) -> None:
    tag = tag.replace("\0", "")
    kept = cut_tag(tag)
    assert len(kept) <= 16
    assert tag.startswith(kept.decode())
