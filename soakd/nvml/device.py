"""What an NVML worker serves: the device interface, its answers and the words of the line protocol.

Stdlib only and small: every worker process loads this. A device is the real card (``nvml_device.NvmlDevice``), a
recording played back (``replay.ReplayDevice``) or a simulated one (rehearsal); the worker doesn't know which.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

FAST = "fast"
SLOW = "slow"
TIERS = (FAST, SLOW)

# nvmlReturn_t, from nvml.h
SUCCESS = 0
UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
LIB_RM_VERSION_MISMATCH = 18
NO_DATA = 21
VERSION_MISMATCH = 25
GPU_NOT_FOUND = 28
UNKNOWN = 999

NEVER_SUPPORTED = frozenset({INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND, VERSION_MISMATCH})
"""Codes that won't change while the driver stays loaded: after a probe such a query isn't asked again."""
LOST = frozenset({GPU_IS_LOST, GPU_NOT_FOUND})
"""Codes that mean that the card itself is gone."""

NOT_THERE = -1
"""soakd's own code: NVML said success, but the value says that nothing is there (see ``decode.field_answer``)."""


class Answer(NamedTuple):
    """One NVML query: return code (0 success, see above) and decoded value, JSON-able; ``us`` is its latency."""

    code: int
    value: object = None
    us: int = 0


Answers = Mapping[str, Answer]
"""Answers by query key (``queries.QUERIES`` lists the keys, units and shapes)."""


class CardId(NamedTuple):
    """A card as NVML lists it. ``bdf`` is in sysfs form, lower case; ``migs`` are the UUIDs of its instances."""

    uuid: str
    bdf: str
    serial: str
    name: str
    ordinal: int
    migs: tuple[str, ...] = ()


class RawEvent(NamedTuple):
    """One event of ``nvmlEventSetWait``: ``kind`` is ``xid``, ``ecc_sbe``, ``ecc_dbe``, ``unavailable``...; ``data``
    is the XID's number for ``xid`` and else the event's data; ``at_ns`` wall clock when it was seen."""

    kind: str
    data: int
    at_ns: int = 0


class DeviceError(Exception):
    """A call that failed as a whole. ``code`` is the nvmlReturn_t."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(what)
        self.code = code
        self.what = what


class Device(Protocol):
    """One card, as a worker asks it. Calls may block or hang: the pool outside sets the deadline.

    ``read`` and ``probe`` never raise for a single query (its code says it); they raise DeviceError when the card as
    a whole can't be asked. The outer key of ``read`` is ``""`` for the card and the UUID for each MIG instance.
    """

    def acquire(self) -> CardId:
        """Take handles (nvmlInit and so on). Raises DeviceError; may be called again after ``release``."""
        ...

    def release(self) -> None:
        """Let go of every handle, so that the card can be reset. ``read`` then raises DeviceError(UNINITIALIZED)."""
        ...

    def probe(self) -> Answers:
        """Ask every query of both tiers once; codes in NEVER_SUPPORTED are remembered and answered from memory."""
        ...

    def read(self, tier: str) -> Mapping[str, Answers]: ...

    def wait_event(self, timeout_s: float) -> RawEvent | None:
        """Block up to ``timeout_s``; None when nothing came. Called from a thread of its own.

        Raises DeviceError when events can't be had: (NOT_SUPPORTED: never; other codes: the caller backs off).
        """
        ...

    def current(self) -> str:
        """The query in progress, so that a hung worker can say where it hangs. Called from another thread."""
        ...


class Backend(Protocol):
    """What a worker module offers: the cards there are, and one of them opened."""

    def list_cards(self) -> tuple[CardId, ...]:
        """Raises DeviceError when there is no driver, no library or no card."""
        ...

    def open(self, uuid: str) -> Device: ...
