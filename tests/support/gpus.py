"""Recorded cards, a clock turned by hand and a look-up of samples, for the tests of GPU and PCIe telemetry."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from soakd.model import Event, Sample, State
from soakd.nvml.replay import load_recording
from soakd.nvml.replay_source import ReplaySource
from soakd.nvml.sysfs_tree import write_sysfs
from soakd.ports import CollectorContext, GpuSource, Item, Roots

FIXTURES = Path(__file__).parent.parent / "fixtures"
FAMILIES = ("h200", "v100", "a100", "consumer")


@dataclass
class HandClock:
    """Time stands until it is turned."""

    now_ns: int = 1_700_000_000_000_000_000
    speed: float = 1.0
    slept: list[float] = field(default_factory=list)

    def wall_ns(self) -> int:
        return self.now_ns

    def monotonic_ns(self) -> int:
        return self.now_ns

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.turn(seconds)

    def turn(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)


def sysfs_of(name: str) -> dict[str, dict[str, str]]:
    folder = FIXTURES / name
    file = folder / "sysfs.json"
    loaded: dict[str, dict[str, str]] = json.loads((file if file.is_file() else folder / "sysfs_pci.json").read_text())
    return loaded


def replay(clock: HandClock, *names: str) -> ReplaySource:
    return ReplaySource([load_recording(FIXTURES / name) for name in names], clock)


def context(clock: HandClock, gpus: GpuSource | None, roots: Roots) -> CollectorContext:
    return CollectorContext(clock, roots, gpus, None)


def machine(tmp_path: Path, clock: HandClock, *names: str) -> tuple[CollectorContext, ReplaySource]:
    """A machine with these recorded cards, their sysfs trees written below ``tmp_path``."""
    for name in names:
        write_sysfs(sysfs_of(name), tmp_path / "sys")
    (tmp_path / "dev").mkdir(exist_ok=True)
    source = replay(clock, *names)
    return context(clock, source, Roots(sys=tmp_path / "sys", dev=tmp_path / "dev")), source


def samples(items: Iterable[Item], name: str, **wanted: str) -> list[Sample]:
    """The samples of a metric whose labels include ``wanted`` (``kind_`` for a label that is a keyword)."""
    pairs = {k.rstrip("_"): v for k, v in wanted.items()}
    return [
        i for i in items if isinstance(i, Sample) and i.metric.name == name and pairs.items() <= dict(i.labels).items()
    ]


def one(items: Iterable[Item], name: str, **wanted: str) -> Sample:
    """The only such sample."""
    found = samples(items, name, **wanted)
    assert len(found) == 1, (name, wanted, found)
    return found[0]


def value(items: Iterable[Item], name: str, **wanted: str) -> float:
    found = one(items, name, **wanted)
    assert found.state is State.OK, found
    assert found.value is not None
    return found.value


def events(items: Iterable[Item], kind: str = "") -> list[Event]:
    return [i for i in items if isinstance(i, Event) and (not kind or i.kind == kind)]
