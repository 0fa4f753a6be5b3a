"""One worker's run: stage after stage at times fixed from the origin, windows and ticks reported as they end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from soakd.load.arrivals import Closed, Idle, due_times
from soakd.load.canary_rounds import CanaryRounds
from soakd.load.flight import Flight, Second
from soakd.load.histogram import Histogram
from soakd.load.meter import Meter
from soakd.load.reports import (
    CanaryPart,
    ReplicaTally,
    ReplicaTick,
    Report,
    Tally,
    TickPart,
    WindowPart,
    pack_histograms,
)
from soakd.load.runclock import RunClock
from soakd.load.senders import Pacer, Streams, every
from soakd.load.spec import LoadSpec

_PROBE_NS = 20_000_000
_SWEEP_S = 0.25
_SECOND_NS = 1_000_000_000


def window_ends(duration_ns: int, window_ns: int) -> list[int]:
    """Where the windows of a stage end, as offsets: all of one length but for the last, which is at least half and at
    most one and a half of it."""
    count = max(1, (2 * duration_ns + window_ns) // (2 * window_ns))
    return [number * window_ns for number in range(1, count)] + [duration_ns]


class Engine:
    """``emit`` takes reports and never blocks. ``run`` returns once all is sent, ended and reported."""

    def __init__(
        self, spec: LoadSpec, shard: int, shards: int, flight: Flight, clock: RunClock, emit: Callable[[Report], None]
    ) -> None:
        self._spec = spec
        self._shard = shard
        self._shards = shards
        self._flight = flight
        self._clock = clock
        self._emit = emit
        self._streams = Streams(flight, shard, shards, spec.seed)
        self._pacers: list[Pacer] = []
        self._stop = asyncio.Event()
        self._grace_s = spec.drain_s
        self._loop = asyncio.get_running_loop()
        self._window = 0
        self._second = 0
        self._window_start_ns = 0
        self._cpu_ns = 0
        self._lag_ns = 0
        self._finished = False
        self._draining = False
        self._canaries = CanaryRounds(spec.canary, flight, self._canary_answer) if spec.canary and not shard else None

    def stop(self, grace_s: float) -> None:
        """Send nothing more; what is in flight may end within ``grace_s`` real seconds."""
        self._grace_s = min(self._grace_s, grace_s)
        self._stop.set()

    async def run(self) -> bool:
        """True when it was stopped before its stages were over."""
        start = self._clock.origin_ns
        stopped = await self._until(start)
        self._window_start_ns, self._cpu_ns = self._clock.now_ns(), time.process_time_ns()
        self._flight.take_areas(self._window_start_ns)
        self._probe(self._clock.now_ns())
        self._sweep()
        self._tick_later()
        for number in range(len(self._spec.stages)):
            if stopped:
                break
            stopped, start = await self._stage(number, start)
        self._streams.enter(self._flight.stage, None, 0)
        if stopped:
            for pacer in self._pacers:
                pacer.stop()
        if self._canaries is not None:
            self._canaries.pause()
        await self._drain()
        self._finished = True
        self._tick()
        self._cut()
        return stopped

    async def _stage(self, number: int, start_ns: int) -> tuple[bool, int]:
        stage = self._spec.stages[number]
        length = self._clock.real_ns(stage.duration_s)
        self._flight.enter(number)
        self._pacers = [pacer for pacer in self._pacers if not pacer.done]
        arrivals = stage.arrivals
        self._streams.enter(number, arrivals if isinstance(arrivals, Closed) else None, length / 1e9)
        if not isinstance(arrivals, Closed | Idle):
            offsets = due_times(arrivals, length / 1e9, f"{self._spec.seed}:{number}")
            pacer = Pacer(self._flight, number, start_ns, every(offsets, self._shard, self._shards))
            self._pacers.append(pacer)
            pacer.begin()
        if self._canaries is not None:
            if isinstance(arrivals, Idle):
                self._canaries.pause()
            else:
                self._canaries.go(self._clock.speed)
        window = max(self._clock.real_ns(self._spec.window_s), _SECOND_NS)
        for end in window_ends(length, window):
            if await self._until(start_ns + end):
                return True, start_ns + length
            self._cut()
        return False, start_ns + length

    async def _until(self, due_ns: int) -> bool:
        """Wait for a monotonic time; True when the run was stopped first."""
        try:
            async with asyncio.timeout(max(0.0, (due_ns - self._clock.now_ns()) / 1e9)):
                await self._stop.wait()
        except TimeoutError:
            pass
        return self._stop.is_set()

    async def _drain(self) -> None:
        """Windows go on while requests end; what is left after the grace is cut off."""
        self._draining = True
        window = max(self._clock.real_ns(self._spec.window_s), _SECOND_NS)
        now = self._clock.now_ns()
        deadline, cut = now + int(self._grace_s * 1e9), now + window
        quiet = asyncio.ensure_future(self._quiet())
        stop = asyncio.ensure_future(self._stop.wait())
        waiting = {quiet} if self._stop.is_set() else {quiet, stop}
        while not quiet.done() and now < deadline:
            await asyncio.wait(
                waiting, timeout=max(0.0, (min(deadline, cut) - now) / 1e9), return_when=asyncio.FIRST_COMPLETED
            )
            now = self._clock.now_ns()
            if stop in waiting and stop.done():
                waiting = {quiet}
                deadline = min(deadline, now + int(self._grace_s * 1e9))
            if now >= cut:
                self._cut()
                cut += window
        quiet.cancel()
        stop.cancel()
        for pacer in self._pacers:
            pacer.stop()
        self._flight.cancel_all()

    async def _quiet(self) -> bool:
        for pacer in self._pacers:
            await pacer.finished.wait()
        return await self._flight.quiet.wait()

    def _probe(self, due_ns: int) -> None:
        """How late the loop calls: what every stamp and every send may be off by."""
        now = self._clock.now_ns()
        lag = max(0, now - due_ns)
        self._flight.meter(self._flight.stage).histograms.loop_lag.record(lag)
        self._lag_ns = max(self._lag_ns, lag)
        if not self._finished:
            self._clock.call_at(now + _PROBE_NS, lambda: self._probe(now + _PROBE_NS))

    def _sweep(self) -> None:
        self._flight.check_timeouts()
        if not self._finished:
            self._loop.call_later(_SWEEP_S, self._sweep)

    def _tick_later(self) -> None:
        if not self._finished:
            self._second += 1
            self._clock.call_at(self._clock.origin_ns + self._second * _SECOND_NS, self._on_second)

    def _on_second(self) -> None:
        if not self._finished:
            self._tick()
            self._tick_later()

    def _tick(self) -> None:
        flight = self._flight
        replicas = tuple(_replica_tick(second) for second in flight.seconds)
        self._emit(
            TickPart(
                self._second, flight.stage, flight.offered, flight.started, flight.completed, flight.failed,
                flight.dropped, flight.tokens_out, flight.in_flight, self._streams.backing_off, self._lag_ns / 1e9,
                flight.ttft_second.encode(), replicas,
            )
        )  # fmt: skip
        flight.seconds = [Second() for _ in flight.seconds]
        flight.ttft_second = Histogram()
        self._lag_ns = 0

    def _cut(self) -> None:
        flight, now, cpu = self._flight, self._clock.now_ns(), time.process_time_ns()
        in_flight_s, waiting_s = flight.take_areas(now)
        meters = flight.new_window()
        closed = isinstance(self._spec.stages[flight.stage].arrivals, Closed)
        self._emit(
            WindowPart(
                index=self._window,
                stage=flight.stage,
                start_ns=self._clock.wall_ns(self._window_start_ns),
                end_ns=self._clock.wall_ns(now),
                real_s=(now - self._window_start_ns) / 1e9,
                in_flight_s=in_flight_s,
                waiting_s=waiting_s,
                asked=self._streams.target if closed and self._streams.target else None,
                cpu_s=(cpu - self._cpu_ns) / 1e9,
                reads=sum(meter.reads for meter in meters.values()),
                coalesced=sum(meter.coalesced_reads for meter in meters.values()),
                tallies=tuple(_tally(stage, meter) for stage, meter in sorted(meters.items())),
                draining=self._draining,
                records=bytes(flight.records),
            )
        )
        flight.records = bytearray()
        self._window += 1
        self._window_start_ns, self._cpu_ns = now, cpu

    def _canary_answer(self, prompt_id: str, text: str, error: str) -> None:
        self._emit(CanaryPart(prompt_id, self._clock.wall_ns(self._clock.now_ns()), text, error))


def _tally(stage: int, meter: Meter) -> Tally:
    replicas = tuple(
        ReplicaTally(r.completed, r.failed, r.tokens_out, r.ttft.encode(), r.e2e.encode()) for r in meter.replicas
    )
    return Tally(stage, meter.counts(), pack_histograms(meter.histograms), replicas)


def _replica_tick(second: Second) -> ReplicaTick:
    return ReplicaTick(
        second.completed, second.failed, second.down, second.retried, second.first_down_ns, second.back_ns,
        second.why, second.e2e.encode(),
    )  # fmt: skip
