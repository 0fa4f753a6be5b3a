"""Composes the alert engine: rules of the configuration, channels, the daemon's own readings, the kept state."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from soakd.alerting.engine import CHECKPOINT, Alerting
from soakd.alerting.own_metrics import journal_samples
from soakd.alerting.rule_files import load_rules, rule_files
from soakd.alerting.setup import build_notifiers
from soakd.config import Loaded
from soakd.forward import status as forward_status
from soakd.forward.forwarder import Forwarder
from soakd.journal import Journal, JournalReader
from soakd.metrics import catalogue
from soakd.model import Sample, labels
from soakd.ports import Clock, Item
from soakd.soak.environment import Environment
from soakd.soak.plan import phases
from soakd.soak.session import Soak

_FORWARD = frozenset(metric.name for metric in forward_status.METRICS)
Take = Callable[[Sequence[Item]], None]


def build_alarms(
    loaded: Loaded, clock: Clock, journal: Journal, *, emit: Take, relay: Take, forwarder: Forwarder | None = None,
    simulated: bool = False,
) -> Alerting:  # fmt: skip
    """``emit`` journals what it is given and hands it to ``Alerting.see``; ``relay`` only hands it on: the forwarder
    journals its own readings. Build it in the running loop. Raises ConfigError: wrong rules, a missing secret."""
    rules = load_rules(rule_files(loaded.config.rules), catalogue().by_name)
    notifiers = build_notifiers(loaded.notifiers, clock)
    with JournalReader(loaded.config.data_dir) as reader:
        restored = reader.kept(CHECKPOINT)

    def of_journal(at_ns: int) -> Sequence[Sample]:
        return journal_samples(journal.stats(), journal.failure is not None, at_ns)

    def of_forwarder(at_ns: int) -> Sequence[Sample]:
        found = forwarder.status() if forwarder else ()
        return [sample for status in found for sample in forward_status.samples(status, at_ns)]

    def take(items: Sequence[Item]) -> None:
        parts: tuple[list[Item], list[Item]] = ([], [])
        for item in items:
            parts[isinstance(item, Sample) and item.metric.name in _FORWARD].append(item)
        emit(parts[0])
        relay(parts[1])

    return Alerting(
        rules, notifiers, clock, journal, constant=_constant(simulated), sources=(of_journal, of_forwarder), emit=take,
        restored=restored,
    )  # fmt: skip


@contextmanager
def alarmed(alarms: Alerting, run: Soak, loaded: Loaded) -> Iterator[None]:
    """Alerts that begin within carry the run's id, and rules for soaks judge."""
    planned = phases(loaded)
    run.on_start(lambda facts: alarms.run_started(facts.run_id, planned.measured_from_s, planned.total_s))
    try:
        yield
    finally:
        alarms.run_ended()


def of_one_run(loaded: Loaded, environment: Environment, journal: Journal, run: Soak) -> Alerting | None:
    """For a soak without a daemon: only where notifiers are configured is there anyone to tell."""
    if not loaded.notifiers:
        return None
    alarms = build_alarms(
        loaded, environment.clock, journal, emit=lambda items: run.feed.emit(items) if run.feed else None,
        relay=lambda items: run.feed.relay(items) if run.feed else None, simulated=environment.simulated,
    )  # fmt: skip
    run.on_batch(alarms.see)
    return alarms


def _constant(simulated: bool) -> tuple[tuple[str, str], ...]:
    return labels(host=socket.gethostname(), simulated="true" if simulated else None)
