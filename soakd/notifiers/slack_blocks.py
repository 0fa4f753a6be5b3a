"""Alerts as Slack's Block Kit, within its documented limits. Pure.

Limits (api.slack.com/reference/block-kit): header 150 characters, section text 3000, a field 2000 and ten of them,
50 blocks a message. ``&``, ``<`` and ``>`` are escaped; nothing of an alert can mention a person or make a link.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from soakd.model import Alert, AlertState, Severity
from soakd.quantities import format_duration, format_value

Block = dict[str, object]
_HEADER, _SECTION, _FIELD, _FIELDS = 150, 3000, 1900, 10
_BARS = "▁▂▃▄▅▆▇█"
_ICONS = {Severity.CRITICAL: "🔴", Severity.WARNING: "🟠", Severity.INFO: "🔵"}
_DIGEST_LINES = 20


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def sparkline(values: Sequence[float]) -> str:
    """One bar a value, between the least and the most of them; empty for fewer than two."""
    if len(values) < 2:
        return ""
    low, high = min(values), max(values)
    if high <= low:
        return _BARS[0] * len(values)
    return "".join(_BARS[min(7, int((v - low) / (high - low) * 8))] for v in values)


def headline(alert: Alert) -> str:
    """One line, also the notification's text."""
    resolved = alert.state is AlertState.RESOLVED
    mark = "✅ Resolved" if resolved else f"{_ICONS[alert.severity]} {alert.severity.value.capitalize()}"
    return f"{mark}: {alert.summary}"


def alert_blocks(alert: Alert, run_url: str) -> list[Block]:
    blocks: list[Block] = [_header(headline(alert))]
    detail = alert.over if alert.state is AlertState.RESOLVED and alert.over else alert.description
    if detail:
        blocks.append(_section(detail))
    fields = _fields(alert)
    blocks.append(
        {"type": "section", "fields": [_text(f"*{name}*\n{escape(value)}", _FIELD) for name, value in fields]}
    )
    spark = sparkline(alert.recent)
    if spark:
        blocks.append({"type": "context", "elements": [_text(f"`{spark}` {_span(alert)}", _FIELD)]})
    links = [
        f"<{url}|{name}>" for name, url in (("run", _run(alert, run_url)), ("runbook", alert.runbook)) if _safe(url)
    ]
    if links:
        blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": " · ".join(links)}]})
    return blocks


def digest_blocks(alerts: Sequence[Alert], what: str) -> list[Block]:
    """Many alerts in one message: how many of each rule, worst first, and the first of them by name."""
    order = [Severity.CRITICAL, Severity.WARNING, Severity.INFO]
    worst = sorted(alerts, key=lambda a: (order.index(a.severity), a.name, a.labels))
    counts = Counter((a.severity, a.name) for a in worst)
    rules = [f"{_ICONS[severity]} *{escape(name)}* × {n}" for (severity, name), n in counts.items()]
    lines = [f"• {escape(a.summary)[:140]}" for a in worst[:_DIGEST_LINES]]
    if len(worst) > _DIGEST_LINES:
        lines.append(f"… and {len(worst) - _DIGEST_LINES} more")
    return [_header(f"{len(alerts)} alerts {what}"), _raw_section("\n".join(rules)), _raw_section("\n".join(lines))]


def _fields(alert: Alert) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if alert.value is not None:
        found.append(("Value", format_value(alert.value, alert.unit)))
    if alert.limit is not None:
        found.append(("Limit", format_value(alert.limit, alert.unit)))
    begun_ns = alert.fired_ns if alert.fired_ns is not None else alert.since_ns
    found.append(("Since", f"{datetime.fromtimestamp(begun_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC"))
    if alert.ended_ns is not None:
        found.append(("Lasted", format_duration(max(0, alert.ended_ns - begun_ns) / 1e9)))
    if not alert.known:
        found.append(("Not read since", f"{datetime.fromtimestamp(alert.seen_ns / 1e9, UTC):%H:%M:%S} UTC"))
    found.append(("Alert", alert.name))
    if alert.run:
        found.append(("Run", alert.run))
    found += [(name, value) for name, value in alert.labels if value]
    return found[:_FIELDS]


def _span(alert: Alert) -> str:
    low, high = min(alert.recent), max(alert.recent)
    return escape(f"{format_value(low, alert.unit)} to {format_value(high, alert.unit)}")


def _run(alert: Alert, run_url: str) -> str:
    return run_url.replace("{run}", alert.run) if alert.run and run_url else ""


def _safe(url: str) -> bool:
    return url.startswith(("http://", "https://")) and not set(url) & set("<>|\n ")


def _header(text: str) -> Block:
    return {"type": "header", "text": {"type": "plain_text", "text": _cut(text, _HEADER), "emoji": True}}


def _section(text: str) -> Block:
    return _raw_section(escape(text))


def _raw_section(text: str) -> Block:
    return {"type": "section", "text": _text(text, _SECTION)}


def _text(text: str, most: int) -> Block:
    return {"type": "mrkdwn", "text": _cut(text, most)}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
