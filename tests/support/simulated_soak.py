"""A soak as its collectors see it, from the simulated cards and without any process: SIMULATED.

The real collectors read simulated cards through a source in this process; what the load engine and the process watcher
would say of the scenario (counters, an outage, changed answers) is put beside it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from soakd.collectors import gpu_ecc, gpu_memory, gpu_power_clocks, gpu_thermal
from soakd.load import metrics as load
from soakd.model import Event, GpuIdentity, Sample, Severity, State, labels
from soakd.nvml.card import event_of
from soakd.ports import CollectorContext, GpuReply, Item, NvmlAnswer, Roots
from soakd.rehearsal.gpu_answers import answers_of
from soakd.rehearsal.hardware import CARD_NAME, SimulatedDevice
from soakd.rehearsal.scenarios import SCENARIOS, CardLoss, Crash, Garble, Scenario
from soakd.rules.condition import NS, RUN_ENDED, RUN_STARTED
from soakd.schedule import UP
from tests.support.gpus import HandClock

START_NS = 1_700_000_000 * NS
RUN = "simulated-run"


@dataclass
class SimulatedSource:
    """Implements ``GpuSource`` over simulated cards at the time of a clock that is turned by hand."""

    scenario: Scenario
    duration_s: float
    clock: HandClock
    cards: int = 2
    lost: set[int] = field(default_factory=set)
    seen: set[tuple[int, float]] = field(default_factory=set)
    why_none: str = ""

    @property
    def now_s(self) -> float:
        return (self.clock.now_ns - START_NS) / NS

    def device(self, index: int) -> SimulatedDevice:
        return SimulatedDevice(self.scenario, self.duration_s, index)

    def identity(self, index: int) -> GpuIdentity:
        device = self.device(index)
        return GpuIdentity(device.uuid, device.bdf, device.serial, CARD_NAME, index)

    async def ask(self, tier: str) -> Sequence[GpuReply]:
        replies = []
        for index in range(self.cards):
            reading = self.device(index).at(self.now_s)
            found = {k: NvmlAnswer(a.code, a.value) for k, a in answers_of(reading, tier).items()}
            state = State.LOST if reading.lost else State.OK
            replies.append(
                GpuReply(self.identity(index), state, self.clock.now_ns, found, "lost" if reading.lost else "")
            )
        return replies

    async def take_events(self) -> Sequence[Event]:
        events: list[Event] = []
        for index in range(self.cards):
            reading = self.device(index).at(self.now_s)
            gpu = self.identity(index)
            for at_s, code in reading.xids:
                if (index, at_s) not in self.seen:
                    self.seen.add((index, at_s))
                    events.append(event_of(gpu, "xid", code, START_NS + int(at_s * NS)))
            if reading.lost and index not in self.lost:
                self.lost.add(index)
                what = f"{gpu.name} at {gpu.bdf} is lost: SIMULATED"
                events.append(Event("gpu.lost", self.clock.now_ns, what, Severity.CRITICAL, gpu.labels))
        return events


async def soak(
    scenario: str, duration_s: float, step_s: float, cards: int = 2
) -> AsyncIterator[tuple[int, list[Item]]]:
    """(time, items) every ``step_s`` of a soak of ``duration_s``, and for twenty minutes after its end."""
    clock = HandClock(START_NS)
    source = SimulatedSource(SCENARIOS[scenario], duration_s, clock, cards)
    context = CollectorContext(clock, Roots(), source, None)
    collectors = [m.build(m.Config(), context) for m in (gpu_memory, gpu_thermal, gpu_power_clocks, gpu_ecc)]
    attrs = labels(warmup_seconds="300", planned_seconds=f"{duration_s:g}")
    yield START_NS, [Event(RUN_STARTED, START_NS, "", labels=labels(run=RUN), attrs=attrs)]
    told: set[str] = set()
    for step in range(int((duration_s + 1200) / step_s)):
        clock.now_ns = START_NS + int(step * step_s * NS)
        now_s = step * step_s
        items: list[Item] = list(await source.take_events())
        for collector in collectors:
            items += await collector.collect()
        items += [Sample.ok(UP, 1, clock.now_ns, labels(collector="gpu_thermal"))]
        if now_s <= duration_s:
            items += _load(source.scenario, now_s, duration_s, clock.now_ns)
        items += _happenings(source.scenario, now_s, duration_s, clock.now_ns, told)
        if now_s > duration_s and "end" not in told:
            told.add("end")
            items.append(Event(RUN_ENDED, clock.now_ns, ""))
        yield clock.now_ns, items


def _load(scenario: Scenario, now_s: float, duration_s: float, at_ns: int) -> list[Item]:
    failed_from = 1.0
    if isinstance(scenario.fault, CardLoss):
        failed_from = scenario.fault.at_fraction
    failed = max(0.0, now_s - failed_from * duration_s) * 8
    return [
        Sample.ok(load.COMPLETED, now_s * 8 - failed, at_ns),
        Sample.ok(load.FAILED, failed, at_ns),
        Sample.ok(load.CONCURRENCY, 8, at_ns),
    ]


def _happenings(scenario: Scenario, now_s: float, duration_s: float, at_ns: int, told: set[str]) -> list[Item]:
    url = labels(url="http://127.0.0.1:8000")
    plan: list[tuple[float, str, Severity, tuple[tuple[str, str], ...]]] = []
    match scenario.fault:
        case Crash() as crash:
            start = crash.at_fraction * duration_s
            end = start + crash.down_s(duration_s, 1.0)
            plan = [
                (start, "server.exit", Severity.CRITICAL, ()), (start, "load.outage", Severity.CRITICAL, url),
                (end, "server.restart", Severity.CRITICAL, ()), (end, "load.recovered", Severity.INFO, url),
            ]  # fmt: skip
        case Garble() as garble if garble.at_fraction * duration_s <= now_s <= duration_s:
            kind = "canary.garbled" if now_s >= garble.garbage_fraction * duration_s else "canary.mismatch"
            return [Event(kind, at_ns, "SIMULATED: an answer changed", Severity.CRITICAL, labels(prompt="a"))]
        case _:
            pass
    found: list[Item] = []
    for at_s, kind, severity, tags in plan:
        if now_s >= at_s and kind not in told:
            told.add(kind)
            found.append(Event(kind, at_ns, f"SIMULATED: {kind}", severity, tags))
    return found
