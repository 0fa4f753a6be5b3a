"""A made-up /proc, /sys and /dev, and a clock turned by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from soakd.model import Event, Sample, State, TargetInfo
from soakd.ports import CollectorContext, GpuSource, Item, Roots

START_NS = 1_800_000_000_000_000_000


@dataclass(slots=True)
class HandClock:
    """Moves only when told to."""

    wall: int = START_NS
    monotonic: int = 1_000_000_000_000
    speed: float = 1.0

    def wall_ns(self) -> int:
        return self.wall

    def monotonic_ns(self) -> int:
        return self.monotonic

    async def sleep(self, seconds: float) -> None:
        self.pass_(seconds)

    def pass_(self, seconds: float) -> None:
        self.wall += int(seconds * 1e9)
        self.monotonic += int(seconds * 1e9)


def write(root: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def roots(tmp_path: Path) -> Roots:
    """Folders below ``tmp_path``, empty."""
    found = Roots(*(tmp_path / name for name in ("proc", "sys", "dev", "etc", "run")))
    for folder in (found.proc, found.sys, found.dev, found.etc, found.run):
        folder.mkdir(parents=True, exist_ok=True)
    return found


def stat_line(
    pid: int, command: str, parent: int = 1, *, state: str = "S", cpu: int = 0, threads: int = 1, start: int = 500,
    exit_status: int = 0,
) -> str:  # fmt: skip
    fields = ["0"] * 50
    fields[0], fields[1], fields[11], fields[17] = state, str(parent), str(cpu), str(threads)
    fields[19], fields[49] = str(start), str(exit_status)
    return f"{pid} ({command}) {' '.join(fields)}\n"


def add_process(
    proc: Path, pid: int, command: str, parent: int = 1, *, state: str = "S", cpu: int = 0, threads: int = 1,
    start: int = 500, arguments: Sequence[str] = (), anon_kib: int = 100, swap_kib: int = 0, files: int = 3,
) -> None:  # fmt: skip
    base = f"{pid}/"
    write(
        proc,
        {
            base + "stat": stat_line(pid, command, parent, state=state, cpu=cpu, threads=threads, start=start),
            base + "cmdline": "\0".join(arguments) + "\0" if arguments else "",
            base + "status": f"VmRSS:\t{anon_kib + 50} kB\nRssAnon:\t{anon_kib} kB\nVmSwap:\t{swap_kib} kB\n",
            base + "smaps_rollup": f"Pss: {anon_kib + 10} kB\nPrivate_Clean: 4 kB\nPrivate_Dirty: {anon_kib} kB\n",
            base
            + "limits": "Limit Soft Hard Units\nMax open files            10                   20          files\n",
            base + "cgroup": "0::/system.slice/llm.service\n",
        },
    )
    folder = proc / str(pid) / "fd"
    folder.mkdir(exist_ok=True)
    for number in range(files):
        (folder / str(number)).touch()


def context(
    found: Roots, clock: HandClock, target: TargetInfo | None = None, gpus: GpuSource | None = None
) -> CollectorContext:
    return CollectorContext(clock, found, gpus, target)


def values(items: Sequence[Item], name: str, **tags: str) -> list[float | None]:
    """The values of one metric that carry ``tags``, in order; None for what is unknown."""
    return [s.value for s in samples(items, name, **tags)]


def samples(items: Sequence[Item], name: str, **tags: str) -> list[Sample]:
    return [
        i for i in items
        if isinstance(i, Sample) and i.metric.name == name and tags.items() <= dict(i.labels).items()
    ]  # fmt: skip


def states(items: Sequence[Item]) -> set[State]:
    return {i.state for i in items if isinstance(i, Sample)}


def events(items: Sequence[Item], kind: str = "") -> list[Event]:
    return [i for i in items if isinstance(i, Event) and i.kind.startswith(kind)]
