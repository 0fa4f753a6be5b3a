"""The engine on a virtual clock: queue, timer, channels, restart, flood."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from soakd.alerting.engine import CHECKPOINT, WATCHDOG, Alerting
from soakd.alerting.rule_files import LoadedRule, load_rules
from soakd.metrics import catalogue
from soakd.model import AlertState, Event, Finding, Sample, labels
from soakd.ports import Clock, Notice, Told
from tests.support.virtual_time import VirtualLoop, run_virtual, virtual_loop

HOT = catalogue().by_name["gpu_temperature_celsius"]
RULES = """
rules:
  - {name: HotCard, kind: threshold, metric: gpu_temperature_celsius, above: 85 celsius, clear: 80 celsius, for: 30s,
     keep_firing_for: 60s, severity: warning, summary: "{gpu} is at {value}, limit {limit}"}
  - {name: LostCard, kind: event, event: gpu.lost, until: [gpu.returned], severity: critical, keep_firing_for: 0s,
     summary: "{gpu} is lost"}
"""


@dataclass
class LoopClock:
    """The virtual loop's time."""

    speed: float = 1.0
    step_ns: int = 0

    def monotonic_ns(self) -> int:
        return virtual_loop().now_ns()

    def wall_ns(self) -> int:
        return 1_700_000_000_000_000_000 + self.monotonic_ns() + self.step_ns

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass
class Journal:
    found: list[Finding] = field(default_factory=list)
    kept: dict[str, bytes] = field(default_factory=dict)

    def add(self, items: Sequence[Finding], run_id: str | None = None) -> None:
        self.found += items

    def keep(self, name: str, data: bytes) -> None:
        self.kept[name] = data


@dataclass
class Ear:
    """A channel that notes what it is told; ``down`` it takes nothing."""

    clock: Clock
    name: str = "ear"
    resend_s: float | None = None
    pause_s: float = 0.0
    heartbeat: bool = False
    down: bool = False
    attempts: list[float] = field(default_factory=list)
    heard: list[Notice] = field(default_factory=list)
    retry_after_s: float | None = None

    async def notify(self, notices: Sequence[Notice]) -> Told:
        self.attempts.append(virtual_loop().time())
        if self.down:
            return Told({}, "it is down", self.retry_after_s)
        self.heard += notices
        return Told({n.alert.key: "told" for n in notices})

    async def close(self) -> None:
        return None

    def states(self) -> list[tuple[str, AlertState]]:
        return [(n.alert.name, n.alert.state) for n in self.heard]


FIRING, RESOLVED = AlertState.FIRING, AlertState.RESOLVED


def rules(tmp_path: Path, text: str = RULES) -> tuple[LoadedRule, ...]:
    file = tmp_path / "rules.yaml"
    file.write_text(text)
    return load_rules([file], catalogue().by_name)


def heat(clock: Clock, celsius: float, gpu: str = "G") -> Sample:
    return Sample.ok(HOT, celsius, clock.wall_ns(), labels(gpu=gpu, bdf=f"b{gpu}", sensor="core"))


async def feed(engine: Alerting, clock: Clock, celsius: float, seconds: int) -> None:
    for _ in range(seconds):
        engine.see([heat(clock, celsius)])
        await asyncio.sleep(1)


def test_fires_after_its_time_and_is_resolved_after_its_time(tmp_path: Path) -> None:
    async def main() -> None:
        clock, journal = LoopClock(), Journal()
        ear = Ear(clock)
        engine = Alerting(rules(tmp_path), [ear], clock, journal, constant=labels(host="h1"))
        await engine.start()
        await feed(engine, clock, 90, 29)
        assert ear.heard == []
        await feed(engine, clock, 90, 5)
        assert ear.states() == [("HotCard", FIRING)]
        assert ear.heard[0].alert.summary == "G is at 90 °C, limit 85 °C"
        assert dict(ear.heard[0].alert.labels)["host"] == "h1"
        await feed(engine, clock, 82, 100)
        await feed(engine, clock, 70, 58)
        assert len(ear.heard) == 1
        await feed(engine, clock, 70, 5)
        assert ear.states() == [("HotCard", FIRING), ("HotCard", RESOLVED)]
        assert [f.source for f in journal.found] == ["rule.HotCard"] * 2
        await engine.stop()

    run_virtual(main())


