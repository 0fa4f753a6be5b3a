"""What one process publishes: the contract between the probe and whoever reads its files. Standard library only."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass

SCHEMA = "soakd.probe/1"
MAX_BYTES = 256 * 1024
FILE_NAME = re.compile(r"probe-(\d+)-(\d+)\.json")
"""``probe-<inode of the PID namespace>-<pid>.json``: two containers may both have a process 7."""

DEFAULT_FOLDER = "/run/soakd/probe"
_WHOLE = ("pid", "pid_namespace", "start_ticks", "wall_ns", "monotonic_ns", "sequence", "errors")


@dataclass(frozen=True)
class DeviceRecord:
    """One CUDA device as torch sees it. ``stats`` has torch's own names (``allocated_bytes.all.current``).

    ``uuid`` is empty where torch is too old to say; ``problem`` tells why there are no stats.
    """

    index: int
    uuid: str
    name: str
    stats: dict[str, int]
    problem: str = ""


@dataclass(frozen=True)
class ProcessRecord:
    """One file. ``start_ticks`` with ``boot_id`` tells a process from a later one of the same pid."""

    pid: int
    pid_namespace: int
    start_ticks: int
    boot_id: str
    wall_ns: int
    monotonic_ns: int
    interval_s: float
    sequence: int
    errors: int
    last_error: str
    busy_s: float
    torch: str
    cuda_ready: bool
    visible_devices: str
    devices: tuple[DeviceRecord, ...]


def encode(record: ProcessRecord) -> bytes:
    return json.dumps({"schema": SCHEMA, **asdict(record)}, separators=(",", ":")).encode()


def decode(raw: bytes) -> ProcessRecord:
    """Read a file back. Raises ValueError for anything that is not exactly what ``encode`` writes."""
    data = json.loads(raw)
    if not isinstance(data, dict) or data.pop("schema", None) != SCHEMA:
        raise ValueError(f"not a {SCHEMA} file")
    try:
        devices = tuple(_device(d) for d in data.pop("devices"))
        record = ProcessRecord(devices=devices, **data)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"wrong fields: {error}") from None
    if not all(type(getattr(record, name)) is int for name in _WHOLE):
        raise ValueError("a count is not a whole number")
    if not all(type(getattr(record, name)) in (int, float) for name in ("interval_s", "busy_s")):
        raise ValueError("a time is not a number")
    return record


def _device(data: dict[str, object]) -> DeviceRecord:
    stats = data["stats"]
    if not isinstance(stats, dict) or not all(type(value) is int for value in stats.values()):
        raise ValueError("stats are not whole numbers")
    return DeviceRecord(**data)  # type: ignore[arg-type]
