from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.report.wording import clean, clean_lines, say, say_interval, say_moment, say_offset, say_share


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "seconds", "unknown"),
        (math.nan, "bytes", "unknown"),
        (math.inf, "", "unknown"),
        (0.0, "bytes", "0 B"),
        (0.0, "seconds", "0 s"),
        (0.412, "seconds", "412 ms"),
        (0.00005, "s", "50 µs"),
        (9.43, "s", "9.43 s"),
        (7200.0, "s", "2h"),
        (-0.412, "s", "-412 ms"),
        (1.5 * 2**30, "bytes", "1.5 GiB"),
        (3.9 * 2**20, "bytes/hour", "3.9 MiB/h"),
        (0.125, "ratio", "12.5 %"),
        (78.0, "celsius", "78 °C"),
        (0.5, "celsius/hour", "0.5 °C/h"),
        (250.0, "watts", "250 W"),
        (204812.0, "", "204,812"),
        (30.0, "requests/s", "30 requests/s"),
    ],
)
def test_say(value: float | None, unit: str, text: str) -> None:
    assert say(value, unit) == text


def test_a_share_is_never_rounded_to_all_or_nothing() -> None:
    assert say_share(0.99999) == "> 99.9 %"
    assert say_share(0.00001) == "< 0.1 %"
    assert say_share(1.0) == "100 %"
    assert say_share(0.0) == "0 %"
    assert say_share(None) == "unknown"


def test_offsets_moments_and_intervals() -> None:
    assert say_offset(3723.4) == "+01:02:03"
    assert say_offset(-2.0) == "-00:00:02"
    assert say_offset(None) == "unknown"
    assert say_moment("2026-12-01T03:56:09.123Z") == "2026-12-01 03:56:09 UTC"
    assert say_moment("\x1b[31mno time") == "no time"
    assert say_interval(0.1, 0.2, "s") == "[100 ms, 200 ms]"
    assert say_interval(None, 0.2, "s") == "no interval"


def test_escapes_take_their_whole_sequence_with_them() -> None:
    assert clean("a\x1b[31;1mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07\r\nb\u202ec\x9b2J") == "ared link b c 2J"
    assert clean_lines("one\r\n  two\x1b[2J\tx") == "one\n  two x"


@given(st.text(max_size=500), st.integers(min_value=2, max_value=80))
def test_clean_text_is_one_short_printable_line(text: str, limit: int) -> None:
    line = clean(text, limit)
    assert len(line) <= limit
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000 for c in line)
    assert clean(line, limit) == line


@given(
    st.floats(allow_nan=True, allow_infinity=True), st.sampled_from(["", "s", "bytes", "ratio", "bytes/hour", "x/y"])
)
def test_any_figure_can_be_said(value: float, unit: str) -> None:
    text = say(value, unit)
    assert text
    assert (text == "unknown") == (not math.isfinite(value))
