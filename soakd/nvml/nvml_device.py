"""The real card, through pynvml. Runs in a worker process only: the daemon never calls NVML."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from soakd.nvml import queries
from soakd.nvml.decode import THERMAL_COUNTERS, field_answer, sysfs_bdf, thermal_ids_fit
from soakd.nvml.device import (
    FUNCTION_NOT_FOUND,
    LIBRARY_NOT_FOUND,
    NEVER_SUPPORTED,
    NOT_SUPPORTED,
    SUCCESS,
    TIERS,
    UNINITIALIZED,
    UNKNOWN,
    VERSION_MISMATCH,
    Answer,
    Answers,
    CardId,
    DeviceError,
    RawEvent,
)
from soakd.nvml.queries import Query

_OTHER_NAMES = {
    "nvmlDeviceGetCurrentClocksThrottleReasons": "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetTemperature": "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetComputeRunningProcesses": "nvmlDeviceGetComputeRunningProcesses_v2",
    "nvmlDeviceGetGraphicsRunningProcesses": "nvmlDeviceGetGraphicsRunningProcesses_v2",
}
"""Names that a driver may have where it lacks the first: deprecated, or of an older version."""

_EVENTS = {
    0x2: "ecc_dbe",
    0x8: "xid",
    0x200: "ecc_sbe_storm",
    0x400: "dram_retirement",
    0x800: "dram_retirement_failure",
    0x1000: "poison",
    0x2000: "fatal_poison",
    0x4000: "unavailable",
    0x8000: "recovery_action",
}
"""nvmlEventType bits that are worth waking up for."""

_VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Member of nvmlValue_t by nvmlValueType_t."""


def load_pynvml() -> Any:
    """The pynvml module, initialised. Raises DeviceError."""
    try:
        import pynvml
    except ImportError:
        raise DeviceError(LIBRARY_NOT_FOUND, "nvidia-ml-py (module pynvml) is not installed") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise DeviceError(error.value, str(error)) from None
    return pynvml


class NvmlBackend:
    """The cards of this machine."""

    def list_cards(self) -> tuple[CardId, ...]:
        """Cards that answer; one that doesn't (fallen off the bus) is left out and costs the others nothing."""
        lib = load_pynvml()
        try:
            cards = []
            for index in range(lib.nvmlDeviceGetCount()):
                try:
                    cards.append(read_identity(lib, lib.nvmlDeviceGetHandleByIndex(index)))
                except lib.NVMLError:
                    continue
        except lib.NVMLError as error:
            raise DeviceError(error.value, str(error)) from None
        finally:
            lib.nvmlShutdown()
        return tuple(cards)

    def open(self, uuid: str) -> NvmlDevice:
        return NvmlDevice(uuid)


def read_identity(lib: Any, handle: Any) -> CardId:
    """UUID, address, serial (empty where the board has none), name, index and MIG instances."""

    def text(function: str) -> str:
        try:
            value = getattr(lib, function)(handle)
        except lib.NVMLError:
            return ""
        return value.decode() if isinstance(value, bytes) else str(value)

    bus_id = lib.nvmlDeviceGetPciInfo(handle).busId
    bdf = sysfs_bdf(bus_id.decode() if isinstance(bus_id, bytes) else bus_id)
    index = text("nvmlDeviceGetIndex")
    migs = tuple(mig_handles(lib, handle))
    return CardId(
        text("nvmlDeviceGetUUID"), bdf, text("nvmlDeviceGetSerial"), text("nvmlDeviceGetName"), int(index or -1), migs
    )


def mig_handles(lib: Any, handle: Any) -> dict[str, Any]:
    """Handles of the MIG instances by their UUIDs; empty where MIG is off or unknown."""
    found: dict[str, Any] = {}
    try:
        if lib.nvmlDeviceGetMigMode(handle)[0] != 1:
            return found
        count = lib.nvmlDeviceGetMaxMigDeviceCount(handle)
    except lib.NVMLError:
        return found
    for index in range(count):
        try:
            mig = lib.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            uuid = lib.nvmlDeviceGetUUID(mig)
        except lib.NVMLError:
            continue  # an empty slot
        found[uuid.decode() if isinstance(uuid, bytes) else uuid] = mig
    return found


