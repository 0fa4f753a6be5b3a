"""Whether anything in the daemon grows with the number of readings: a day and more of them in minutes.

    python -m bench.daemon.memory [--hours 48] [--step 20] [--cards 4]

Real collectors over recorded cards, feed, journal with retention, default rules and the text for Prometheus, on a
clock that is turned by hand. Resident memory, Python objects and the length of what is kept, at each twelfth of the
way; the last line tells the growth over the second half. One JSON object a line.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.telemetry.eight_cards import MODULES
from soakd.collectors import host, host_pressure
from soakd.config import load_config
from soakd.journal import Journal, RetentionPolicy
from soakd.model import Event, Sample, Severity, labels
from soakd.nvml.replay import ReplayBackend, load_recording
from soakd.nvml.replay_source import ReplaySource
from soakd.ports import CollectorContext, Roots
from soakd.schedule import UP
from soakd.service.alarms import build_alarms
from soakd.service.watching import Watch
from soakd.soak.environment import Environment
from soakd.web.exposition import expose

FIXTURES = Path(__file__).parents[2] / "tests/fixtures"
_PARTS = 12
_SPEED = 1000.0
_HOUR_NS = 3_600_000_000_000


@dataclass
class TurnedClock:
    now_ns: int = 1_700_000_000_000_000_000
    speed: float = _SPEED

    def wall_ns(self) -> int:
        return self.now_ns

    def monotonic_ns(self) -> int:
        return self.now_ns

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self.speed)


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def run(hours: float, step_s: float, cards: int, folder: Path) -> None:
    clock = TurnedClock()
    recording = load_recording(FIXTURES / "a100")
    known = ReplayBackend([FIXTURES / "a100"], cards).list_cards()
    gpus = ReplaySource([recording._replace(card=card) for card in known], clock)
    context = CollectorContext(clock, Roots(), gpus, None)
    collectors = [m.build(m.Config(), context) for m in (*MODULES, host, host_pressure)]
    loaded = load_config(None, sets={"data_dir": str(folder)})
    policy = RetentionPolicy(6 * _HOUR_NS, 12 * _HOUR_NS, 48 * _HOUR_NS)
    journal = Journal.open(folder, max_bytes=2**30, clock=clock, retention=policy)
    watch = Watch(loaded, Environment(clock=clock), journal)
    alarms = build_alarms(loaded, clock, journal, emit=watch.feed.emit, relay=watch.feed.relay)
    watch.listen(alarms.see)
    await alarms.start()
    ticks, readings, marks = int(hours * 3600 / step_s), 0, []
    for tick in range(ticks):
        for collector in collectors:
            items = await collector.collect()
            readings += len(items)
            watch.feed.emit(items)
        watch.feed.emit([Sample.ok(UP, 1, clock.now_ns, labels(collector=name)) for name in loaded.collectors])
        if tick % 7 == 0:
            here = labels(gpu=known[tick % cards].uuid)
            watch.feed.emit([Event("xid", clock.now_ns, f"made up {tick}", Severity.WARNING, here, labels(xid=13))])
        clock.now_ns += int(step_s * 1e9)
        if tick % 20 == 0:
            await journal.flush()
            await asyncio.sleep(0.06)
        if (tick + 1) % (ticks // _PARTS) == 0:
            text = expose(watch.samples(), ())
            gc.collect()
            marks.append(resident_mib())
            stats, status = journal.stats(), alarms.status()
            shown = {
                "hours": round((tick + 1) * step_s / 3600, 1), "readings": readings,
                "resident_mib": round(marks[-1], 1),
                "objects": len(gc.get_objects()), "series": len(watch.samples()), "metrics_kib": len(text) // 1024,
                "events_kept": len(watch.feed.events), "journal_mib": round(stats.file_bytes / 2**20, 1),
                "queued": stats.queue_depth, "dropped": stats.dropped, "firing": len(status.firing),
            }  # fmt: skip
            print(json.dumps(shown), flush=True)
    await alarms.stop()
    await journal.close()
    half = len(marks) // 2
    print(json.dumps({"growth_over_second_half_percent": round(100 * (marks[-1] / marks[half] - 1), 2)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=48)
    parser.add_argument("--step", type=float, default=20)
    parser.add_argument("--cards", type=int, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(arguments.hours, arguments.step, arguments.cards, Path(folder)))


if __name__ == "__main__":
    main()
