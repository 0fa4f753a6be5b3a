from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.errors import TargetError
from soakd.load.prompts import Message, Prompt
from soakd.targets.base import KINDS, Carries, Delta, MalformedPayload, Usage, find_adapter

PROMPT = Prompt((Message("system", "be kind"), Message("user", "hi")), 32, "short", 9, b'{"temperature":0,"seed":7}')


@pytest.mark.parametrize("kind", KINDS)
def test_every_adapter_makes_a_streaming_body_with_the_prompt_s_fields_on_top(kind: str) -> None:
    adapter = find_adapter(kind)
    body = orjson.loads(adapter.body("m", PROMPT, b'{"seed":1,"top_p":0.9}'))
    assert (body["stream"], body["seed"], body["top_p"], body["temperature"]) == (True, 7, 0.9, 0)
    assert adapter.kind == kind
    assert adapter.path.startswith("/")


def test_chat_asks_for_usage_and_keeps_the_roles() -> None:
    body = orjson.loads(find_adapter("openai-chat").body("m", PROMPT, b""))
    assert body["messages"] == [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}]
    assert body["stream_options"] == {"include_usage": True}
    assert (body["model"], body["max_tokens"]) == ("m", 32)


def test_a_field_set_to_null_is_left_out() -> None:
    body = orjson.loads(find_adapter("openai_chat").body("m", PROMPT, b'{"stream_options":null}'))
    assert "stream_options" not in body


def test_plain_text_protocols_join_the_messages() -> None:
    assert orjson.loads(find_adapter("openai_completions").body("m", PROMPT, b""))["prompt"] == "be kind\n\nhi"
    generate = orjson.loads(find_adapter("vllm_generate").body("m", PROMPT, b""))
    assert "model" not in generate
    assert orjson.loads(find_adapter("llamacpp").body("m", PROMPT, b""))["n_predict"] == 32


@pytest.mark.parametrize("kind", ["nonsense", "base", "openai_wire", "../x", ""])
def test_an_unknown_kind_is_a_clear_error(kind: str) -> None:
    with pytest.raises(TargetError, match="unknown kind of target"):
        find_adapter(kind)


def chat(delta: object, finish: str | None = None, **more: object) -> bytes:
    return orjson.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more})


@pytest.mark.parametrize("want_text", [True, False])
@pytest.mark.parametrize(
    ("delta", "carries"),
    [
        ({"role": "assistant", "content": ""}, Carries.NOTHING),
        ({"role": "assistant", "content": None}, Carries.NOTHING),
        ({}, Carries.NOTHING),
        (None, Carries.NOTHING),
        ({"content": "x"}, Carries.CONTENT),
        ({"content": '"finish_reason":null,"usage":{'}, Carries.CONTENT),
        ({"content": "", "reasoning_content": "hm"}, Carries.REASONING),
        ({"content": None, "reasoning": "hm"}, Carries.REASONING),
        ({"reasoning_content": ""}, Carries.NOTHING),
        ({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}, Carries.TOOL_CALL),
        ({"tool_calls": []}, Carries.NOTHING),
        ({"refusal": "no"}, Carries.CONTENT),
    ],
)
def test_what_a_chat_delta_carries(delta: object, carries: Carries, want_text: bool) -> None:
    assert find_adapter("openai_chat").decode(chat(delta), want_text).carries is carries


@given(
    st.one_of(st.none(), st.text(max_size=20)),
    st.one_of(st.none(), st.sampled_from(["stop", "length"])),
    st.one_of(st.none(), st.integers(0, 99)),
    st.booleans(),
)
def test_the_fast_path_says_what_the_full_one_says(
    content: str | None, finish: str | None, tokens: int | None, spaced: bool
) -> None:
    document = {
        "choices": [{"index": 0, "delta": {"content": content}, "logprobs": None, "finish_reason": finish}],
        "usage": None if tokens is None else {"prompt_tokens": 1, "completion_tokens": tokens},
    }
    payload = json.dumps(document).encode() if spaced else orjson.dumps(document)
    adapter = find_adapter("openai_chat")
    fast, full = adapter.decode(payload, False), adapter.decode(payload, True)
    assert fast._replace(text="") == full._replace(text="")


def test_llama_cpp_s_order_of_keys_takes_the_fast_path_too() -> None:
    payload = b'{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"x"}}],"created":1,"object":"c"}'
    adapter = find_adapter("openai_chat")
    assert adapter.decode(payload, False) is adapter.decode(payload, False)
    assert adapter.decode(payload, False).carries is Carries.CONTENT


def test_usage_with_its_details() -> None:
    usage = {
        "prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }  # fmt: skip
    payload = orjson.dumps({"choices": [], "usage": usage})
    for kind in ("openai_chat", "openai_completions"):
        assert find_adapter(kind).decode(payload, False).usage == Usage(100, 20, 64, 5)


def test_odd_usage_is_unknown_rather_than_wrong() -> None:
    payload = orjson.dumps({"choices": [], "usage": {"prompt_tokens": "7", "completion_tokens": -1}})
    assert find_adapter("openai_chat").decode(payload, False).usage == Usage(None, None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("payload", [b"{", b"[]", b"null", b"<html>", b"\xff\xfe", b'{"hello":1}'])
def test_what_is_not_of_the_protocol_is_malformed(kind: str, payload: bytes) -> None:
    with pytest.raises(MalformedPayload):
        find_adapter(kind).decode(payload, False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("error", "text"),
    [
        ({"message": "no\n room", "type": "server_error"}, "server_error: no room"),
        ({"code": 503, "message": "Loading model"}, "503: Loading model"),
        ("plain", "plain"),
        ({"odd": 1}, '{"odd":1}'),
    ],
)
def test_error_objects_become_one_line(kind: str, error: object, text: str) -> None:
    assert find_adapter(kind).decode(orjson.dumps({"error": error}), False).error == text


def test_completions_deltas() -> None:
    adapter = find_adapter("openai_completions")
    assert adapter.decode(b'{"choices":[{"text":"x","finish_reason":null}]}', True) == Delta(Carries.CONTENT, "x")
    assert adapter.decode(b'{"choices":[{"text":"","finish_reason":"length"}]}', False) == Delta(finish="length")
    assert adapter.decode(b"[DONE]", False).done


def test_llama_cpp_s_last_payload() -> None:
    payload = (
        b'{"content":"","stop":true,"tokens_predicted":12,"tokens_evaluated":30,"stop_type":"eos",'
        b'"timings":{"cache_n":8}}'
    )
    assert find_adapter("llamacpp").decode(payload, False) == Delta(
        finish="eos", usage=Usage(30, 12, 8), done=True
    )  # fmt: skip
    older = b'{"content":"","stop":true,"stopped_limit":true,"tokens_predicted":3,"tokens_evaluated":5}'
    assert find_adapter("llamacpp").decode(older, False).finish == "limit"


def test_vllm_generate_gives_the_whole_text_so_far() -> None:
    delta = find_adapter("vllm_generate").decode(b'{"text":["hi there"]}', True)
    assert (delta.text, delta.cumulative, delta.usage) == ("hi there", True, None)
