from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from soakd.analysis.limits_growth import Caps
from soakd.analysis.verdict import judge_run
from soakd.collectors.gpu_memory import TOTAL, USED
from soakd.collectors.server_process import HOST_MEMORY
from soakd.model import Event, Finding, Labels, Outcome, Sample, Severity, State, labels
from soakd.ports import Item
from soakd.soak.plan import Phases
from soakd.soak.watching_growth import GrowthWatch
from tests.support.evidence_of_runs import a_run, limit, track

NS = 10**9
START = 1_700_000_000 * NS
PLANNED = Phases(30.0, 300.0, 6870.0, 60.0)
GIB, PAGE = 2**30, 2 * 2**20
CARD = labels(bdf="0000:00:06.0", gpu="GPU-1")
TREE = labels(role="total")
LIMITS = (limit("vram_leak_max", 0.05, "%/h"), limit("host_memory_leak_max", 64 * 2**20, "bytes/h"))


@dataclass
class Told:
    events: list[Event] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def __call__(self, event: Event, finding: Finding) -> None:
        self.events.append(event)
        self.findings.append(finding)


@dataclass
class Rig:
    watch: GrowthWatch
    told: Told

    async def run(self, percent_per_hour: float, until_s: int = 7200, card: Labels = CARD, every_s: int = 20) -> None:
        """A card of 32 GiB that grows, with a flat process beside it, seen every ``every_s`` seconds."""
        for now_s in range(0, until_s, every_s):
            grown = percent_per_hour / 100 * 32 * GIB * now_s / 3600
            self.watch.take(
                [
                    Sample.ok(USED, 20 * GIB + grown // PAGE * PAGE, START + now_s * NS, card),
                    Sample.ok(TOTAL, 32 * GIB, START + now_s * NS, card),
                    Sample.ok(HOST_MEMORY, GIB, START + now_s * NS, TREE),
                ]
            )
            self.watch.tick(START + now_s * NS)
            await self.watch.idle()


@pytest_asyncio.fixture
async def rig() -> AsyncIterator[Rig]:
    told = Told()
    watch = GrowthWatch(START, PLANNED, LIMITS, Caps(), told)
    yield Rig(watch, told)
    await watch.close()


async def test_a_leak_is_told_once_and_long_before_the_end(rig: Rig) -> None:
    await rig.run(2.0)
    (event,), (finding,) = rig.told.events, rig.told.findings
    after_s = (event.at_ns - START) / NS
    assert PLANNED.measured_from_s < after_s < 0.4 * PLANNED.total_s
    assert (event.kind, event.severity, event.labels) == ("growth.leak", Severity.WARNING, CARD)
    assert dict(event.attrs)["series"] == "gpu_memory_used_bytes"
    assert float(dict(event.attrs)["slope_per_hour"]) == pytest.approx(0.02 * 32 * GIB, rel=0.1)
    assert "0000:00:06.0 grows by" in event.what
    assert "of headroom last" in finding.detail
    assert "the verdict is given at the end" in finding.detail


async def test_a_healthy_run_is_looked_at_a_few_times_and_nothing_is_told(rig: Rig) -> None:
    await rig.run(0.0)
    assert rig.told.events == []
    assert 2 * 12 <= rig.watch.looks <= 2 * 22


async def test_growth_below_the_limit_is_not_told(rig: Rig) -> None:
    await rig.run(0.03)
    assert rig.told.events == []


async def test_nothing_is_looked_at_outside_the_measured_part() -> None:
    told = Told()
    watch = GrowthWatch(START, Phases(30.0, 3600.0, 1800.0, 600.0), LIMITS, Caps(), told)
    rig = Rig(watch, told)
    await rig.run(2.0, until_s=3620)
    assert watch.looks == 0
    watch.tick(START + 5500 * NS)
    await watch.idle()
    assert watch.looks == 0
    await rig.run(2.0, until_s=3700)
    assert watch.looks > 0
    await watch.close()


async def test_unknown_readings_are_no_readings(rig: Rig) -> None:
    unknown = [Sample.unknown(USED, State.TIMEOUT, START + s * NS, CARD) for s in range(0, 7200, 5)]
    rig.watch.take(unknown)
    rig.watch.tick(START + 3600 * NS)
    await rig.watch.idle()
    assert rig.watch.looks == 0


async def test_series_are_bounded_and_what_is_left_out_is_counted(rig: Rig) -> None:
    many: list[Item] = [Sample.ok(USED, GIB, START, labels(bdf=str(i), gpu=f"GPU-{i}")) for i in range(150)]
    rig.watch.take(many)
    rig.watch.take(many)
    assert len(rig.watch.left_out) == 54


async def test_a_leak_of_a_card_split_by_mig_is_told_of_the_instance_only(rig: Rig) -> None:
    part = labels(bdf="0000:00:06.0", gpu="MIG-1")
    for now_s in range(0, 3600, 5):
        grown = 0.02 * 32 * GIB * now_s / 3600 // PAGE * PAGE
        both = [Sample.ok(USED, GIB + grown, START + now_s * NS, tags) for tags in (CARD, part)]
        totals = [Sample.ok(TOTAL, 32 * GIB, START + now_s * NS, tags) for tags in (CARD, part)]
        rig.watch.take([*both, *totals])
        rig.watch.tick(START + now_s * NS)
        await rig.watch.idle()
    assert [e.labels for e in rig.told.events] == [part]


async def test_a_process_that_started_anew_is_judged_by_its_lifetimes(rig: Rig) -> None:
    for now_s in range(0, 7200, 20):
        rig.watch.take([Sample.ok(HOST_MEMORY, GIB + now_s * 50_000, START + now_s * NS, TREE)])
        if now_s == 600:
            rig.watch.take([Event("server.restart", START + now_s * NS, "the server runs again")])
        rig.watch.tick(START + now_s * NS)
        await rig.watch.idle()
    (finding,) = rig.told.findings
    assert "2 lifetimes, cut at each start" in finding.detail


def test_the_verdict_is_the_one_of_the_whole_run_and_tells_when_it_was_found() -> None:
    seconds = [5.0 * i for i in range(1440)]
    used = [20 * GIB + 0.02 * 32 * GIB * s / 3600 // PAGE * PAGE for s in seconds]
    total = track("gpu_memory_total_bytes", [32 * GIB] * 1440, labels=CARD)
    start_ns = a_run().end_ns - 7200 * NS
    attrs = labels(series="gpu_memory_used_bytes")
    said = Event("growth.leak", start_ns + 2100 * NS, "grows", Severity.WARNING, CARD, attrs)
    leaking = judge_run(
        LIMITS, a_run(tracks=(track("gpu_memory_used_bytes", used, labels=CARD), total), events=(said,)), Caps()
    )
    assert leaking.growth[0].detected_at_s == pytest.approx(2100)
    assert "found during the run, 35m after it began" in leaking.verdict.limits[0].why
    flat = track("gpu_memory_used_bytes", [20 * GIB] * 1440, labels=CARD)
    quiet = judge_run(LIMITS[:1], a_run(tracks=(flat, total), events=(said,)), Caps())
    assert quiet.verdict.outcome is Outcome.PASS
    assert [f.source for f in quiet.verdict.findings] == ["growth.online"]
    assert "not upheld" in quiet.verdict.findings[0].title
