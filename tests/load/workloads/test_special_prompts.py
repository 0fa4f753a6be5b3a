from __future__ import annotations

from collections import Counter

import orjson
import pytest

from soakd.load.prompts import TokenTable, build_source, make_spec

TABLE = TokenTable("endpoint", 0.25, 9.0, 5.0, 16.0, error_ratio=0.01, why="counted")


def test_prefix_hits_and_cold_turns_are_told_apart() -> None:
    source = build_source(make_spec("shared_prefix", {"prefixes": 4, "cold_share": 0.2}, TABLE), 1)
    seen: set[str] = set()
    tags: Counter[str] = Counter()
    for _ in range(1000):
        prompt = source.take()
        prefix = prompt.messages[0].content
        assert prompt.cold == (prefix not in seen)
        assert prompt.tag == ("prefix-cold" if prompt.cold else "prefix-hit")
        seen.add(prefix)
        tags[prompt.tag] += 1
    assert tags["prefix-cold"] / 1000 == pytest.approx(0.2, abs=0.04)


def test_what_follows_a_prefix_is_new_each_time() -> None:
    source = build_source(make_spec("shared_prefix", {}, TABLE), 1)
    suffixes = [source.take().messages[1].content for _ in range(200)]
    assert len(set(suffixes)) == 200


def test_documents_come_in_each_length_up_to_128k() -> None:
    source = build_source(make_spec("long_documents", {}, TABLE), 1)
    prompts = [source.take() for _ in range(5)]
    assert [p.tag for p in prompts] == ["doc-8k", "doc-16k", "doc-32k", "doc-64k", "doc-128k"]
    for prompt, wanted in zip(prompts, (8192, 16384, 32768, 65536, 131072), strict=True):
        assert wanted - 4 <= prompt.expected_tokens <= wanted
        assert prompt.messages[0].content.rstrip().endswith("Answer in two sentences.")


def test_documents_that_do_not_fit_are_left_out_and_named() -> None:
    spec = make_spec("long_documents", {}, TABLE, 40_000)
    assert spec.notes[0].startswith("documents of 65536, 131072 tokens were left out")
    source = build_source(spec, 1)
    assert {source.take().tag for _ in range(9)} == {"doc-8k", "doc-16k", "doc-32k"}


def test_a_document_is_repeated_with_a_cached_prefix() -> None:
    source = build_source(make_spec("long_documents", {"tokens": [1024, 2048], "repeats": 3}, TABLE), 1)
    prompts = [source.take() for _ in range(6)]
    assert [p.cold for p in prompts] == [True, False, False] * 2
    assert len({p.messages for p in prompts}) == 2


def test_tool_calls_offer_functions() -> None:
    source = build_source(make_spec("tool_calls", {"tools": 5, "choice": "required"}, TABLE), 1)
    extra = orjson.loads(source.take().extra)
    names = [t["function"]["name"] for t in extra["tools"]]
    assert len(set(names)) == 5
    assert extra["tool_choice"] == "required"
    assert all(t["function"]["parameters"]["required"] == ["number"] for t in extra["tools"])
