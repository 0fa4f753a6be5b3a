"""What the web server shows of the daemon, and the orders it passes on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field

from soakd import __version__
from soakd.alerting.engine import Alerting
from soakd.blocking import BlockingReader
from soakd.config import Loaded
from soakd.errors import SoakdError
from soakd.forward.forwarder import Forwarder
from soakd.forward.status import Condition
from soakd.journal import Journal, JournalReader, RunRecord
from soakd.model import Event, GpuIdentity, Labels, Sample, State, labels
from soakd.nvml.pool import GpuPool
from soakd.ports import Clock
from soakd.report.model import iso
from soakd.service.soaks import SoakDesk
from soakd.service.watching import Watch
from soakd.web.app import Health, SoakOrder

_SHOWN_EVENTS = 50
_SHOWN_RUNS = 500
_FOR_GOOD = (Condition.REFUSED, Condition.STOPPED)


@dataclass(slots=True)
class DaemonBackend:
    """Implements ``web.app.Backend``."""

    loaded: Loaded
    clock: Clock
    journal: Journal
    watch: Watch
    desk: SoakDesk
    forwarder: Forwarder
    pool: GpuPool
    alarms: Alerting
    started_ns: int
    constant_labels: Labels = field(default_factory=lambda: labels(host=socket.gethostname()))
    one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)
    reading: BlockingReader = field(default_factory=lambda: BlockingReader("web"))

    def health(self) -> Health:
        """Red when data is stale, when the journal can't be written, when a sink has been refusing for good."""
        after_s, silent_s = self.loaded.config.web.stale_after, self.watch.silent_s()
        hung = silent_s > after_s
        problems = [f"no reading for {silent_s:.0f} s"] if hung else list(self.watch.stale(after_s))
        if self.journal.failure is not None:
            problems.append(f"journal: {self.journal.failure}")
        problems += (f"sink {s.name}: {s.why}" for s in self.forwarder.status() if s.condition in _FOR_GOOD)
        return Health(tuple(problems), hung)

    def status(self) -> dict[str, object]:
        stats = self.journal.stats()
        progress = self.desk.progress
        return {
            "version": __version__,
            "host": socket.gethostname(),
            "started_at": iso(self.started_ns),
            "health": asdict(self.health()),
            "target": asdict(self.watch.target) if self.watch.target else None,
            "gpus": [_gpu(*card) for card in self.pool.cards],
            "gpus_why_none": self.pool.why_none or None,
            "soak_state": self.desk.state,
            "soak": asdict(progress) if progress else None,
            "last_soak": self.desk.last,
            "journal": {"rows": stats.rows, "file_bytes": stats.file_bytes, "queued": stats.queue_depth,
                        "dropped": stats.dropped},
            "sinks": [asdict(s) for s in self.forwarder.status()],
            "alerts": self._alerts(),
            "series": len(self.watch.samples()),
            "series_left_out": self.watch.feed.series_left_out,
            "events": [_event(e) for e in tuple(self.watch.feed.events)[-_SHOWN_EVENTS:]],
        }  # fmt: skip

    def _alerts(self) -> dict[str, object]:
        found = self.alarms.status()
        return {
            "rules": len(found.rules),
            "failing_rules": [r.name for r in found.rules if r.problem],
            "firing": [
                {"name": a.name, "severity": a.severity.value, "summary": a.summary, "run": a.run or None,
                 "since": iso(a.fired_ns or a.since_ns), "known": a.known, "labels": dict(a.labels)}
                for a in found.firing
            ],
            "channels": [asdict(c) for c in found.channels],
            "items_dropped": found.items_dropped,
        }  # fmt: skip

    def samples(self) -> tuple[Sample, ...]:
        return self.watch.samples()

    async def runs(self) -> list[dict[str, object]]:
        def read() -> list[dict[str, object]]:
            with JournalReader(self.loaded.config.data_dir) as reader:
                return [_run(r) for r in reader.runs(limit=_SHOWN_RUNS, brief=True)]

        async with self.one_at_a_time:
            return await self.reading.call(read)

    async def soak(self, order: SoakOrder, tell: Callable[[dict[str, object]], Awaitable[None]]) -> None:
        await self.desk.run(order, tell)

    async def gpu(self, verb: str) -> None:
        if self.desk.busy:
            raise SoakdError("a soak is running; its telemetry needs the cards", hint="wait for it")
        await (self.pool.release() if verb == "release" else self.pool.acquire())


def _gpu(gpu: GpuIdentity, state: State, why: str) -> dict[str, object]:
    return {**asdict(gpu), "state": state.value, "why": why}


def _run(run: RunRecord) -> dict[str, object]:
    return {
        "run_id": run.id, "started_at": iso(run.started_ns), "state": run.state.value, "outcome": run.outcome or None,
    }  # fmt: skip


def _event(event: Event) -> dict[str, object]:
    return {
        "at": iso(event.at_ns), "kind": event.kind, "severity": event.severity.value, "what": event.what,
        "labels": dict(event.labels),
    }  # fmt: skip
