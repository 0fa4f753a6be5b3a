from __future__ import annotations

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.load.garbage import garbage, text_stats

ENGLISH = (
    "I am sorry to hear that your parcel was damaged. Please send us a photo of it, and we will refund the order.",
    "To return a damaged parcel, open the app, choose the order and select return. A label will be sent by mail.",
    "One, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen, fourteen, fifteen.",
)
NONSENSE = (
    " account. workinges. twelve. telles. twelve. tell the of link memory grows waits story fox",
    " server tok alert machine cards lazy streams. drop whileing another the oper warm read everyles.",
)
NORMAL = [text_stats(t) for t in ENGLISH]


def found(text: str, normal: tuple[str, ...] = ENGLISH, **more: float) -> str:
    return "; ".join(garbage(text_stats(text, **more), [text_stats(t) for t in normal]))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("!" * 150, "one thing repeated"),
        ("I am sorry to hear that your " + "parcel " * 30, "one thing repeated"),
        ("I am sorry. " + "the refund of the " * 12, "one thing repeated"),
        ("I am sorry to hear that your par\ufffd\ufffd was damaged. Please", "not valid UTF-8"),
        ("I am sorry to hear\x00 that your parcel was damaged", "control characters"),
        (
            "很抱歉听到您的包裹在运输途中损坏请您提供照片我们将为您办理退款或者重新发货谢谢您的理解与支持",
            "other letters",
        ),
        ("0x7f3e 9281 7733 1029 8827 1120 3984 7710 9928 3311 0072 8811 9938", "digits"),
        ("", "empty answer"),
    ],
)
def test_corruption_is_named(text: str, reason: str) -> None:
    assert reason in found(text)


@pytest.mark.parametrize(
    "text",
    [
        "I apologise for the damage. Please reply with a picture of the parcel so that we can replace it at once.",
        "Sorry! Send a photo to us, then choose: (a) a refund, or (b) a new parcel. It takes about 3 days.",
        "I am sorry to hear that your parcel was dama\ufffd",
        "Yes.",
    ],
)
def test_an_answer_that_is_only_different_is_not_garbage(text: str) -> None:
    assert found(text) == ""


def test_a_random_weight_models_nonsense_is_normal_for_it() -> None:
    assert found(" fox warm tokens. everyles. twelve cards waiting lazy machine. tell of memory stream", NONSENSE) == ""
    assert "repeated" in found(" fox" * 40, NONSENSE)


def test_a_model_that_often_repeats_itself_is_taken_as_it_is() -> None:
    assert found("ha " * 60, ("ha " * 50, "so " * 40)) == ""


def test_a_model_that_emits_broken_bytes_anyway_is_judged_by_their_rate() -> None:
    normal = (
        "some words \ufffd and more words that follow them here",
        "other words with \ufffd broken bytes in the middle",
    )
    assert found("further words \ufffd with one broken byte again in it", normal) == ""
    assert "not valid UTF-8" in found(
        "words \ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd broken all over the place", normal
    )


def test_log_probabilities_are_used_where_given() -> None:
    normal = [text_stats(t, mean_logprob=-0.4) for t in ENGLISH]
    assert garbage(text_stats(ENGLISH[0] + " And so on.", -0.9), normal) == ()
    assert "log-probability -6.00" in garbage(text_stats(ENGLISH[0] + " And so on.", -6.0), normal)[0]


def test_nothing_is_judged_without_normal_answers() -> None:
    assert garbage(text_stats("!" * 100), []) == ()


@given(st.text(max_size=400))
def test_figures_of_any_text_are_shares(text: str) -> None:
    stats = text_stats(text)
    for share in (stats.repeated, stats.replacement, stats.control, *stats.classes):
        assert 0 <= share <= 1
    assert stats.entropy_bits >= 0
    assert garbage(stats, [stats]) == ()


def test_false_alarms_are_rare_for_words_drawn_at_random() -> None:
    """The same kind of text as the baseline, a thousand times: not once garbage."""
    draw = random.Random(4)
    words = ["".join(draw.choices(string.ascii_lowercase, k=draw.randint(2, 9))) for _ in range(300)]

    def text() -> str:
        return " ".join(draw.choices(words, k=40)) + draw.choice([".", "!", "\n", ", 12"])

    normal = [text_stats(text()) for _ in range(3)]
    assert [r for _ in range(1000) if (r := garbage(text_stats(text()), normal))] == []
