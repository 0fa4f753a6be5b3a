"""Link speed, the replay limit and when a link is called degraded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.nvml.link import (
    Link,
    LinkState,
    LinkWatch,
    expected_link,
    generation_of,
    judge_link,
    parse_link_speed,
    replay_limit_per_minute,
    speed_of,
)  # fmt: skip

SECOND = 10**9
GEN4, GEN1 = Link(16.0, 16), Link(2.5, 16)


@pytest.mark.parametrize(
    ("text", "speed"),
    [("8 GT/s", 8.0), ("8.0 GT/s PCIe", 8.0), ("64.0 GT/s PCIe", 64.0), ("2.5 GT/s PCIe\n", 2.5), ("Unknown", None),
     ("Unknown speed", None), ("", None), ("[N/A]", None), ("0 GT/s", None), ("٨ GT/s", None), ("nan GT/s", None)],
)  # fmt: skip
def test_speed_strings_of_every_kernel(text: str, speed: float | None) -> None:
    assert parse_link_speed(text) == speed


@given(st.text(max_size=40))
def test_no_text_is_taken_for_a_speed_by_accident(text: str) -> None:
    speed = parse_link_speed(text)
    assert speed is None or (speed > 0 and "GT/s" in text)


@given(st.sampled_from([2.5, 5.0, 8.0, 16.0, 32.0, 64.0]), st.booleans())
def test_speed_and_generation_go_both_ways(speed: float, new_kernel: bool) -> None:
    text = f"{speed:.1f} GT/s PCIe" if new_kernel else f"{speed:g} GT/s"
    read = parse_link_speed(text)
    assert read == speed
    assert speed_of(generation_of(read) or 0) == speed


@pytest.mark.parametrize(
    ("speed", "lanes", "limit"), [(8.0, 16, 8), (16.0, 16, 16), (32.0, 16, 31), (2.5, 16, 3), (8.0, 8, 4)]
)
def test_replay_limit(speed: float, lanes: int, limit: int) -> None:
    assert replay_limit_per_minute(speed, lanes) == limit


def test_an_idle_link_at_gen1_is_not_judged() -> None:
    assert judge_link(LinkWatch(), GEN1, GEN4, False, 0)[1] is LinkState.IDLE


def test_a_slow_link_under_load_must_hold_before_it_is_degraded() -> None:
    watch, first = judge_link(LinkWatch(), GEN1, GEN4, True, 0, 10)
    watch, later = judge_link(watch, GEN1, GEN4, True, 9 * SECOND, 10)
    watch, held = judge_link(watch, GEN1, GEN4, True, 10 * SECOND, 10)
    assert (first, later, held) == (LinkState.SETTLING, LinkState.SETTLING, LinkState.DEGRADED)


def test_a_pause_in_the_load_starts_the_hold_anew() -> None:
    watch, _ = judge_link(LinkWatch(), GEN1, GEN4, True, 0, 10)
    watch, _ = judge_link(watch, GEN1, GEN4, False, 5 * SECOND, 10)
    assert judge_link(watch, GEN1, GEN4, True, 11 * SECOND, 10)[1] is LinkState.SETTLING


def test_a_narrow_link_is_degraded_at_full_speed() -> None:
    watch, _ = judge_link(LinkWatch(), Link(16.0, 8), GEN4, True, 0, 10)
    assert judge_link(watch, Link(16.0, 8), GEN4, True, 10 * SECOND, 10)[1] is LinkState.DEGRADED


def test_a_gen5_card_in_a_gen4_slot_is_at_its_best_at_gen4() -> None:
    expected = expected_link(Link(32.0, 16), Link(16.0, 16))
    assert expected == GEN4
    assert judge_link(LinkWatch(), GEN4, expected, True, 0)[1] is LinkState.FULL


def test_a_link_that_is_half_known_is_not_called_full() -> None:
    assert judge_link(LinkWatch(), Link(16.0, None), GEN4, True, 0)[1] is LinkState.UNKNOWN
    assert judge_link(LinkWatch(), Link(None, None), GEN4, True, 0)[1] is LinkState.UNKNOWN
