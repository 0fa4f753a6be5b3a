"""The load worker: ``python -m soakd.load.worker``, started by `soakd.load.driver`.

Reads a job and then orders from stdin, writes reports to stdout, both as length-prefixed JSON, and logs to stderr.
It dies when its stdin closes, because then its owner is dead.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import uvloop
from pydantic import ValidationError

from soakd.errors import SoakdError
from soakd.load.arrivals import Closed
from soakd.load.engine import Engine
from soakd.load.flight import Flight
from soakd.load.prompts import build_source
from soakd.load.records import SIZE
from soakd.load.reports import (
    Ended,
    Fault,
    Ready,
    Report,
    Start,
    TickPart,
    WindowPart,
    decode_order,
    encode_report,
    read_frame,
)
from soakd.load.runclock import RunClock
from soakd.load.senders import share
from soakd.load.spec import Job, LoadSpec, job_from_json
from soakd.load.transport import Transport, make_transport, pick
from soakd.targets.base import find_adapter

_WARM_MOST = 512
_WARM_MOST_S = 5.0
_TICKS_UNTIL = 8 * 1024 * 1024
_RECORDS_UNTIL = 16 * 1024 * 1024
_GIVE_UP_AT = 128 * 1024 * 1024
_ORPHANED = 3

ExceptionHandler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]


class Outlet:
    """Reports to the owner. One that reads slowly loses ticks first, then records, which are counted; never windows."""

    def __init__(self, pipe: asyncio.WriteTransport, drained: asyncio.Event) -> None:
        self._pipe = pipe
        self._drained = drained
        pipe.set_write_buffer_limits(high=0)

    def emit(self, report: Report) -> None:
        waiting = self._pipe.get_write_buffer_size()
        if waiting > _GIVE_UP_AT:
            # nobody has read for hours: an orphan that holds its stdin open
            os._exit(_ORPHANED)
        if isinstance(report, TickPart) and waiting > _TICKS_UNTIL:
            return
        if isinstance(report, WindowPart) and waiting > _RECORDS_UNTIL:
            report = without_records(report)
        self._pipe.write(encode_report(report))

    async def flush(self) -> None:
        await self._drained.wait()


class _PipeEnd(asyncio.Protocol):
    """Knows whether everything written has left."""

    def __init__(self) -> None:
        self.drained = asyncio.Event()
        self.drained.set()

    def pause_writing(self) -> None:
        self.drained.clear()

    def resume_writing(self) -> None:
        self.drained.set()


def without_records(part: WindowPart) -> WindowPart:
    """The window with its records counted instead of carried."""
    return replace(part, records=b"", records_dropped=part.records_dropped + len(part.records) // SIZE)


async def _pipes() -> tuple[asyncio.StreamReader, Outlet]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=2**26)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(0), "rb", 0))
    pipe, end = await loop.connect_write_pipe(_PipeEnd, os.fdopen(os.dup(1), "wb", 0))
    return reader, Outlet(pipe, end.drained)


async def _main() -> int:
    reader, outlet = await _pipes()
    raw = await read_frame(reader)
    if raw is None:
        return _ORPHANED
    try:
        await _serve(job_from_json(raw), reader, outlet)
    except SoakdError as error:
        outlet.emit(Fault(str(error)))
    except ValidationError as error:
        # the document holds the key: say what is wrong with it, not what is in it
        outlet.emit(Fault(f"the job is not valid: {error.error_count()} faults, first at {error.errors()[0]['loc']}"))
    await outlet.flush()
    return 0


async def _serve(job: Job, reader: asyncio.StreamReader, outlet: Outlet) -> None:
    spec = job.spec
    adapter = find_adapter(spec.target.adapter)
    source = build_source(spec.prompts, spec.seed, job.shard, job.shards)
    transport = make_transport(spec.target, adapter.path, spec.transport)
    try:
        await _warm(transport, min(_WARM_MOST, _first_concurrency(spec, job)), spec.timeouts.connect_s)
        outlet.emit(Ready(pick(spec.target, spec.transport)))
        order = await read_frame(reader)
        if order is None:
            os._exit(_ORPHANED)
        begin = decode_order(order)
        if not isinstance(begin, Start):
            outlet.emit(Ended(True, _rss_bytes()))
            return
        clock = RunClock(spec.clock, begin.origin_ns)
        flight = Flight(spec, job.shard, _cap(job), adapter, source, transport, clock)
        engine = Engine(spec, job.shard, job.shards, flight, clock, outlet.emit)
        # what is alive now lives as long as the worker: a full collection need not walk it in mid-measurement
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 50, 100)
        orders = asyncio.create_task(_obey(reader, engine))
        running = asyncio.create_task(engine.run())
        asyncio.get_running_loop().set_exception_handler(_first_fault(running, outlet))
        await asyncio.wait([running])
        orders.cancel()
        if not running.cancelled():
            outlet.emit(Ended(running.result(), _rss_bytes()))
    finally:
        await transport.close()


async def _warm(transport: Transport, connections: int, connect_s: float) -> None:
    try:
        async with asyncio.timeout(min(connect_s, _WARM_MOST_S)):
            await transport.warm(connections)
    except TimeoutError:
        return


async def _obey(reader: asyncio.StreamReader, engine: Engine) -> None:
    while (raw := await read_frame(reader)) is not None:
        order = decode_order(raw)
        if not isinstance(order, Start):
            engine.stop(order.grace_s)
    os._exit(_ORPHANED)


def _first_fault(running: asyncio.Task[bool], outlet: Outlet) -> ExceptionHandler:
    """An exception in a callback ends the worker with a word of it: a load that is partly broken measures nothing."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        loop.default_exception_handler(context)
        error = context.get("exception")
        if error is not None and not running.done():
            outlet.emit(Fault(f"{type(error).__name__}: {error}"))
            running.cancel()

    return handle


def _cap(job: Job) -> int:
    """A closed loop is a cap of its own, so that it is never held below the concurrency asked."""
    closed = [s.arrivals.concurrency for s in job.spec.stages if isinstance(s.arrivals, Closed)]
    return max(1, share(max([job.spec.max_in_flight, *closed]), job.shard, job.shards))


def _first_concurrency(spec: LoadSpec, job: Job) -> int:
    for stage in spec.stages:
        if isinstance(stage.arrivals, Closed):
            return share(stage.arrivals.concurrency, job.shard, job.shards)
    return 8


def _rss_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    # os._exit: a name lookup stuck in a thread must not keep the process alive
    code = 1
    try:
        code = uvloop.run(_main())
    except asyncio.CancelledError:
        code = 1
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
