from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import orjson
import pytest

from soakd.errors import ConfigError
from soakd.load.prompts import Prompt, TokenTable, build_source, make_spec

TABLE = TokenTable("endpoint", 0.25, 9.0, 5.0, 16.0, error_ratio=0.01, why="counted")


def prompts(count: int, options: Mapping[str, object] | None = None, context: int | None = None) -> list[Prompt]:
    source = build_source(make_spec("mixture", options or {}, TABLE, context), 1)
    return [source.take() for _ in range(count)]


def test_the_default_is_the_mix_of_customer_service_chat() -> None:
    lengths = [p.expected_tokens for p in prompts(1000)]
    assert sum(n <= 512 for n in lengths) == 800
    assert sum(512 < n <= 2048 for n in lengths) == pytest.approx(150, abs=3)
    assert sum(n > 2048 for n in lengths) == pytest.approx(50, abs=3)


def test_a_hundred_prompts_already_hold_the_shares_in_random_order() -> None:
    tags = [p.tag for p in prompts(100)]
    assert sorted(Counter(tags).values()) == [5, 15, 80]
    assert tags != sorted(tags)


def test_every_prompt_is_new() -> None:
    texts = [p.messages[0].content for p in prompts(500)]
    assert len(set(texts)) == 500
    assert all(p.cold for p in prompts(10))


def test_a_pool_repeats_and_is_warm_from_the_second_round() -> None:
    found = prompts(9, {"distinct": False, "pool": 3})
    assert len({p.messages for p in found}) == 3
    assert [p.cold for p in found] == [True] * 3 + [False] * 6


def test_a_short_context_cuts_the_long_bands_and_says_so() -> None:
    spec = make_spec("mixture", {}, TABLE, 2048)
    assert "5% of prompts of 2049 to 4096 tokens were cut to" in " ".join(spec.notes)
    source = build_source(spec, 1)
    longest = max(source.take().expected_tokens for _ in range(300))
    assert 1500 < longest <= 2048 - 128
    assert make_spec("mixture", {}, TABLE, 8192).notes == make_spec("mixture", {}, TABLE).notes


def test_shares_must_add_up() -> None:
    with pytest.raises(ConfigError, match=r"add up to 0\.5"):
        make_spec("mixture", {"bands": [{"share": "50%", "low": 1, "high": 2}]})


def test_request_options_become_canonical_fields() -> None:
    options = {"request": {"thinking": False, "sampling": {"temperature": 0.7, "top_k": 20}, "body": {"priority": 1}}}
    extra = prompts(1, options)[0].extra
    assert orjson.loads(extra) == {
        "chat_template_kwargs": {"enable_thinking": False},
        "priority": 1,
        "temperature": 0.7,
        "top_k": 20,
    }
    assert extra == prompts(1, options)[0].extra
    assert prompts(1)[0].extra == b""


def test_a_body_may_not_take_over_the_engines_fields() -> None:
    with pytest.raises(ConfigError, match="body may not set stream"):
        make_spec("mixture", {"request": {"body": {"stream": False}}})
