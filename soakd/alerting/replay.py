"""What would have fired on a recorded run: the rules stepped over the journal, in the order it was written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from soakd.alerting.evaluation import Evaluation
from soakd.alerting.rule_files import LoadedRule
from soakd.journal import JournalReader, JournalTail, RunRecord
from soakd.model import Alert, AlertState, Event, Finding, Labels, labels
from soakd.ports import Item
from soakd.rules.condition import RUN_STARTED

_ROWS = 5_000
_STEP_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Episode:
    """One alert from firing to its end (None: it still fired when the run ended)."""

    name: str
    severity: str
    labels: Labels
    summary: str
    fired_ns: int
    ended_ns: int | None = None


def replay(directory: Path, which: str, rules: Sequence[LoadedRule], warmup_s: float = 300.0) -> tuple[Episode, ...]:
    """In order of firing. Raises JournalError for a run that is not there. Nothing is sent and nothing is written."""
    with JournalReader(directory) as reader:
        run = reader.run(which)
    evaluation = Evaluation(rules, labels(run=run.id))
    found: dict[tuple[str, Labels], Episode] = {}
    ended: list[Episode] = []
    planned_s = ((run.ended_ns or run.started_ns) - run.started_ns) / 1e9
    attrs = labels(warmup_seconds=f"{min(warmup_s, 0.15 * planned_s):g}", planned_seconds=f"{planned_s:g}")
    start = Event(RUN_STARTED, run.started_ns, "", labels=labels(run=run.id), attrs=attrs)
    for now_ns, batch in _batches(directory, run, start):
        for alert in (*evaluation.step(batch, now_ns), *evaluation.tick(now_ns)):
            _note(alert, found, ended)
    return tuple(sorted((*ended, *found.values()), key=lambda e: e.fired_ns))


def _note(alert: Alert, found: dict[tuple[str, Labels], Episode], ended: list[Episode]) -> None:
    if alert.state is AlertState.FIRING and alert.fired_ns is not None:
        found[alert.key] = Episode(alert.name, alert.severity.value, alert.labels, alert.summary, alert.fired_ns)
    elif alert.state is AlertState.RESOLVED and (episode := found.pop(alert.key, None)) is not None:
        ended.append(replace(episode, ended_ns=alert.ended_ns))


def _batches(directory: Path, run: RunRecord, start: Event) -> Iterator[tuple[int, list[Item]]]:
    """The run's items second by second; memory is bounded by a window of the journal, whatever the run's length."""
    tail = JournalTail(directory)
    try:
        yield run.started_ns, [start]
        after = max(0, tail.commit_at(run.started_ns) - 1)
        last = tail.latest()
        now_ns = run.started_ns
        while after < last:
            window = tail.window(after, last, _ROWS)
            after = window.to
            own = [
                _plain(i, run.id) for i in window.items if not isinstance(i, Finding) and ("run", run.id) in i.labels
            ]
            if not own and run.ended_ns is not None and now_ns >= run.ended_ns:
                return
            for second, batch in _by_second(own):
                now_ns = max(now_ns, second)
                yield now_ns, batch
    finally:
        tail.close()


def _by_second(items: Sequence[Item]) -> Iterator[tuple[int, list[Item]]]:
    batch: list[Item] = []
    until_ns = 0
    for item in sorted(items, key=lambda i: i.at_ns):
        if batch and item.at_ns >= until_ns:
            yield batch[-1].at_ns, batch
            batch = []
        if not batch:
            until_ns = item.at_ns + _STEP_NS
        batch.append(item)
    if batch:
        yield batch[-1].at_ns, batch


def _plain(item: Item, run: str) -> Item:
    """Without the label that tells the run: rules never see it."""
    return replace(item, labels=tuple(pair for pair in item.labels if pair != ("run", run)))
