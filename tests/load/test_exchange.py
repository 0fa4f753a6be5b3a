from __future__ import annotations

from collections.abc import Sequence

import pytest

from soakd.load.exchange import Exchange
from soakd.load.failure import ErrorClass, Finish
from soakd.load.spec import Timeouts
from soakd.targets.base import find_adapter
from tests.support.fake_load import DONE, HEAD, STOP, TOKEN, Listening, a_prompt, usage

MS = 1_000_000
THOUGHT = b'data: {"choices":[{"index":0,"delta":{"reasoning_content":"hm"},"finish_reason":null}]}\n\n'


class Aborted:
    def __init__(self) -> None:
        self.times = 0

    def abort(self) -> None:
        self.times += 1


def begin(kind: str = "openai_chat", *, want_text: bool = False, text: str = "hello") -> Exchange:
    exchange = Exchange(Listening(), find_adapter(kind), a_prompt(text=text), 0, 0, 0, None, want_text)
    exchange.handle = Aborted()
    exchange.on_sent(1 * MS, True)
    return exchange


def feed(exchange: Exchange, reads: Sequence[tuple[int, bytes]], status: int = 200, kind: str = "text/event-stream",
         end: bool = True) -> Exchange:  # fmt: skip
    exchange.on_head(status, kind, reads[0][0] * MS if reads else 2 * MS)
    for at_ms, read in reads:
        exchange.on_body(read, at_ms * MS)
    if end:
        exchange.on_end((reads[-1][0] if reads else 2) * MS)
    return exchange


def test_stamps_tokens_and_gaps_of_a_plain_answer() -> None:
    exchange = feed(begin(), [(10, HEAD), (50, TOKEN), (60, TOKEN), (75, TOKEN), (76, STOP + usage(3) + DONE)])
    assert (exchange.error, exchange.finish, exchange.tokens_out, exchange.chunks) == (
        ErrorClass.NONE, Finish.STOP, 3, 3,
    )  # fmt: skip
    assert (exchange.first_byte, exchange.first_token, exchange.last_token, exchange.end) == (
        10 * MS, 50 * MS, 75 * MS, 76 * MS,
    )  # fmt: skip
    assert (sum(exchange.gaps.values()), exchange.shortest_gap, exchange.longest_gap) == (2, 10 * MS, 15 * MS)


def test_a_role_only_delta_is_not_the_first_token() -> None:
    """vLLM #3759, #15106: the role delta comes at once and must not make TTFT look like nothing."""
    null = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null},"finish_reason":null}]}\n\n'
    exchange = feed(begin(), [(2, HEAD), (3, null), (50, TOKEN), (51, STOP + DONE)])
    assert exchange.first_token == 50 * MS
    assert exchange.chunks == 1


def test_reasoning_counts_as_tokens_and_content_is_stamped_apart() -> None:
    """guidellm #737, inference-perf #559: thinking models looked as if they had answered nothing for seconds."""
    exchange = feed(begin(), [(40, THOUGHT), (50, THOUGHT), (70, TOKEN), (71, STOP + usage(3) + DONE)])
    assert (exchange.first_token, exchange.first_content, exchange.chunks) == (40 * MS, 70 * MS, 3)


def test_an_answer_of_reasoning_alone_is_an_answer_without_content() -> None:
    exchange = feed(begin(), [(40, THOUGHT), (41, STOP + usage(1) + DONE)])
    assert (exchange.error, exchange.first_content) == (ErrorClass.NONE, None)


def test_tokens_come_from_usage_and_are_unknown_without_it() -> None:
    """vLLM #7299, #8625, guidellm #75: counting chunks or re-tokenising text gives other numbers."""
    counted = feed(begin(), [(50, TOKEN), (51, TOKEN), (52, STOP + usage(9) + DONE)])
    uncounted = feed(begin(), [(50, TOKEN), (51, TOKEN), (52, STOP + DONE)])
    assert (counted.tokens_out, counted.chunks) == (9, 2)
    assert (uncounted.tokens_out, uncounted.chunks, uncounted.error) == (None, 2, ErrorClass.NONE)


