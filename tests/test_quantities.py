from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.quantities import format_bytes, format_duration, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("10m", 600),
        ("2h", 7200),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("1.5h", 5400),
        ("1d", 86400),
        ("0", 0),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["90", "2 hours", "-5s", "", "h", "1h30", "s5", "1e3s", "٣s", 90, 1.5])
def test_a_duration_without_its_unit_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="such as 90s"):
        parse_duration(text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "size"),
    [("32GiB", 32 * 2**30), ("28GB", 28 * 10**9), ("512 MiB", 512 * 2**20), ("4096", 4096), (7, 7), ("1.5KiB", 1536)],
)
def test_sizes_are_read(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["32 apples", "", "-1GB", "GiB", True, -4])
def test_what_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)  # type: ignore[arg-type]


@given(st.integers(min_value=1, max_value=10**7))
def test_a_printed_duration_of_two_parts_reads_back_to_within_its_smaller_part(seconds: int) -> None:
    read = parse_duration(format_duration(seconds).replace(" ", ""))
    assert abs(read - seconds) <= max(1, seconds // 24)


def test_bytes_are_shown_in_binary_units() -> None:
    assert [format_bytes(x) for x in (0, 2 * 2**20, 1.5 * 2**30, -4096)] == ["0 B", "2 MiB", "1.5 GiB", "-4 KiB"]
