"""A module that stands in for torch: its allocator's statistics, in torch's nested shape, and no GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MIB = 2**20


@dataclass
class FakeProperties:
    uuid: str
    name: str = "stand-in"


def nested(allocated: int, reserved: int, holes: int, *, retries: int = 0, ooms: int = 0) -> dict[str, Any]:
    def pools(all_: int, small: int) -> dict[str, dict[str, int]]:
        split = {"all": all_, "small_pool": small, "large_pool": all_ - small}
        return {pool: {"current": n, "peak": n, "allocated": n, "freed": 0} for pool, n in split.items()}

    return {
        "allocated_bytes": pools(allocated, MIB), "reserved_bytes": pools(reserved, 2 * MIB),
        "active_bytes": pools(allocated, MIB), "inactive_split_bytes": pools(holes, 0),
        "requested_bytes": pools(allocated - 100, 0), "segment": pools(7, 3),
        "num_alloc_retries": retries, "num_ooms": ooms, "num_device_alloc": 7, "num_device_free": 0,
    }  # fmt: skip


@dataclass
class FakeCuda:
    """Fails loudly on any call that would initialise CUDA."""

    devices: Sequence[Mapping[str, Any] | Exception]
    uuids: Sequence[str] = ()
    ready: bool = True
    calls: list[str] = field(default_factory=list)

    def is_initialized(self) -> bool:
        return self.ready

    def device_count(self) -> int:
        self._must_be_ready("device_count")
        return len(self.devices)

    def memory_stats_as_nested_dict(self, device: int) -> Mapping[str, Any]:
        self._must_be_ready("memory_stats_as_nested_dict")
        found = self.devices[device]
        if isinstance(found, Exception):
            raise found
        return found

    def get_device_properties(self, index: int) -> FakeProperties:
        self._must_be_ready("get_device_properties")
        return FakeProperties(self.uuids[index] if self.uuids else "")

    def _must_be_ready(self, name: str) -> None:
        self.calls.append(name)
        if not self.ready:
            raise AssertionError(f"{name} would initialise CUDA")


@dataclass
class FakeTorch:
    cuda: FakeCuda
    __version__: str = "2.11.0"