def test_tokens_of_one_read_have_no_gap_and_are_seen_as_coalesced() -> None:
    exchange = begin()
    feed(exchange, [(50, TOKEN + TOKEN + TOKEN), (60, STOP + DONE)])
    assert exchange.shortest_gap == 0
    assert isinstance(exchange._listener, Listening)
    assert exchange._listener.coalesced == 2


def test_status_200_without_a_token_is_an_empty_answer() -> None:
    exchange = feed(begin(), [(10, HEAD), (11, STOP + usage(0) + DONE)])
    assert exchange.error is ErrorClass.EMPTY_ANSWER
    assert "usage says 0 tokens" in exchange.detail


def test_a_stream_that_just_ends_is_truncated() -> None:
    exchange = feed(begin(), [(10, HEAD), (50, TOKEN)])
    assert exchange.error is ErrorClass.TRUNCATED


def test_an_end_mark_without_a_finish_reason_is_an_end() -> None:
    exchange = feed(begin(), [(50, TOKEN), (51, DONE)])
    assert (exchange.error, exchange.finish) == (ErrorClass.NONE, Finish.MISSING)


def test_an_error_object_in_mid_stream_is_a_server_error_and_closes_the_connection() -> None:
    exchange = begin()
    handle = exchange.handle
    feed(exchange, [(50, TOKEN), (60, b'data: {"error":{"code":500,"message":"engine died"}}\n\n'), (61, TOKEN)])
    assert (exchange.error, exchange.detail) == (ErrorClass.SERVER_ERROR, "500: engine died")
    assert isinstance(handle, Aborted)
    assert handle.times == 1
    assert exchange.chunks == 1


@pytest.mark.parametrize(
    ("status", "error", "label"),
    [
        (429, ErrorClass.REFUSED_FOR_LOAD, "refused_for_load"),
        (503, ErrorClass.REFUSED_FOR_LOAD, "refused_for_load"),
        (404, ErrorClass.HTTP_STATUS, "http_404"),
        (500, ErrorClass.HTTP_STATUS, "http_500"),
        (302, ErrorClass.HTTP_STATUS, "http_302"),
    ],
)
def test_http_statuses_are_classed_with_the_server_s_words(status: int, error: ErrorClass, label: str) -> None:
    body = b'{"error":{"type":"not_found","message":"no model m"}}'
    exchange = feed(begin(), [(5, body)], status, "application/json")
    assert exchange.error is error
    assert exchange.error.label(exchange.status) == label
    assert exchange.detail == "not_found: no model m"


def test_an_html_answer_is_malformed() -> None:
    exchange = feed(begin(), [(5, b"<html>login</html>")], 200, "text/html; charset=utf-8")
    assert (exchange.error, exchange.detail) == (ErrorClass.MALFORMED_STREAM, "the answer is an HTML page")


def test_an_html_error_page_is_cut_short() -> None:
    exchange = feed(begin(), [(5, b"<html>" + b"x " * 100_000)], 502, "text/html")
    assert exchange.error.label(exchange.status) == "http_502"
    assert len(exchange.detail) <= 200


def test_one_json_document_instead_of_a_stream() -> None:
    plain = feed(begin(), [(5, b'{"choices":[]}')], 200, "application/json")
    error = feed(begin(), [(5, b'{"error":"overloaded"}')], 200, "application/json")
    assert (plain.error, error.error) == (ErrorClass.MALFORMED_STREAM, ErrorClass.SERVER_ERROR)
    assert error.detail == "overloaded"


def test_a_payload_that_is_no_json_is_malformed() -> None:
    exchange = feed(begin(), [(5, b"data: {oops\n\n")])
    assert exchange.error is ErrorClass.MALFORMED_STREAM
    assert "oops" in exchange.detail