class NvmlDevice:
    """One card by its UUID."""

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        self._lib: Any = None
        self._handle: Any = None
        self._migs: dict[str, Any] = {}
        self._events: Any = None
        self._events_code = UNINITIALIZED
        self._waiting = threading.Lock()
        self._never: dict[str, int] = {}
        self._field_ids: dict[str, int] = {}
        self._memory_version = 0
        self._current = ""

    def acquire(self) -> CardId:
        self._current = "nvmlInit"
        self._lib = lib = load_pynvml()
        try:
            self._current = "nvmlDeviceGetHandleByUUID"
            self._handle = lib.nvmlDeviceGetHandleByUUID(self._uuid)
            card = read_identity(lib, self._handle)
            self._migs = mig_handles(lib, self._handle)
        except lib.NVMLError as error:
            self.release()
            raise DeviceError(error.value, str(error)) from None
        self._never.clear()
        self._memory_version = getattr(lib, "nvmlMemory_v2", 0)
        self._find_fields()
        self._register_events()
        self._current = ""
        return card

    def release(self) -> None:
        lib, self._lib = self._lib, None
        with self._waiting:  # never frees the event set under a thread that waits on it
            if lib is not None and self._events is not None:
                lib.nvmlEventSetFree(self._events)
            self._events = None
        self._handle, self._migs = None, {}
        if lib is not None:
            try:
                lib.nvmlShutdown()
            except lib.NVMLError:
                return  # nothing is held either way

    def current(self) -> str:
        return self._current

    def probe(self) -> Answers:
        self._need_handle()
        self._never.clear()
        answers: dict[str, Answer] = {}
        for tier in TIERS:
            for query in queries.calls(tier):
                answers[query.key] = self._remember(query.key, self._ask(query, self._handle))
            for name, answer in self._ask_fields(queries.fields(tier)).items():
                answers[name] = self._remember(name, answer)
        return answers

    def read(self, tier: str) -> Mapping[str, Answers]:
        self._need_handle()
        answers: dict[str, Answer] = {}
        for query in queries.calls(tier):
            known = self._never.get(query.key)
            answers[query.key] = (
                Answer(known) if known is not None else self._remember(query.key, self._ask(query, self._handle))
            )
        wanted = tuple(name for name in queries.fields(tier) if name not in self._never)
        answers |= {name: Answer(self._never[name]) for name in queries.fields(tier) if name in self._never}
        answers |= {name: self._remember(name, answer) for name, answer in self._ask_fields(wanted).items()}
        if tier == "slow" and answers["mig_mode"].code == SUCCESS:
            self._migs = mig_handles(self._lib, self._handle)
        units: dict[str, Answers] = {"": answers}
        for uuid, handle in self._migs.items():
            units[uuid] = {q.key: self._ask(q, handle) for q in queries.calls(tier) if q.mig}
        self._current = ""
        return units

    def wait_event(self, timeout_s: float) -> RawEvent | None:
        with self._waiting:
            lib, events = self._lib, self._events
            if lib is None or events is None:
                raise DeviceError(self._events_code, "no events from this card")
            try:
                data = lib.nvmlEventSetWait(events, int(timeout_s * 1000))
            except lib.NVMLError as error:
                if error.value == lib.NVML_ERROR_TIMEOUT:
                    return None
                raise DeviceError(error.value, str(error)) from None
        kind = _EVENTS.get(int(data.eventType), f"type_{int(data.eventType):#x}")
        return RawEvent(kind, int(data.eventData), time.time_ns())

    def _need_handle(self) -> None:
        if self._handle is None:
            raise DeviceError(UNINITIALIZED, "the handles of this card are released")

    def _remember(self, key: str, answer: Answer) -> Answer:
        if answer.code in NEVER_SUPPORTED:
            self._never[key] = answer.code
        return answer

    def _find_fields(self) -> None:
        lib = self._lib
        try:
            driver = lib.nvmlSystemGetDriverVersion()
        except lib.NVMLError:
            driver = ""
        driver = driver.decode() if isinstance(driver, bytes) else driver
        for name in (*queries.FAST_FIELDS, *queries.SLOW_FIELDS):
            field_id = getattr(lib, f"NVML_FI_{name}", None)
            if field_id is None:
                self._never[name] = FUNCTION_NOT_FOUND
            elif name in THERMAL_COUNTERS and not thermal_ids_fit(field_id, driver):
                self._never[name] = VERSION_MISMATCH
            else:
                self._field_ids[name] = field_id

    def _register_events(self) -> None:
        lib = self._lib
        try:
            wanted = lib.nvmlDeviceGetSupportedEventTypes(self._handle) & sum(_EVENTS)
            if not wanted:
                self._events_code = NOT_SUPPORTED
                return
            self._events = lib.nvmlEventSetCreate()
            lib.nvmlDeviceRegisterEvents(self._handle, wanted, self._events)
        except lib.NVMLError as error:
            self._events_code = error.value
            self._events = None

    def _ask(self, query: Query, handle: Any) -> Answer:
        if query.key == "memory":
            return self._memory(handle)
        args = query.args if query.function.startswith("nvmlSystem") else (handle, *query.args)
        answer = self._call(query.function, args)
        if answer.code == FUNCTION_NOT_FOUND and query.function in _OTHER_NAMES:
            answer = self._call(_OTHER_NAMES[query.function], args)
        if answer.code != SUCCESS:
            return answer
        return answer._replace(value=plain(answer.value, query))

    def _call(self, function: str, args: tuple[Any, ...], **named: Any) -> Answer:
        self._current = function
        call: Callable[..., Any] | None = getattr(self._lib, function, None)
        if call is None:
            return Answer(FUNCTION_NOT_FOUND)
        started = time.perf_counter_ns()
        try:
            value = call(*args, **named)
        except self._lib.NVMLError as error:
            return Answer(error.value, None, (time.perf_counter_ns() - started) // 1000)
        except self._lib.NVMLLibraryMismatchError:
            return Answer(FUNCTION_NOT_FOUND)  # pynvml's word for an old driver that lacks a newer version of a call
        except (AttributeError, TypeError, ValueError):
            return Answer(UNKNOWN)  # a binding that does not fit costs this query alone
        return Answer(SUCCESS, value, (time.perf_counter_ns() - started) // 1000)

    def _memory(self, handle: Any) -> Answer:
        if self._memory_version:
            answer = self._call("nvmlDeviceGetMemoryInfo", (handle,), version=self._memory_version)
            if answer.code == SUCCESS:
                info: Any = answer.value
                names = ("total", "reserved", "used", "free")
                return answer._replace(value={"version": 2, **{n: int(getattr(info, n)) for n in names}})
            if answer.code not in NEVER_SUPPORTED:
                return answer
            self._memory_version = 0
        answer = self._call("nvmlDeviceGetMemoryInfo", (handle,))
        if answer.code != SUCCESS:
            return answer
        info = answer.value
        return answer._replace(value={"version": 1, **{n: int(getattr(info, n)) for n in ("total", "used", "free")}})

    def _ask_fields(self, names: tuple[str, ...]) -> dict[str, Answer]:
        """One batched call; every value carries its own return code, type and latency."""
        known = [name for name in names if name in self._field_ids]
        answers = {name: Answer(self._never.get(name, FUNCTION_NOT_FOUND)) for name in names if name not in known}
        if not known:
            return answers
        batch = self._call("nvmlDeviceGetFieldValues", (self._handle, [self._field_ids[name] for name in known]))
        if batch.code != SUCCESS:
            return answers | {name: Answer(batch.code) for name in known}
        values: Any = batch.value
        for name, value in zip(known, values, strict=True):
            answers[name] = read_field(name, value)
        return answers


def read_field(name: str, value: Any) -> Answer:
    """Decode one ``nvmlFieldValue_t`` by its own ``nvmlReturn`` and ``valueType``."""
    value_type = int(value.valueType)
    if value_type >= len(_VALUE_MEMBERS):
        return Answer(VERSION_MISMATCH)
    number = getattr(value.value, _VALUE_MEMBERS[value_type], 0)
    return field_answer(name, int(value.nvmlReturn), value_type, number, max(0, int(value.latencyUsec)))


def plain(value: Any, query: Query) -> object:
    """What is kept of a call's result, in the shape the query says."""
    if query.shape == "count":
        return len(value)
    if query.shape == "processes":
        return [{"pid": int(p.pid), "used": p.usedGpuMemory} for p in value]
    if query.names:
        if isinstance(value, tuple | list):
            return {name: int(part) for name, part in zip(query.names, value, strict=False)}
        return {name: int(getattr(value, name)) for name in query.names}
    return value.decode(errors="replace") if isinstance(value, bytes) else value
