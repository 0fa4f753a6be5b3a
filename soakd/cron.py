"""Cron expressions as crontab(5) means them, on apscheduler.

apscheduler's own reading of them differs in two ways: it counts the days of the week from Monday, so that ``0 3 * * 0``
would run on Mondays, and where day of month and day of week are both given it wants both, not one of them.
"""

from __future__ import annotations

import datetime as dt

from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.combining import OrTrigger
from apscheduler.triggers.cron import CronTrigger

_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_SHORTHANDS = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
}  # fmt: skip


def cron_trigger(expression: str) -> BaseTrigger:
    """The trigger, in UTC. Raises ValueError for what is no cron expression, or one that never comes due."""
    fields = _SHORTHANDS.get(expression.strip(), expression).split()
    if len(fields) != 5:
        raise ValueError(f"{len(fields)} fields; give five: minute hour day-of-month month day-of-week")
    minute, hour, day, month, weekday = fields
    days = _weekdays(weekday)
    if day.startswith("*") or weekday.startswith("*"):
        trigger: BaseTrigger = _trigger(minute, hour, day, month, days)
    else:
        trigger = OrTrigger([_trigger(minute, hour, day, month, "*"), _trigger(minute, hour, "*", month, days)])
    if trigger.get_next_fire_time(None, dt.datetime.now(dt.UTC)) is None:
        raise ValueError("there is no such day")
    return trigger


def _trigger(minute: str, hour: str, day: str, month: str, weekday: str) -> CronTrigger:
    return CronTrigger(
        minute=minute, hour=hour, day=day, month=month.lower(), day_of_week=weekday, timezone=dt.UTC
    )  # fmt: skip


def _weekdays(field: str) -> str:
    """Names in place of numbers, ranges and steps: numbers mean other days to apscheduler."""
    found: set[int] = set()
    for part in field.lower().split(","):
        span, _, step = part.partition("/")
        every = int(step) if step else 1
        if every < 1:
            raise ValueError(f"a step of {every}")
        if span == "*":
            found.update(range(0, 7, every))
            continue
        first, dash, last = span.partition("-")
        low = _weekday(first)
        high = _weekday(last) if dash else (6 if step else low)
        if high < low:
            raise ValueError(f"{span} runs backwards")
        found.update(day % 7 for day in range(low, high + 1, every))
    return "*" if len(found) == 7 else ",".join(_DAYS[day] for day in sorted(found))


def _weekday(text: str) -> int:
    if text in _DAYS:
        return _DAYS.index(text)
    if text.isdigit() and int(text) <= 7:
        return int(text)
    raise ValueError(f"{text!r} is no day of the week; give 0 to 7 (0 and 7 are Sunday) or sun to sat")
