"""Reads torch's allocator without ever touching CUDA itself: no import of torch, no context, no device call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .record import DeviceRecord

_POOLED = ("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes", "segment")
_POOLS = ("all", "small_pool", "large_pool")
_PLAIN = ("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free")
_MAX_DEVICES = 64


class TorchReader:
    """Looks torch up in ``modules`` (``sys.modules``) on each reading, because a server may load it late."""

    def __init__(self, modules: Mapping[str, Any], visible_devices: str) -> None:
        self._modules = modules
        self._visible = [part.strip() for part in visible_devices.split(",")]
        self._names: dict[int, tuple[str, str]] = {}

    def version(self) -> str:
        return str(getattr(self._modules.get("torch"), "__version__", ""))

    def ready(self) -> bool:
        """Whether the server has initialised CUDA in this process (a forked child has not)."""
        cuda = getattr(self._modules.get("torch"), "cuda", None)
        asked = getattr(cuda, "is_initialized", None)
        return bool(asked()) if asked is not None else False

    def read(self) -> tuple[DeviceRecord, ...]:
        """Every device whose allocator has ever held memory here. Call only when ``ready``.

        The allocator's own lock is held for the copy of a struct, as any call of ``memory_stats`` does.
        """
        cuda = self._modules["torch"].cuda
        count = min(int(cuda.device_count()), _MAX_DEVICES)
        found = (self._device(cuda, index) for index in range(count))
        return tuple(device for device in found if device is not None)

    def _device(self, cuda: Any, index: int) -> DeviceRecord | None:
        try:
            nested = cuda.memory_stats_as_nested_dict(device=index)
        except RuntimeError as error:  # a pluggable allocator may have no statistics
            return DeviceRecord(index, *self._identity(cuda, index), {}, str(error).splitlines()[0][:200])
        if not nested or not _pooled(nested, "reserved_bytes", "all", "peak"):
            return None
        stats = {f"{n}.{pool}.current": _pooled(nested, n, pool, "current") for n in _POOLED for pool in _POOLS}
        stats["reserved_bytes.all.peak"] = _pooled(nested, "reserved_bytes", "all", "peak")
        stats["allocated_bytes.all.peak"] = _pooled(nested, "allocated_bytes", "all", "peak")
        stats |= {name: int(nested[name]) for name in _PLAIN if name in nested}
        known = {name: value for name, value in stats.items() if value is not None}
        return DeviceRecord(index, *self._identity(cuda, index), known)

    def _identity(self, cuda: Any, index: int) -> tuple[str, str]:
        if index not in self._names:
            properties = cuda.get_device_properties(index)
            uuid = str(getattr(properties, "uuid", "") or "")
            if uuid and not uuid.startswith(("GPU-", "MIG-")):
                uuid = f"GPU-{uuid}"
            if not uuid and index < len(self._visible) and self._visible[index].startswith(("GPU-", "MIG-")):
                uuid = self._visible[index]
            self._names[index] = (uuid, str(getattr(properties, "name", "")))
        return self._names[index]


def _pooled(nested: Mapping[str, Any], name: str, pool: str, which: str) -> int | None:
    """None where this version of torch does not count it: not there is not zero."""
    value = nested.get(name, {}).get(pool, {}).get(which)
    return int(value) if value is not None else None
