"""What alerting says of itself, and of the parts of the daemon that no collector sees."""

from __future__ import annotations

from collections.abc import Iterable

from soakd.alerting.channel import ChannelStatus
from soakd.journal.records import JournalStats
from soakd.model import Kind, Labels, Metric, Sample, labels

_SOURCE = "soakd's rule engine"
EVALUATIONS = Metric(
    "soakd_rule_evaluations_total", "evaluations", Kind.COUNTER, "Steps of alert rules since the start.", _SOURCE
)
FAILURES = Metric(
    "soakd_rule_failures_total", "evaluations", Kind.COUNTER,
    "Steps that an alert rule failed in: it judges nothing while it fails.", _SOURCE, ("rule",),
)  # fmt: skip
DROPPED = Metric(
    "soakd_rule_items_dropped_total", "readings", Kind.COUNTER,
    "Readings that the rules did not see, because too many came at once.", _SOURCE,
)  # fmt: skip
FIRING = Metric(
    "soakd_alerts_firing", "alerts", Kind.GAUGE, "Alerts that fire, by rule and card.", _SOURCE,
    ("alertname", "severity", "bdf", "gpu"),
)  # fmt: skip
WAITING = Metric(
    "soakd_notify_waiting", "alerts", Kind.GAUGE, "Alerts whose change a channel has not been told yet.", _SOURCE,
    ("channel",),
)  # fmt: skip
SENT = Metric(
    "soakd_notify_sent_total", "alerts", Kind.COUNTER, "Alerts told since the start, repeats included.", _SOURCE,
    ("channel",),
)  # fmt: skip
NOT_SENT = Metric(
    "soakd_notify_failures_total", "attempts", Kind.COUNTER, "Attempts to tell a channel that failed.", _SOURCE,
    ("channel",),
)  # fmt: skip
NOTIFY_DROPPED = Metric(
    "soakd_notify_dropped_total", "alerts", Kind.COUNTER, "Alerts a channel's queue had no room for.", _SOURCE,
    ("channel",),
)  # fmt: skip
NOTIFY_STATE = Metric(
    "soakd_notify_state", "", Kind.STATE, "Whether a channel takes what it is given.", _SOURCE, ("channel",),
    (("ok", 0), ("unavailable", 1), ("refused", 2)),
)  # fmt: skip
LOOP_LAG = Metric(
    "soakd_loop_lag_seconds", "seconds", Kind.GAUGE,
    "Most that a timer of the daemon's event loop came late since the reading before.", "monotonic clock",
)  # fmt: skip
JOURNAL_STATE = Metric(
    "soakd_journal_state", "", Kind.STATE, "Whether the journal can be written.", "the journal's writing thread", (),
    (("ok", 0), ("failing", 1)),
)  # fmt: skip
JOURNAL_FILE = Metric(
    "soakd_journal_file_bytes", "bytes", Kind.GAUGE, "Size of the journal with its log.", "stat of the file"
)
JOURNAL_DROPPED = Metric(
    "soakd_journal_dropped_total", "rows", Kind.COUNTER, "Rows that the journal could not take since it was opened.",
    "the journal's queue",
)  # fmt: skip
METRICS = (
    EVALUATIONS, FAILURES, DROPPED, FIRING, WAITING, SENT, NOT_SENT, NOTIFY_DROPPED, NOTIFY_STATE, LOOP_LAG,
    JOURNAL_STATE, JOURNAL_FILE, JOURNAL_DROPPED,
)  # fmt: skip


def channel_samples(status: Iterable[ChannelStatus], at_ns: int) -> list[Sample]:
    found: list[Sample] = []
    for one in status:
        here: Labels = labels(channel=one.name)
        state = 2 if one.hopeless else 1 if one.problem else 0
        found += [
            Sample.ok(WAITING, one.waiting, at_ns, here),
            Sample.ok(SENT, one.sent, at_ns, here),
            Sample.ok(NOT_SENT, one.failures, at_ns, here),
            Sample.ok(NOTIFY_DROPPED, one.dropped, at_ns, here),
            Sample.ok(NOTIFY_STATE, state, at_ns, here),
        ]
    return found


def journal_samples(stats: JournalStats, failing: bool, at_ns: int) -> list[Sample]:
    return [
        Sample.ok(JOURNAL_STATE, int(failing), at_ns),
        Sample.ok(JOURNAL_FILE, stats.file_bytes, at_ns),
        Sample.ok(JOURNAL_DROPPED, stats.dropped, at_ns),
    ]