def test_missing_data_neither_fires_nor_resolves(tmp_path: Path) -> None:
    async def main() -> None:
        clock = LoopClock()
        ear = Ear(clock)
        engine = Alerting(rules(tmp_path), [ear], clock, Journal())
        await engine.start()
        await feed(engine, clock, 90, 10)
        await asyncio.sleep(120)
        assert ear.heard == [], "it was hot for ten seconds; of the rest nothing is known"
        await feed(engine, clock, 90, 40)
        await asyncio.sleep(3600)
        assert ear.states() == [("HotCard", FIRING)]
        await engine.stop()

    run_virtual(main())


def test_a_step_of_the_system_clock_changes_no_duration(tmp_path: Path) -> None:
    async def main() -> None:
        clock = LoopClock()
        ear = Ear(clock)
        engine = Alerting(rules(tmp_path), [ear], clock, Journal())
        await engine.start()
        await feed(engine, clock, 90, 10)
        clock.step_ns = 3600 * 10**9
        await feed(engine, clock, 90, 15)
        assert ear.heard == []
        clock.step_ns = -3600 * 10**9
        await feed(engine, clock, 90, 10)
        assert ear.states() == [("HotCard", FIRING)]
        await engine.stop()

    run_virtual(main())


def test_a_restart_in_the_middle_keeps_pending_and_firing(tmp_path: Path) -> None:
    async def main() -> None:
        clock, journal = LoopClock(), Journal()
        first = Alerting(rules(tmp_path), [Ear(clock)], clock, journal)
        await first.start()
        first.see([Event("gpu.lost", clock.wall_ns(), "gone", labels=labels(gpu="X", bdf="bX"))])
        await feed(first, clock, 90, 20)
        await first.stop()
        ear = Ear(clock)
        second = Alerting(rules(tmp_path), [ear], clock, journal, restored=journal.kept[CHECKPOINT])
        await second.start()
        assert [a.name for a in second.firing()] == ["LostCard"]
        await feed(second, clock, 90, 15)
        assert ear.states() == [("HotCard", FIRING)], "twenty seconds before the restart count; LostCard was told"
        second.see([Event("gpu.returned", clock.wall_ns(), "back", labels=labels(gpu="X", bdf="bX"))])
        await asyncio.sleep(3)
        assert ear.states()[-1] == ("LostCard", RESOLVED)
        assert ear.heard[-1].memory == "told"
        await second.stop()

    run_virtual(main())


def test_a_checkpoint_that_is_garbage_is_no_reason_to_fail(tmp_path: Path) -> None:
    async def main() -> None:
        clock, journal = LoopClock(), Journal()
        for garbage in (b"{", b"[]", b'{"version": 1, "rules": {"HotCard": 3}, "channels": {"ear": 5}}'):
            assert Alerting(rules(tmp_path), [Ear(clock)], clock, journal, restored=garbage).firing() == ()

    run_virtual(main())


def test_a_channel_that_is_down_is_tried_with_patience_and_holds_up_no_other(tmp_path: Path) -> None:
    async def main() -> None:
        clock = LoopClock()
        bad, good = Ear(clock, "bad", down=True), Ear(clock, "good")
        engine = Alerting(rules(tmp_path), [bad, good], clock, Journal(), jitter=lambda: 1.0)
        await engine.start()
        engine.see([Event("gpu.lost", clock.wall_ns(), "gone", labels=labels(gpu="X", bdf="bX"))])
        await asyncio.sleep(600)
        assert good.states() == [("LostCard", FIRING)]
        waits = [b - a for a, b in zip(bad.attempts, bad.attempts[1:], strict=False)]
        assert [round(w) for w in waits[:7]] == [1, 2, 4, 8, 16, 32, 60]
        assert max(waits) < 61
        bad.down = False
        await asyncio.sleep(61)
        assert bad.states() == [("LostCard", FIRING)]
        await engine.stop()

    run_virtual(main())


def test_the_receivers_wish_to_wait_is_kept(tmp_path: Path) -> None:
    async def main() -> None:
        clock = LoopClock()
        ear = Ear(clock, down=True, retry_after_s=30.0)
        engine = Alerting(rules(tmp_path), [ear], clock, Journal())
        await engine.start()
        engine.see([Event("gpu.lost", clock.wall_ns(), "gone", labels=labels(gpu="X", bdf="bX"))])
        await asyncio.sleep(100)
        assert [round(b - a) for a, b in zip(ear.attempts, ear.attempts[1:], strict=False)] == [30, 30, 30]
        await engine.stop()

    run_virtual(main())


