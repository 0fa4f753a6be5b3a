"""Kernel messages of class PCIe, GPU driver, out of memory, machine check and hung task, as events.

Source: /dev/kmsg (Documentation/ABI/testing/dev-kmsg): ``priority,sequence,microseconds,flags;text``. XID lines are
not repeated here; they have a collector of their own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import Field

from soakd.fields import ConfigModel, Seconds
from soakd.model import Event, Kind, Labels, Metric, Sample, Severity, State, labels
from soakd.ports import CollectorContext, Item

KIND = "kernel_log"

MESSAGES = Metric(
    "kernel_log_messages_total",
    "messages",
    Kind.COUNTER,
    "Kernel messages of one class seen by soakd, repeats included. Messages are rate-limited by the kernel: AER "
    "counters in sysfs are the better count.",
    "/dev/kmsg",
    ("class",),
)
LOST = Metric(
    "kernel_log_lost_total",
    "messages",
    Kind.COUNTER,
    "Messages that the kernel overwrote before they were read (gaps in the sequence).",
    "/dev/kmsg",
)
SUPPRESSED = Metric(
    "kernel_log_events_dropped_total",
    "messages",
    Kind.COUNTER,
    "Messages that became no event of their own, because their like was reported within the window or too many came "
    "at once.",
    "soakd",
)
METRICS = (MESSAGES, LOST, SUPPRESSED)

_CLASSES: tuple[tuple[str, re.Pattern[str], Severity], ...] = (
    ("oom_kill", re.compile(r"(out of memory|OOM).*: Killed process \d+|Out of memory: Kill", re.I), Severity.CRITICAL),
    ("mce", re.compile(r"\[Hardware Error\]|\bmce: |Machine check|EDAC \S+: \d+ (CE|UE)", re.I), Severity.CRITICAL),
    ("pcie", re.compile(r"\bAER: |PCIe Bus Error|pcieport .*(error|DPC|link)|pciehp .*(Link Down|Card not present)"
                        r"|\bDPC: |Unable to change power state|config space inaccessible|device recovery failed"),
     Severity.WARNING),
    ("nvrm", re.compile(r"NVRM: (?!Xid)|nvidia-(modeset|nvlink|uvm|nvswitch)\d*:|nvidia \S+: .*(fail|error)"),
     Severity.WARNING),
    ("hung_task", re.compile(r"INFO: task .* blocked for more than \d+ seconds"), Severity.CRITICAL),
)  # fmt: skip
_RECORD = re.compile(rb"(\d+),(\d+),(\d+),[^;]*;(.*)", re.DOTALL)
_KILLED = re.compile(r"Killed process (\d+) \(([^)]*)\)")
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\b\d+\b")
_BDF = re.compile(r"\b([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])\b")
_READ_BYTES = 8192
_MAX_RECORDS = 2000
_MAX_KNOWN = 512
_GRANT = (
    "/dev/kmsg is not readable; grant just that with AmbientCapabilities=CAP_SYSLOG in the systemd unit, or with "
    "sysctl kernel.dmesg_restrict=0"
)


class Config(ConfigModel):
    """``from_start`` also reads what the kernel still keeps from before; ``repeat_window`` is how long the like of a
    message stays quiet; ``max_events`` bounds the events of one reading."""

    from_start: bool = False
    repeat_window: Seconds = 60.0
    max_events: int = Field(default=20, ge=1, le=1000)


@dataclass(frozen=True, slots=True)
class Record:
    """One kernel message; ``since_boot_us`` is on the kernel's monotonic clock."""

    sequence: int
    since_boot_us: int
    text: str


def parse_record(raw: bytes) -> Record | None:
    """One record of /dev/kmsg; the key=value lines below it are left out. None when it is not a record."""
    found = _RECORD.match(raw)
    if not found:
        return None
    text = found[4].split(b"\n", 1)[0].decode("utf-8", errors="replace")
    return Record(int(found[2]), int(found[3]), text[:1000])


def classify(text: str) -> tuple[str, Severity] | None:
    """The class of a message, or None for one that says nothing about this hardware."""
    for name, pattern, severity in _CLASSES:
        if pattern.search(text):
            return name, severity
    return None