LIMITS = Timeouts(connect_s=1, first_token_s=2, stall_s=3, total_s=10)


def test_timeouts_are_classed_by_phase() -> None:
    waiting = Exchange(Listening(), find_adapter("openai_chat"), a_prompt(), 0, 0, 0, None, False)
    assert checked(waiting, 999) is ErrorClass.NONE
    assert checked(waiting, 1001) is ErrorClass.CONNECT_TIMEOUT
    silent = feed(begin(), [(10, HEAD)], end=False)
    assert checked(silent, 2002) is ErrorClass.FIRST_TOKEN_TIMEOUT
    stalled = feed(begin(), [(10, TOKEN), (500, TOKEN)], end=False)
    assert checked(stalled, 3400) is ErrorClass.NONE
    assert checked(stalled, 3501) is ErrorClass.STALL_TIMEOUT
    slow = feed(begin(), [(10, TOKEN), (9900, TOKEN)], end=False)
    assert checked(slow, 10_002) is ErrorClass.TOTAL_TIMEOUT


def checked(exchange: Exchange, at_ms: int) -> ErrorClass:
    exchange.check(at_ms * MS, LIMITS)
    return exchange.error


def test_a_connection_left_open_after_the_end_mark_does_not_fail_the_answer() -> None:
    """guidellm #431: waiting for a close that never comes."""
    exchange = feed(begin(), [(10, TOKEN), (20, STOP + usage(1) + DONE)], end=False)
    exchange.check(3021 * MS, LIMITS)
    assert (exchange.error, exchange.end) == (ErrorClass.NONE, 20 * MS)


def test_an_exchange_ends_once() -> None:
    exchange = feed(begin(), [(10, TOKEN), (20, STOP + DONE)])
    exchange.on_failure(ErrorClass.RESET, "late", 30 * MS)
    exchange.cancel(40 * MS)
    exchange.on_end(50 * MS)
    assert isinstance(exchange._listener, Listening)
    assert len(exchange._listener.over) == 1
    assert exchange.error is ErrorClass.NONE


def test_text_is_kept_only_where_it_is_wanted() -> None:
    reads = [(10, THOUGHT), (20, TOKEN + TOKEN), (30, STOP + DONE)]
    wanted, unwanted = feed(begin(want_text=True), reads), feed(begin(), reads)
    assert (wanted.answer, wanted.whole_text, unwanted.whole_text) == ("xx", "hmxx", "")


def test_vllm_generate_repeats_the_text_and_counts_no_tokens() -> None:
    reads = [(10, b'{"text":["hello"]}\0'), (20, b'{"text":["hello w"]}\0{"te'), (30, b'xt":["hello wo"]}\0')]
    exchange = feed(begin("vllm_generate", want_text=True), reads, kind="")
    assert (exchange.error, exchange.first_token, exchange.chunks, exchange.tokens_out) == (
        ErrorClass.NONE, 20 * MS, 2, None,
    )  # fmt: skip
    assert exchange.answer == " wo"


def test_llama_cpp_completion_counts_tokens_by_payload_and_at_the_end() -> None:
    reads = [
        (10, b'data: {"content":"","tokens":[5],"stop":false}\n\n'),
        (20, b'data: {"content":"ab","tokens":[6,7],"stop":false}\n\n'),
        (30, b'data: {"content":"","stop":true,"tokens_predicted":3,"tokens_evaluated":9,"stop_type":"limit"}\n\n'),
    ]
    exchange = feed(begin("llamacpp"), reads)
    assert (exchange.error, exchange.finish, exchange.tokens_out, exchange.chunks) == (
        ErrorClass.NONE, Finish.LENGTH, 3, 2,
    )  # fmt: skip
    cut = feed(begin("llamacpp"), reads[:2])
    assert (cut.error, cut.tokens_out) == (ErrorClass.TRUNCATED, 3)
