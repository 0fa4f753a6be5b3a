"""Cron expressions mean what crontab(5) says, not what apscheduler would make of them."""

from __future__ import annotations

import datetime as dt

import pytest

from soakd.cron import cron_trigger

THURSDAY = dt.datetime(2026, 1, 1, 12, 30, tzinfo=dt.UTC)


def due(expression: str, times: int) -> list[str]:
    trigger, found, now = cron_trigger(expression), [], THURSDAY
    before = None
    for _ in range(times):
        before = trigger.get_next_fire_time(before, now)
        assert before is not None
        now = before + dt.timedelta(microseconds=1)
        found.append(before.strftime("%a %d %H:%M"))
    return found


@pytest.mark.parametrize(
    ("expression", "times"),
    [
        ("0 3 * * 0", ["Sun 04 03:00", "Sun 11 03:00"]),
        ("0 3 * * 7", ["Sun 04 03:00", "Sun 11 03:00"]),
        ("0 3 * * sun", ["Sun 04 03:00", "Sun 11 03:00"]),
        ("0 3 * * 1-5", ["Fri 02 03:00", "Mon 05 03:00"]),
        ("0 3 * * 5-7", ["Fri 02 03:00", "Sat 03 03:00", "Sun 04 03:00", "Fri 09 03:00"]),
        ("0 3 * * */2", ["Sat 03 03:00", "Sun 04 03:00", "Tue 06 03:00", "Thu 08 03:00"]),
        ("0 3 * * 1/3", ["Mon 05 03:00", "Thu 08 03:00"]),
        ("*/20 * * * *", ["Thu 01 12:40", "Thu 01 13:00"]),
        ("0 0 13 * 5", ["Fri 02 00:00", "Fri 09 00:00", "Tue 13 00:00", "Fri 16 00:00"]),
        ("@weekly", ["Sun 04 00:00", "Sun 11 00:00"]),
    ],
)
def test_it_comes_due_as_cron_says(expression: str, times: list[str]) -> None:
    assert due(expression, len(times)) == times


@pytest.mark.parametrize(
    "expression",
    ["", "* * * *", "* * * * * *", "61 * * * *", "0 3 * * 8", "0 3 * * 5-1", "0 3 30 2 *", "0 3 * * */0", "0 3 * * x",
     "@never", "0 3 * * 1/x"],
)  # fmt: skip
def test_what_is_no_expression_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        cron_trigger(expression)