@dataclass(slots=True)
class Repeats:
    """Which messages were reported lately, numbers in them aside. Holds at most 512, the oldest leave first."""

    window_us: int
    seen: dict[str, int] = field(default_factory=dict)

    def is_new(self, text: str, at_us: int) -> bool:
        """An address stays part of the message: two cards with the same fault are two."""
        address = _BDF.search(text)
        key = (address[1] if address else "") + _NUMBERS.sub("#", text)
        last = self.seen.get(key)
        if last is not None and at_us - last < self.window_us:
            return False
        self.seen.pop(key, None)
        self.seen[key] = at_us
        if len(self.seen) > _MAX_KNOWN:
            del self.seen[next(iter(self.seen))]
        return True


class KernelLogCollector:
    """Keeps /dev/kmsg open, without blocking on it."""

    def __init__(self, config: Config, context: CollectorContext) -> None:
        self._config = config
        self._clock = context.clock
        self._path = context.roots.dev / "kmsg"
        self._file: int | None = None
        self._next_sequence: int | None = None
        self._counts = {name: 0 for name, _, _ in _CLASSES}
        self._lost = 0
        self._dropped = 0
        self._repeats = Repeats(int(config.repeat_window * 1e6))

    async def collect(self) -> Sequence[Item]:
        now = self._clock.wall_ns()
        try:
            if self._file is None:
                self._file = self._open()
            records = self._records(self._file)
        except PermissionError:
            return [Sample.unknown(metric, State.NO_PERMISSION, now, why=_GRANT) for metric in METRICS]
        except OSError as error:
            await self.close()
            why = f"{self._path}: {error.strerror}"
            return [Sample.unknown(metric, State.ABSENT, now, why=why) for metric in METRICS]
        items: list[Item] = [*self._events(records, now)]
        items += [Sample.ok(MESSAGES, n, now, (("class", name),)) for name, n in self._counts.items()]
        items += [Sample.ok(LOST, self._lost, now), Sample.ok(SUPPRESSED, self._dropped, now)]
        return items

    async def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> int:
        file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not self._config.from_start:
            os.lseek(file, 0, os.SEEK_END)
        return file

    def _records(self, file: int) -> list[Record]:
        records: list[Record] = []
        for _ in range(_MAX_RECORDS):
            try:
                raw = os.read(file, _READ_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:  # overwritten while unread; the next read goes on with the oldest there is
                continue
            if not raw:
                break
            # the device hands out one record a read; a recorded file hands out many
            for part in re.split(rb"\n(?! )", raw):
                record = parse_record(part)
                if record is not None:
                    records.append(record)
        return records

    def _events(self, records: Sequence[Record], now: int) -> list[Event]:
        events: list[Event] = []
        boot_ns = now - self._clock.monotonic_ns()
        for record in records:
            if self._next_sequence is not None and record.sequence > self._next_sequence:
                self._lost += record.sequence - self._next_sequence
            self._next_sequence = record.sequence + 1
            found = classify(record.text)
            if found is None:
                continue
            name, severity = found
            self._counts[name] += 1
            fresh = self._repeats.is_new(record.text, record.since_boot_us)
            if not fresh or len(events) >= self._config.max_events:
                self._dropped += 1
                continue
            at_ns = min(now, boot_ns + record.since_boot_us * 1000)
            events.append(Event(f"kernel.{name}", at_ns, record.text, severity, _address(record.text), _attrs(record)))
        return events


def _address(text: str) -> Labels:
    found = _BDF.search(text)
    if not found:
        return ()
    domain, rest = found[1].lower().split(":", 1)
    return labels(bdf=f"{domain[-4:]}:{rest}")


def _attrs(record: Record) -> Labels:
    killed = _KILLED.search(record.text)
    pid, command = (killed[1], killed[2]) if killed else (None, None)
    return labels(sequence=record.sequence, pid=pid, command=command)


def build(config: Config, context: CollectorContext) -> KernelLogCollector:
    return KernelLogCollector(config, context)
