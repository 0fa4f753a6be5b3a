"""Items to rows and back: the only place that knows how a metric, labels, a run or an event lie in their columns."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from soakd.journal.records import Cursor, RunRecord
from soakd.model import Event, Finding, Kind, Labels, Metric, RunState, Severity

METRIC_COLUMNS = "name, unit, kind, help, source, label_names, codes, wraps_at"
RUN_COLUMNS = "id, started_ns, ended_ns, state, outcome, target, profile, simulated, boot_id, config, report"
EVENT_COLUMNS = "at_ns, kind, severity, what, labels, attrs"
FINDING_COLUMNS = "at_ns, source, severity, title, detail, labels, metric, value, unit"

Row = Sequence[object]


def labels_text(labels: Labels) -> str:
    return orjson.dumps(labels).decode()


def labels_from(text: object) -> Labels:
    return tuple((str(name), str(value)) for name, value in orjson.loads(str(text)))


def metric_row(metric: Metric) -> tuple[object, ...]:
    return (
        metric.name, metric.unit, metric.kind.value, metric.help, metric.source,
        orjson.dumps(metric.label_names).decode(), orjson.dumps(metric.codes).decode(), metric.wraps_at,
    )  # fmt: skip


def metric_from(row: Row) -> Metric:
    name, unit, kind, text, source, label_names, codes, wraps_at = row
    return Metric(
        str(name),
        str(unit),
        Kind(kind),
        str(text),
        str(source),
        tuple(orjson.loads(str(label_names))),
        tuple((str(n), int(c)) for n, c in orjson.loads(str(codes))),
        _int_or_none(wraps_at),
    )


def run_row(run: RunRecord) -> tuple[object, ...]:
    return (
        run.id, run.started_ns, run.ended_ns, run.state.value, run.outcome, run.target, run.profile,
        int(run.simulated), run.boot_id, run.config, run.report,
    )  # fmt: skip


def run_from(row: Row) -> RunRecord:
    run_id, started, ended, state, outcome, target, profile, simulated, boot_id, config, report = row
    return RunRecord(
        id=str(run_id),
        started_ns=_int(started),
        ended_ns=_int_or_none(ended),
        state=RunState(state),
        outcome=str(outcome),
        target=str(target),
        profile=str(profile),
        simulated=bool(simulated),
        boot_id=str(boot_id),
        config=_bytes(config),
        report=_bytes(report),
    )


def event_row(event: Event) -> tuple[object, ...]:
    return (
        int(event.at_ns), event.kind, event.severity.value, event.what, labels_text(event.labels),
        labels_text(event.attrs),
    )  # fmt: skip


def event_from(row: Row) -> Event:
    at_ns, kind, severity, what, labels, attrs = row
    return Event(_text(kind), _int(at_ns), _text(what), Severity(severity), labels_from(labels), labels_from(attrs))


def finding_row(finding: Finding) -> tuple[object, ...]:
    value = None if finding.value is None else float(finding.value)
    return (
        int(finding.at_ns), finding.source, finding.severity.value, finding.title, finding.detail,
        labels_text(finding.labels), finding.metric, value, finding.unit,
    )  # fmt: skip


def finding_from(row: Row) -> Finding:
    at_ns, source, severity, title, detail, labels, metric, value, unit = row
    return Finding(
        source=_text(source),
        severity=Severity(severity),
        title=_text(title),
        detail=_text(detail),
        at_ns=_int(at_ns),
        labels=labels_from(labels),
        metric=_text(metric),
        value=value if isinstance(value, float) else None,
        unit=_text(unit),
    )


def cursor_from(row: Row) -> Cursor:
    name, head, gaps = row
    return Cursor(_text(name), _int(head), tuple((int(a), int(b)) for a, b in orjson.loads(_text(gaps))))


def gaps_text(cursor: Cursor) -> str:
    return orjson.dumps(cursor.gaps).decode()


def _int(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} where a whole number belongs")
    return value


def _int_or_none(value: object) -> int | None:
    return None if value is None else _int(value)


def _text(value: object) -> str:
    return str(value)


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
