from __future__ import annotations

import itertools

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.load.sse import EventTooLarge, Framer, JsonLinesParser, SseParser

PAYLOADS = st.lists(
    st.binary(min_size=1, max_size=60).map(lambda raw: raw.replace(b"\n", b"n").replace(b"\r", b"r")),
    min_size=1, max_size=8,
)  # fmt: skip


def cut(body: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(body), *(place % (len(body) + 1) for place in places)})
    return [body[a:b] for a, b in itertools.pairwise(edges)]


def feed_often(parser: Framer, read: bytes) -> None:
    for _ in range(20):
        parser.feed(read)


def parse(reads: list[bytes]) -> list[bytes]:
    parser = SseParser()
    return [payload for read in reads for payload in parser.feed(read)] + parser.finish()


@given(PAYLOADS, st.lists(st.integers(0, 10_000), max_size=40), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_any_split_of_the_bytes_gives_the_same_payloads(payloads: list[bytes], places: list[int], end: bytes) -> None:
    body = b"".join(b"data: " + payload + end * 2 for payload in payloads)
    assert parse(cut(body, places)) == payloads


@given(PAYLOADS, st.lists(st.integers(0, 10_000), max_size=40))
def test_comments_other_fields_and_a_byte_order_mark_do_not_matter(payloads: list[bytes], places: list[int]) -> None:
    body = b"\xef\xbb\xbf: hello\n\n" + b"".join(
        b": keep-alive\nid: 7\nretry: 5\nevent: message\ndata:" + b" " + payload + b"\n\n" for payload in payloads
    )
    assert parse(cut(body, places)) == payloads


@given(PAYLOADS, st.lists(st.integers(0, 10_000), max_size=20))
def test_reads_of_whole_events_and_torn_ones_mix(payloads: list[bytes], places: list[int]) -> None:
    whole = [b"data: " + payload + b"\n\n" for payload in payloads]
    reads = [*whole, *cut(b"".join(whole), places), b"".join(whole), *whole]
    assert parse(reads) == payloads * 4


@given(st.binary(max_size=400), st.lists(st.integers(0, 10_000), max_size=20))
def test_garbage_never_raises_and_never_depends_on_the_split(body: bytes, places: list[int]) -> None:
    assert parse(cut(body, places)) == parse([body])


def test_several_events_in_one_read() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\n\n") == [b"a"]
    assert parser.feed(b"data: b\n\ndata: c\n\ndata: d\n\n") == [b"b", b"c", b"d"]


def test_several_data_lines_make_one_payload() -> None:
    assert parse([b"data: one\ndata: two\n\n"]) == [b"one\ntwo"]


def test_a_first_event_with_an_event_field_does_not_hide_the_next() -> None:
    parser = SseParser()
    parser.feed(b"data: a\n\n")
    assert parser.feed(b"data: b\nevent: x\n\ndata: c\n\n") == [b"b", b"c"]


def test_carriage_return_and_line_feed_split_over_two_reads_end_one_line() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\r") == []
    assert parser.feed(b"\n\r") == [b"a"]
    assert parser.feed(b"\ndata: b\r\n\r\n") == [b"b"]


def test_a_line_end_split_over_two_reads_does_not_end_the_event() -> None:
    assert parse([b"data: one\r", b"\ndata: two\r\n\r\n"]) == [b"one\ntwo"]


def test_an_event_far_above_64_kib_comes_whole() -> None:
    big = b"x" * 3_000_000
    body = b"data: " + big + b"\n\n"
    assert parse([body[i : i + 65_536] for i in range(0, len(body), 65_536)]) == [big]


@pytest.mark.parametrize("read", [b"x" * 1000, b"data: " + b"x" * 993 + b"\n", b"data: x\n" * 200])
def test_an_event_above_the_cap_is_refused_before_it_fills_memory(read: bytes) -> None:
    parser = SseParser(limit=5000)
    with pytest.raises(EventTooLarge):
        feed_often(parser, read)


def test_many_small_events_never_reach_the_cap() -> None:
    parser = SseParser(limit=100)
    assert sum(len(parser.feed(b"data: 12345678\n\nda") + parser.feed(b"ta: 9\n\n")) for _ in range(100)) == 200


def test_an_end_mark_without_its_line_end_counts() -> None:
    assert parse([b"data: a\n\ndata: [DONE]"]) == [b"a", b"[DONE]"]


def test_a_torn_last_event_is_not_a_payload() -> None:
    assert parse([b'data: a\n\ndata: {"cho']) == [b"a"]


@pytest.mark.parametrize(
    "body",
    [
        b'error: {"code":500,"message":"slot unavailable"}\n\n',
        b'event: error\ndata: {"code":500,"message":"slot unavailable"}\n\n',
        b'event: error\r\ndata: {"error":{"code":500,"message":"slot unavailable"}}\r\n\r\n',
    ],
)
def test_error_events_come_as_error_objects(body: bytes) -> None:
    (payload,) = parse([body])
    assert orjson.loads(payload)["error"] == {"code": 500, "message": "slot unavailable"}


def test_an_error_event_of_plain_text() -> None:
    assert parse([b"event: error\ndata: out of memory\n\n"]) == [b'{"error":"out of memory"}']


@given(
    st.lists(st.dictionaries(st.text(max_size=5), st.integers(-9, 9), max_size=3), min_size=1, max_size=5),
    st.lists(st.integers(0, 10_000), max_size=20),
    st.sampled_from([b"\0", b"\n"]),
)
def test_json_documents_in_any_split(documents: list[dict[str, int]], places: list[int], end: bytes) -> None:
    parser = JsonLinesParser()
    reads = cut(b"".join(orjson.dumps(d) + end for d in documents), places)
    found = [payload for read in reads for payload in parser.feed(read)] + parser.finish()
    assert [orjson.loads(payload) for payload in found] == documents


def test_a_json_document_above_the_cap_is_refused() -> None:
    parser = JsonLinesParser(limit=1000)
    with pytest.raises(EventTooLarge):
        feed_often(parser, b"x" * 100)
