from __future__ import annotations

import orjson
import pytest

from soakd.load.canary import CanaryAnswer, CanaryJudge, CanarySpec, excerpt, first_difference, plan_canary

A = "One, two, three, four, five, six, seven, eight, nine, ten."
B = "I am sorry that the parcel was damaged. Please send us a photo."
SPEC = plan_canary(7200, prompts=2)


def answer(prompt: str, text: str, at: int = 0, tokens: tuple[str, ...] = ()) -> CanaryAnswer:
    return CanaryAnswer(prompt, at, text, tokens)


def calibrated(*rounds: tuple[str, str]) -> CanaryJudge:
    judge = CanaryJudge(SPEC)
    for a, b in rounds or ((A, B),) * 3:
        judge.judge(answer("c1", a))
        judge.judge(answer("c2", b))
    return judge


def test_the_first_answers_are_the_reference_and_judge_nothing() -> None:
    judge = CanaryJudge(SPEC)
    results = [judge.judge(answer(p, t)) for _ in range(3) for p, t in (("c1", A), ("c2", B))]
    assert {r.matched for r in results} == {None}
    assert judge.mode == "exact"
    assert judge.summary().judged == 0


def test_an_unchanged_answer_matches() -> None:
    judge = calibrated()
    assert judge.judge(answer("c1", A)).matched is True
    summary = judge.summary()
    assert (summary.mode, summary.identical_ratio, summary.first_bad) == ("exact", 1.0, None)


def test_a_changed_answer_names_the_place_and_both_sides() -> None:
    judge = calibrated()
    result = judge.judge(answer("c1", A.replace("five", "fire"), at=99))
    assert (result.matched, result.first_difference, result.at_ns) == (False, A.index("five") + 2, 99)
    assert "five" in result.expected
    assert "fire" in result.found
    assert result.garbage == ()
    assert "differs from character" in result.what
    judge.judge(answer("c1", A))
    assert judge.summary().identical_ratio == 0.5
    assert judge.summary().first_bad == result


def test_the_first_differing_token_is_given_where_tokens_are_known() -> None:
    judge = CanaryJudge(SPEC)
    for _ in range(3):
        judge.judge(answer("c1", "abc", tokens=("a", "b", "c")))
        judge.judge(answer("c2", B))
    result = judge.judge(answer("c1", "abX", tokens=("a", "b", "X")))
    assert (result.first_difference, result.first_difference_token) == (2, 2)


def test_garbage_says_what_is_wrong_beside_the_mismatch() -> None:
    result = calibrated().judge(answer("c2", "!" * 80))
    assert result.matched is False
    assert "one thing repeated" in result.garbage[0]
    assert result.bad


@pytest.mark.parametrize("at", [0, 1, 2])
def test_where_first_answers_vary_only_garbage_is_judged(at: int) -> None:
    rounds = [(A, B)] * 3
    rounds[at] = (A, B.replace("Please send us a photo", "Send a picture to us"))
    judge = calibrated(*rounds)
    assert judge.mode == "garbage-only"
    result = judge.judge(answer("c1", A.replace("ten", "ten, eleven")))
    assert (result.matched, result.bad) == (None, False)
    assert judge.judge(answer("c1", "\ufffd" * 50 + "a")).bad
    summary = judge.summary()
    assert summary.identical_ratio is None
    assert summary.garbled == 1
    assert f"1 of 2 canaries, from character {B.index('Please')} on" in summary.note


def test_nothing_is_compared_until_every_prompt_is_calibrated() -> None:
    judge = CanaryJudge(SPEC)
    for _ in range(3):
        judge.judge(answer("c1", A))
    assert judge.judge(answer("c1", "something else that is odd")).matched is None
    assert judge.mode == "calibrating"
    assert "too few" in judge.summary().note


def test_garbage_during_calibration_is_reported_and_no_reference() -> None:
    judge = CanaryJudge(SPEC)
    judge.judge(answer("c1", A))
    assert judge.judge(answer("c1", "!" * 80)).garbage
    for _ in range(2):
        judge.judge(answer("c1", A))
    for _ in range(3):
        judge.judge(answer("c2", B))
    assert judge.mode == "exact"
    assert judge.judge(answer("c1", A)).matched is True


def test_memory_does_not_grow_with_the_run() -> None:
    judge = calibrated()
    for i in range(5000):
        judge.judge(answer("c1", f"{A} {i}"))
    reference = judge._references["c1"]
    assert len(reference.texts) == len(reference.stats) == 3
    assert judge.summary().mismatched == 5000


@pytest.mark.parametrize(("duration", "rounds"), [(7200, 120), (600, 10), (60, 6), (30, 6)])
def test_a_plan_judges_three_rounds_at_least(duration: float, rounds: int) -> None:
    spec = plan_canary(duration)
    assert duration / spec.interval_s >= rounds - 1e-9
    assert duration / spec.interval_s - spec.calibration_rounds >= 3
    assert spec.interval_s <= 60


def test_prompts_are_greedy_and_seeded() -> None:
    prompts = plan_canary(600, target_kind="llamacpp", prompts=10).as_prompts()
    assert len({p.messages for p in prompts}) == len({p.tag for p in prompts}) == 10
    assert orjson.loads(prompts[0].extra) == {"temperature": 0, "seed": 1, "cache_prompt": False}
    assert "cache_prompt" not in orjson.loads(plan_canary(600).as_prompts()[0].extra)
    assert all(len(p.tag) <= 16 for p in prompts)


def test_a_specification_survives_json() -> None:
    assert CanarySpec.from_json(SPEC.to_json()) == SPEC
    for raw in (b"", b"{}", b'{"prompts": [{"x": 1}]}', b"[]"):
        with pytest.raises(ValueError, match="not a canary specification"):
            CanarySpec.from_json(raw)


def test_first_difference() -> None:
    assert first_difference("abc", "abc") is None
    assert first_difference("abc", "abd") == 2
    assert first_difference("abc", "ab") == 2
    assert first_difference("", "x") == 0


def test_excerpts_can_be_printed() -> None:
    shown = excerpt("good text \x00\ufffd\x1b[31m and more " * 5, 30)
    assert shown.isprintable()
    assert "\\x00" in shown
    assert shown.startswith("“") and shown.endswith("…”")  # noqa: PT018
