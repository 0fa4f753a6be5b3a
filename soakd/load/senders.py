"""What starts requests: the streams of a closed loop, and the pacer of an open one."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator

from soakd.load.arrivals import Closed
from soakd.load.exchange import Exchange
from soakd.load.failure import ErrorClass
from soakd.load.flight import Flight

_BACKOFF_FIRST_S = 0.05
_BACKOFF_MOST_S = 1.0
_SENDS_AT_ONCE = 128


def share(whole: int, shard: int, shards: int) -> int:
    """A shard's part of a whole number; the parts add up to it."""
    return whole // shards + (shard < whole % shards)


class Streams:
    """The closed loop of one shard. Streams go on from stage to stage: only the difference starts or ends, so that a
    warm-up leads into the measurement without a gap."""

    def __init__(self, flight: Flight, shard: int, shards: int, seed: int) -> None:
        self.flight = flight
        self._shard = shard
        self._shards = shards
        self.rng = random.Random(f"{seed}:think:{shard}")
        self.arrivals: Closed | None = None
        self.stage = 0
        self.target = 0
        self.active = 0
        self.backing_off = 0

    def enter(self, stage: int, arrivals: Closed | None, duration_s: float) -> None:
        """``duration_s`` is real. None ends every stream after the request that it is in."""
        self.stage = stage
        self.arrivals = arrivals
        self.target = share(arrivals.concurrency, self._shard, self._shards) if arrivals else 0
        if arrivals is None:
            return
        spread_ns = int(min(arrivals.stagger_s, duration_s / 10) * 1e9)
        now, new = self.flight.clock.now_ns(), self.target - self.active
        for number in range(new):
            # all shards together start evenly: this one has every shards-th place
            place = (number * self._shards + self._shard) / (new * self._shards)
            stream = _Stream(self)
            self.active += 1
            stream.later(now + int(spread_ns * place))


class _Stream:
    """Sends, waits for the end, thinks or backs off, sends again."""

    __slots__ = ("_due", "_failures", "_streams", "_waiting")

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._failures = 0
        self._due = 0
        self._waiting = False

    def later(self, due_ns: int) -> None:
        self._due = due_ns
        self._waiting = True
        self._streams.flight.wait(1)
        self._streams.flight.clock.call_at(due_ns, self._go)

    def ended(self, exchange: Exchange) -> None:
        streams = self._streams
        now = streams.flight.clock.now_ns()
        if exchange.error in (ErrorClass.NONE, ErrorClass.EMPTY_ANSWER, ErrorClass.CANCELLED):
            if self._failures:
                self._failures = 0
                streams.backing_off -= 1
            think = self._think_ns(streams)
            if think:
                self.later(now + think)
            else:
                self._due = now
                self._go()
            return
        if not self._failures:
            streams.backing_off += 1
        self._failures += 1
        pause = min(_BACKOFF_MOST_S, _BACKOFF_FIRST_S * 2 ** min(self._failures - 1, 10))
        # without the jitter all streams of a server that came back would hit it in step
        self.later(now + int(pause * streams.rng.uniform(0.75, 1.0) * 1e9))

    def _think_ns(self, streams: Streams) -> int:
        arrivals = streams.arrivals
        if arrivals is None or not arrivals.think_s:
            return 0
        seconds = streams.rng.expovariate(1 / arrivals.think_s) if arrivals.think_random else arrivals.think_s
        return int(seconds * 1e9)

    def _go(self) -> None:
        streams = self._streams
        if self._waiting:
            self._waiting = False
            streams.flight.wait(-1)
        if streams.active > streams.target:
            streams.active -= 1
            if self._failures:
                streams.backing_off -= 1
            return
        if not streams.flight.launch(self._due, streams.stage, self):
            self.later(streams.flight.clock.now_ns() + int(_BACKOFF_MOST_S * 1e9))


class Pacer:
    """Sends at the intended times of one stage; one that is late sends what is overdue at once and forfeits nothing."""

    def __init__(self, flight: Flight, stage: int, start_ns: int, offsets_s: Iterator[float]) -> None:
        self._flight = flight
        self._stage = stage
        self._start_ns = start_ns
        self._offsets = offsets_s
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle | None = None
        self._due_ns = 0
        self.finished = asyncio.Event()

    @property
    def done(self) -> bool:
        return self.finished.is_set()

    def begin(self) -> None:
        if self._draw():
            self._arm()

    def stop(self) -> None:
        self.finished.set()
        if self._timer is not None:
            self._timer.cancel()

    def _draw(self) -> bool:
        offset = next(self._offsets, None)
        if offset is None:
            self.finished.set()
            return False
        self._due_ns = self._start_ns + int(offset * 1e9)
        return True

    def _arm(self) -> None:
        self._timer = self._flight.clock.call_at(self._due_ns, self._fire)

    def _fire(self) -> None:
        for _ in itertools.repeat(None, _SENDS_AT_ONCE):
            if self._due_ns > self._flight.clock.now_ns():
                self._arm()
                return
            self._flight.launch(self._due_ns, self._stage, None)
            if not self._draw():
                return
        # answers must be read between bursts, or the sender itself would age them
        self._timer = self._loop.call_soon(self._fire)


def every(offsets: Iterator[float], shard: int, shards: int) -> Iterator[float]:
    """A shard's share of the intended times: every ``shards``-th, so that all together are exactly the whole."""
    return itertools.islice(offsets, shard, None, shards)
