"""Samples, events and findings as InfluxDB line protocol. Pure, and the same record always gives the same line.

A sample is ``NAME,tags value=FLOAT TIME``. A sample that is unknown has no ``value`` but ``state=CODEi`` (never 0;
``soakd.model.State.code``), so that no database can read it as a number. Events and findings are the measurements
``soakd_events`` and ``soakd_findings`` with ``count=1i``, their texts as string fields.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from soakd.model import Event, Finding, Labels, Metric, Sample, State
from soakd.sinks.delivery import Record

EVENTS = "soakd_events"
FINDINGS = "soakd_findings"
_CACHED_SERIES = 100_000
_LONGEST_TAG = 256
_LONGEST_TEXT = 4096
_UNBOUNDED = frozenset({"request", "request_id", "trace_id", "span_id", "prompt_id"})
_BREAKS = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]+")
_NAME = str.maketrans({",": r"\,", " ": r"\ "})
_TAG = str.maketrans({",": r"\,", " ": r"\ ", "=": r"\="})
_TEXT = str.maketrans({"\\": "\\\\", '"': r"\""})
_NOT_A_NUMBER = State.ABSENT.code


class LineEncoder:
    """``tags`` go with every line; a label of the same name wins. ``texts`` False leaves string fields out
    (VictoriaMetrics stores any string as 0)."""

    def __init__(self, tags: Labels = (), *, texts: bool = True) -> None:
        self._tags = tags
        self._texts = texts
        self._heads: dict[tuple[str, Labels], str] = {}

    def encode(self, records: Iterable[Record]) -> list[str]:
        """A line a record, in order."""
        lines: list[str] = []
        metric: Metric | None = None
        labels: Labels | None = None
        head = ""
        for record in records:
            if not isinstance(record, Sample):
                lines.append(self._event(record) if isinstance(record, Event) else self._finding(record))
                continue
            if record.metric is not metric or record.labels is not labels:
                metric, labels = record.metric, record.labels
                head = self._head(metric.name, labels)
            value = record.value
            if value is not None and math.isfinite(value):
                lines.append(f"{head} value={value!r} {record.at_ns}")
            else:
                lines.append(f"{head} state={record.state.code or _NOT_A_NUMBER}i {record.at_ns}")
        return lines

    def _head(self, name: str, labels: Labels) -> str:
        key = (name, labels)
        head = self._heads.get(key)
        if head is None:
            if len(self._heads) >= _CACHED_SERIES:
                self._heads.clear()
            head = self._heads[key] = series_text(name, (*self._tags, *labels))
        return head

    def _event(self, event: Event) -> str:
        own = (("kind", event.kind), ("severity", event.severity.value))
        fields = ["count=1i", *self._text("what", event.what), *self._text("attrs", _pairs(event.attrs))]
        return self._record(EVENTS, event.labels, own, fields, event.at_ns)

    def _finding(self, finding: Finding) -> str:
        own = (("source", finding.source), ("severity", finding.severity.value), ("metric", finding.metric))
        fields = ["count=1i", *self._text("title", finding.title), *self._text("detail", finding.detail)]
        if finding.value is not None and math.isfinite(finding.value):
            fields.append(f"value={float(finding.value)!r}")
        fields += self._text("unit", finding.unit)
        return self._record(FINDINGS, finding.labels, own, fields, finding.at_ns)

    def _record(self, name: str, labels: Labels, own: Labels, fields: Sequence[str], at_ns: int) -> str:
        taken = {tag for tag, _ in own}
        others = tuple((f"label_{tag}" if tag in taken else tag, value) for tag, value in labels)
        return f"{series_text(name, (*self._tags, *others, *own))} {','.join(fields)} {at_ns}"

    def _text(self, name: str, text: str) -> list[str]:
        if not text or not self._texts:
            return []
        return [f'{name}="{_BREAKS.sub(" ", text)[:_LONGEST_TEXT].translate(_TEXT)}"']


def series_text(name: str, tags: Labels) -> str:
    """Measurement and tags, sorted as the database wants them; of tags that stand twice the last wins. Tags without a
    value, and those whose values have no bound (ids of requests), are left out."""
    kept = {tag: value for tag, value in tags if value and tag and tag not in _UNBOUNDED}
    parts = [_clean(name).translate(_NAME)]
    parts += [f"{_clean(tag).translate(_TAG)}={_clean(kept[tag]).translate(_TAG)}" for tag in sorted(kept)]
    return ",".join(parts)


def _clean(text: str) -> str:
    """Without what can't be escaped: line breaks, and a backslash at the end, which would escape what follows."""
    shown = _BREAKS.sub(" ", text)[:_LONGEST_TAG]
    bare = shown.rstrip("\\")
    return bare + "/" * (len(shown) - len(bare))


def _pairs(attrs: Labels) -> str:
    return " ".join(f"{name}={value}" for name, value in attrs)
