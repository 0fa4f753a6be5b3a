"""Journal to databases: one route a sink, all on an event loop in a thread of their own.

Encoding, compression and reading the journal take their time; in a thread of its own none of it holds the loop that
measures, and a database or a disk that hangs does not hold the end of the process.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from soakd.clock import RealClock
from soakd.errors import JournalError, SoakdError
from soakd.forward.courier import Courier
from soakd.forward.route import Route
from soakd.forward.status import Condition, SinkStatus, samples
from soakd.journal import Journal, JournalTail
from soakd.ports import Clock
from soakd.sinks.delivery import DeliveryConfig, LineSink

log = structlog.get_logger(__name__)
_REPORT_EVERY_S = 15.0
_STOP_S = 5.0
_GRACE_S = 1.0


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """A configured sink. ``build`` is called inside the forwarder's loop and may raise SoakdError."""

    config: DeliveryConfig
    build: Callable[[], LineSink]


class Forwarder:
    """Start it once the journal is open, stop it before the journal is closed."""

    def __init__(
        self, journal: Journal, directory: Path, sinks: Mapping[str, SinkSpec], clock: Clock | None = None
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._specs = dict(sinks)
        self._clock: Clock = clock or RealClock()
        self._couriers: dict[str, Courier] = {}
        self._routes: dict[str, Route] = {}
        self._failed: dict[str, SinkStatus] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = threading.Event()
        self._ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="soakd-forward", daemon=True)

    def start(self) -> None:
        self._journal.keep_cursors(self._specs)
        self._thread.start()

    def status(self) -> tuple[SinkStatus, ...]:
        """Of every sink, in the order they were given."""
        found = {**{name: courier.status for name, courier in self._couriers.items()}, **self._failed}
        return tuple(found.get(name, SinkStatus(name)) for name in self._specs)

    async def stop(self, within_s: float = _STOP_S) -> None:
        """End every route; what was under way is repeated at the next start. Returns in time even if a sink hangs."""
        self._stopping.set()
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has just closed by itself
                loop.call_soon_threadsafe(self._stop_couriers)
        if not self._thread.is_alive():
            return
        try:
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(self._ended)), within_s)
        except TimeoutError:
            log.warning("the forwarder did not end in time and is left behind", seconds=within_s)

    # What follows runs in the forwarder's thread.

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        finally:
            self._ended.set_result(None)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        reporter = asyncio.create_task(self._report())
        tasks = {asyncio.create_task(self._serve(name, spec)): name for name, spec in self._specs.items()}
        if self._stopping.is_set():
            self._stop_couriers()
        if tasks:
            done, _ = await asyncio.wait(tasks)
            for task in done:
                error = task.exception()
                if error is not None:
                    log.error("forwarding ended by an error", sink=tasks[task], error=repr(error))
        reporter.cancel()

    async def _serve(self, name: str, spec: SinkSpec) -> None:
        try:
            tail, sink = JournalTail(self._directory), spec.build()
        except SoakdError as error:
            why = str(error)
            self._failed[name] = SinkStatus(name, Condition.STOPPED, self._clock.wall_ns(), why)
            log.error("a sink can't be used", sink=name, why=why)
            return
        courier = self._couriers[name] = Courier(
            name,
            sink,
            spec.config.batch_rows,
            self._clock,
            lambda event: self._journal.add([event]),
            self._journal.set_aside,
            random.random,
        )
        if self._stopping.is_set():
            courier.stop()
        try:
            cursor = tail.cursor(name)
            self._journal.set_cursor(cursor)  # from now on retention knows that this sink waits
            route = Route(tail, courier, cursor, spec.config, self._clock, self._journal.set_cursor)
            self._routes[name] = route
            await self._until_stopped(route.run(), courier)
        except BaseException as error:
            self._failed[name] = replace(courier.status, condition=Condition.STOPPED, why=repr(error))
            raise
        finally:
            self._routes.pop(name, None)
            tail.close()
            await sink.close()

    async def _until_stopped(self, running: Coroutine[object, object, None], courier: Courier) -> None:
        """A write under way is given up when the stop comes: it is repeated at the next start."""
        route = asyncio.ensure_future(running)
        stopped = asyncio.ensure_future(courier.stopped())
        await asyncio.wait((route, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not route.done():
            await asyncio.wait((route,), timeout=_GRACE_S)
            route.cancel()
        with suppress(asyncio.CancelledError):
            await route

    async def _report(self) -> None:
        while True:
            await self._clock.sleep(_REPORT_EVERY_S)
            for route in self._routes.values():
                with suppress(JournalError):  # said by the route itself, at its next step
                    route.measure()
            now = self._clock.wall_ns()
            self._journal.add([sample for status in self.status() for sample in samples(status, now)])

    def _stop_couriers(self) -> None:
        for courier in self._couriers.values():
            courier.stop()
