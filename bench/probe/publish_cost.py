"""What one publication of the allocator probe costs, and its share of a second at the default interval.

The allocator is a stand-in with torch's nested statistics (no GPU here): the copy of the real struct is not in the
figure, everything the probe itself does is. Run: ``python bench/probe/publish_cost.py``.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
import types
from typing import Any

from soakd.probe.publisher import Publisher, Settings

_ROUNDS = 2000
_DEVICES = 8


def fake_torch(devices: int) -> Any:
    """A module with the calls that the probe makes, over statistics of torch's shape and size."""
    pools = {
        pool: dict.fromkeys(("current", "peak", "allocated", "freed"), 2**30)
        for pool in ("all", "small_pool", "large_pool")
    }
    names = ("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes", "segment")
    plain = dict.fromkeys(("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free"), 3)
    cuda = types.SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: devices,
        memory_stats_as_nested_dict=lambda device: dict.fromkeys(names, pools) | plain,
        get_device_properties=lambda index: types.SimpleNamespace(uuid=f"GPU-{index}", name="stand-in"),
    )
    return types.SimpleNamespace(cuda=cuda, __version__="0")


def measure(devices: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        publisher = Publisher(Settings(folder, 1.0, ""), {"torch": fake_torch(devices)})
        publisher.publish()
        walls, cpu = [], time.thread_time()
        for _ in range(_ROUNDS):
            begun = time.perf_counter()
            publisher.publish()
            walls.append(time.perf_counter() - begun)
        cpu = (time.thread_time() - cpu) / _ROUNDS
    return {
        "devices": devices,
        "wall_us_median": statistics.median(walls) * 1e6,
        "cpu_us": cpu * 1e6,
        "share_at_1s": cpu,
    }


if __name__ == "__main__":
    for count in (1, _DEVICES):
        print(json.dumps(measure(count)))