def test_the_watchdog_goes_to_who_wants_it_and_is_never_resolved(tmp_path: Path) -> None:
    async def main() -> None:
        clock = LoopClock()
        beat, quiet = Ear(clock, "beat", resend_s=60.0, heartbeat=True), Ear(clock, "quiet")
        engine = Alerting(rules(tmp_path), [beat, quiet], clock, Journal())
        await engine.start()
        await asyncio.sleep(605)
        await engine.stop()
        assert beat.states() == [(WATCHDOG, FIRING)] * 11
        assert quiet.heard == []

    run_virtual(main())


def test_alerts_of_a_soak_carry_its_run(tmp_path: Path) -> None:
    async def main() -> None:
        clock = LoopClock()
        ear = Ear(clock)
        engine = Alerting(rules(tmp_path), [ear], clock, Journal())
        await engine.start()
        engine.run_started("run-1", 60, 3600)
        await feed(engine, clock, 90, 40)
        engine.run_ended()
        await feed(engine, clock, 70, 70)
        assert [n.alert.run for n in ear.heard] == ["run-1", "run-1"]
        await engine.stop()

    run_virtual(main())


def test_a_thousand_alerts_at_once_are_all_told_and_bounded(tmp_path: Path) -> None:
    async def main() -> None:
        clock = LoopClock()
        ear = Ear(clock)
        engine = Alerting(rules(tmp_path), [ear], clock, Journal())
        await engine.start()
        for second in range(40):
            engine.see([heat(clock, 90 + second % 2, f"G{i}") for i in range(1000)])
            await asyncio.sleep(1)
        assert len({n.alert.labels for n in ear.heard}) == 1000
        assert len(ear.heard) == 1000
        assert engine.status().items_dropped == 0
        await engine.stop()

    run_virtual(main())


def test_readings_that_find_the_queue_full_are_counted_and_events_pass(tmp_path: Path) -> None:
    async def main() -> None:
        clock = LoopClock()
        engine = Alerting(rules(tmp_path), [], clock, Journal())
        for _ in range(130):
            engine.see([heat(clock, 90)] * 1000)
        engine.see([Event("gpu.lost", clock.wall_ns(), "gone", labels=labels(gpu="X", bdf="bX"))])
        assert engine.status().items_dropped == 30_000
        await engine.start()
        await asyncio.sleep(2)
        assert "LostCard" in [a.name for a in engine.firing()]
        await engine.stop()

    run_virtual(main())


def test_a_turn_that_fails_is_not_the_last(tmp_path: Path) -> None:
    async def main() -> None:
        clock = LoopClock()
        ear, left = Ear(clock), [3]

        def source(at_ns: int) -> Sequence[Sample]:
            left[0] -= 1
            if left[0] >= 0:
                raise OSError("a file of the daemon can't be read")
            return []

        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        engine = Alerting(rules(tmp_path), [ear], clock, Journal(), sources=[source])
        await engine.start()
        await feed(engine, clock, 90, 100)
        assert left[0] < 0
        assert ear.states() == [("HotCard", FIRING)]
        await engine.stop()

    run_virtual(main())


def test_an_alert_may_have_any_label(tmp_path: Path) -> None:
    """Among them the names that a log line has for itself."""
    text = """rules:
  - {name: Killed, kind: increase, metric: server_cgroup_memory_events_total, above: 0 events, severity: critical,
     labels: {state: a, summary: b, name: c}, summary: "a process was ended"}
"""

    async def main() -> None:
        clock, killed = LoopClock(), catalogue().by_name["server_cgroup_memory_events_total"]
        ear = Ear(clock)
        engine = Alerting(rules(tmp_path, text), [ear], clock, Journal())
        await engine.start()
        for count in (0, 1):
            engine.see([Sample.ok(killed, count, clock.wall_ns() + count, labels(event="oom_kill"))])
            await asyncio.sleep(1.5)
        assert dict(ear.heard[0].alert.labels)["event"] == "oom_kill"
        await engine.stop()

    run_virtual(main())


def test_the_loop_of_these_tests_is_virtual() -> None:
    async def main() -> None:
        assert isinstance(asyncio.get_running_loop(), VirtualLoop)

    run_virtual(main())
