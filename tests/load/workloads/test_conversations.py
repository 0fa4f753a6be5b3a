from __future__ import annotations

import itertools

from soakd.load.prompts import Prompt, PromptSource, TokenTable, build_source, make_spec

TABLE = TokenTable("endpoint", 0.25, 9.0, 5.0, 16.0, error_ratio=0.01, why="counted")


def source(kind: str, context: int | None = None, **options: object) -> PromptSource:
    return build_source(make_spec(kind, options, TABLE, context), 1)


def play(talk: PromptSource, answer: str = "Certainly, I will look into it.") -> list[Prompt]:
    """One conversation to its end: with one request at a time, the next of the same session comes next."""
    prompts = [talk.take()]
    while True:
        talk.done(prompts[-1], answer)
        following = talk.take()
        if following.session != prompts[-1].session:
            return prompts
        prompts.append(following)


def test_a_conversation_keeps_its_history_and_the_servers_answers() -> None:
    turns = play(source("multi_turn", turns={"low": 3, "high": 3}), "my answer")
    assert len(turns) == 3
    for before, after in itertools.pairwise(turns):
        assert after.messages[: len(before.messages)] == before.messages
        added = after.messages[len(before.messages) :]
        assert [m.role for m in added] == ["assistant", "user"]
        assert added[0].content == "my answer"
        assert after.expected_tokens > before.expected_tokens
    assert [t.tag for t in turns] == ["turn-1", "turn-2", "turn-3"]
    assert [t.cold for t in turns] == [True, False, False]


def test_the_number_of_turns_is_spread_over_its_range() -> None:
    talk = source("multi_turn", turns={"low": 2, "high": 4})
    counts = [len(play(talk)) for _ in range(300)]
    assert set(counts) == {2, 3, 4}
    assert min(counts.count(n) for n in (2, 3, 4)) > 60


def test_concurrent_requests_belong_to_different_conversations() -> None:
    talk = source("multi_turn")
    out = [talk.take() for _ in range(20)]
    assert len({p.session for p in out}) == 20
    talk.done(out[7], "yes")
    assert talk.take().session == out[7].session


def test_a_failed_turn_is_asked_once_more_then_dropped() -> None:
    talk = source("multi_turn")
    first = talk.take()
    talk.done(first, None)
    second = talk.take()
    assert (second.session, second.messages) == (first.session, first.messages)
    talk.done(second, None)
    assert talk.take().session != first.session


def test_a_report_that_comes_twice_changes_nothing() -> None:
    talk = source("multi_turn")
    prompt = talk.take()
    talk.done(prompt, "a")
    talk.done(prompt, "b")
    assert talk.take().messages[1].content == "a"
    assert talk.take().session != prompt.session


def test_memory_is_bounded_when_ends_are_never_reported() -> None:
    talk = source("multi_turn")
    for _ in range(9000):
        talk.take()
    assert len(talk._out) <= 8192  # type: ignore[attr-defined]
    assert talk.abandoned == 9000 - 8192  # type: ignore[attr-defined]


def test_an_agent_grows_to_25000_tokens_by_tool_results() -> None:
    turns = play(source("agentic"), "call the next tool")
    assert 22_000 < turns[-1].expected_tokens <= 25_300
    assert turns[0].messages[0].role == "system"
    assert "<tool_response>" in turns[1].messages[-1].content
    assert turns[0].tag == "start"
    assert {"grown-4k", "grown-16k", "grown-32k"} <= {t.tag for t in turns}


def test_an_agent_is_cut_to_the_context() -> None:
    spec = make_spec("agentic", {}, TABLE, 8192)
    assert "instead of 25000" in spec.notes[0]
    turns = play(build_source(spec, 1))
    assert 6500 < turns[-1].expected_tokens <= 8192 - 256


def test_tool_results_may_have_their_own_role() -> None:
    turns = play(source("agentic", result_role="tool", grow_to_tokens=4096))
    assert turns[1].messages[-1].role == "tool"
    assert "<tool_response>" not in turns[1].messages[-1].content


def test_no_two_conversations_share_a_prefix() -> None:
    for kind in ("multi_turn", "agentic"):
        talk = source(kind)
        starts = [talk.take().messages[0].content[:12] for _ in range(200)]
        assert len(set(starts)) == 200
