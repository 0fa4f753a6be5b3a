"""The requests in flight of one worker: sent, counted, limited, and let go. Nothing here grows with their number."""

from __future__ import annotations

import asyncio

from soakd.load.exchange import Exchange, Owner
from soakd.load.failure import DOWN, ErrorClass, Finish
from soakd.load.histogram import Histogram
from soakd.load.meter import Meter, absorb_gaps
from soakd.load.prompts import Prompt, PromptSource
from soakd.load.records import RETRIED, REUSED_CONNECTION, USAGE_MISSING, WARM_PREFIX, Record, pack
from soakd.load.runclock import RunClock
from soakd.load.spec import LoadSpec
from soakd.load.transport import Transport
from soakd.targets.base import Adapter, Usage

_NO_USAGE = Usage(None, None)
_SHORTEST_SECRET = 6


class Second:
    """What the last real second brought for one replica. ``back_ns`` is the first success of a
    request that was sent after a failure."""

    __slots__ = (
        "back_ns", "completed", "down", "e2e", "failed", "first_down_ns", "retried", "why",
    )  # fmt: skip

    def __init__(self) -> None:
        self.completed = self.failed = self.down = self.retried = 0
        self.first_down_ns: int | None = None
        self.back_ns: int | None = None
        self.why = ""
        self.e2e = Histogram()


class Flight:
    """Launches requests for one shard. ``cap`` is the shard's share of the cap on requests in flight."""

    def __init__(
        self, spec: LoadSpec, shard: int, cap: int, adapter: Adapter, source: PromptSource, transport: Transport,
        clock: RunClock,
    ) -> None:  # fmt: skip
        self._spec = spec
        self._shard = shard
        self._cap = cap
        self._adapter = adapter
        self._source = source
        self._transport = transport
        self.clock = clock
        self._extra = spec.target.extra_body.encode()
        self._replicas = len(spec.target.urls)
        values = (spec.target.api_key, *(value for _, value in spec.target.headers))
        self._secrets = tuple(value for value in values if len(value) >= _SHORTEST_SECRET)
        self._turn = shard
        self._loads: set[Exchange] = set()
        self._canaries: set[Exchange] = set()
        self._changed_ns = clock.now_ns()
        self._area_ns = 0
        self._waiting = 0
        self._waiting_area_ns = 0
        self.stage = 0
        self.meters: dict[int, Meter] = {}
        self.records = bytearray()
        self.offered = self.started = self.completed = self.failed = self.dropped = self.tokens_out = 0
        self.ttft_second = Histogram()
        self.seconds = [Second() for _ in range(self._replicas)]
        self._down_since: list[int | None] = [None] * self._replicas
        self._now_meter = self.meter(0)
        self.quiet = asyncio.Event()
        self.quiet.set()

    @property
    def in_flight(self) -> int:
        return len(self._loads)

    def meter(self, stage: int) -> Meter:
        found = self.meters.get(stage)
        if found is None:
            found = self.meters[stage] = Meter(self._replicas)
        return found

    def enter(self, stage: int) -> None:
        self.stage = stage
        self._now_meter = self.meter(stage)

    def new_window(self) -> dict[int, Meter]:
        """Hand over the tallies and begin new ones."""
        old, self.meters = self.meters, {}
        self._now_meter = self.meter(self.stage)
        return old

    def take_areas(self, now_ns: int) -> tuple[float, float]:
        """Request-seconds in flight and stream-seconds waiting since the last call."""
        self._integrate(now_ns)
        areas = self._area_ns / 1e9, self._waiting_area_ns / 1e9
        self._area_ns = self._waiting_area_ns = 0
        return areas

    def wait(self, streams: int) -> None:
        """So many more streams of the closed loop think or back off (fewer when negative)."""
        self._integrate(self.clock.now_ns())
        self._waiting += streams

    def launch(self, due_ns: int, stage: int, owner: Owner | None) -> bool:
        """Send the next prompt. False when the cap is reached: the request is then dropped and counted."""
        meter = self.meter(stage)
        meter.offered += 1
        self.offered += 1
        if len(self._loads) >= self._cap:
            meter.dropped += 1
            self.dropped += 1
            return False
        prompt = self._source.take()
        now = self.clock.now_ns()
        self._integrate(now)
        # lateness of the generator alone: opening a connection is the server's and the network's time
        meter.histograms.send_lag.record(now - due_ns)
        self.quiet.clear()
        exchange = self._exchange(prompt, due_ns, stage, owner, want_text=prompt.session is not None)
        self._loads.add(exchange)
        self._send(exchange)
        return True

    def ask_canary(self, prompt: Prompt, owner: Owner) -> None:
        """Canaries are neither counted with the load nor held to its cap."""
        self.quiet.clear()
        exchange = self._exchange(prompt, self.clock.now_ns(), self.stage, owner, want_text=True)
        self._canaries.add(exchange)
        self._send(exchange)

    def check_timeouts(self) -> None:
        now = self.clock.now_ns()
        for exchange in (*self._loads, *self._canaries):
            exchange.check(now, self._spec.timeouts)

    def cancel_all(self) -> None:
        now = self.clock.now_ns()
        for exchange in (*self._loads, *self._canaries):
            exchange.cancel(now)

    def _exchange(self, prompt: Prompt, due_ns: int, stage: int, owner: Owner | None, *, want_text: bool) -> Exchange:
        self._turn += 1
        replica = self._turn % self._replicas
        exchange = Exchange(self, self._adapter, prompt, due_ns, stage, replica, owner, want_text)
        # a request sent late has had no time yet to connect
        exchange.last_read = self.clock.now_ns()
        return exchange

    def _send(self, exchange: Exchange) -> None:
        body = self._adapter.body(self._spec.target.model, exchange.prompt, self._extra)
        exchange.handle = self._transport.send(exchange.replica, body, exchange)

    def _integrate(self, now_ns: int) -> None:
        passed = now_ns - self._changed_ns
        if passed > 0:
            self._area_ns += len(self._loads) * passed
            self._waiting_area_ns += self._waiting * passed
            self._changed_ns = now_ns

    # what exchanges tell

    def sent(self, exchange: Exchange) -> None:
        if exchange in self._canaries or exchange.retried:
            return
        meter = self.meter(exchange.stage)
        meter.started += 1
        self.started += 1

    def read(self) -> None:
        self._now_meter.reads += 1

    def gap(self, gap_ns: int, coalesced: bool) -> None:
        meter = self._now_meter
        meter.histograms.gap.record(gap_ns)
        if coalesced:
            meter.coalesced_reads += 1

    def ended(self, exchange: Exchange) -> None:
        owner = exchange.owner
        if exchange in self._canaries:
            self._canaries.discard(exchange)
        else:
            end = exchange.end or self.clock.now_ns()
            self._integrate(self.clock.now_ns())
            self._loads.discard(exchange)
            self._count(exchange, end)
            succeeded = exchange.error is ErrorClass.NONE
            self._source.done(exchange.prompt, exchange.answer if succeeded else None)
        if owner is not None:
            owner.ended(exchange)
        if not (self._loads or self._canaries):
            self.quiet.set()

    def _count(self, exchange: Exchange, end: int) -> None:
        meter = self.meter(exchange.stage)
        second = self.seconds[exchange.replica]
        if exchange.retried:
            meter.retried += 1
            second.retried += 1
        meter.chunks += exchange.chunks
        if exchange.error is ErrorClass.CANCELLED:
            meter.cancelled += 1
        elif exchange.error is not ErrorClass.NONE:
            self._count_failure(exchange, meter, second, end)
        else:
            self._count_success(exchange, meter, second, end)
        if self._spec.records:
            self.records += pack(self._record(exchange, end))

    def _count_failure(self, exchange: Exchange, meter: Meter, second: Second, end: int) -> None:
        label = exchange.error.label(exchange.status)
        meter.failed += 1
        self.failed += 1
        meter.count_error(label)
        meter.replicas[exchange.replica].failed += 1
        second.failed += 1
        if exchange.error in DOWN or exchange.status in (502, 504):
            second.down += 1
        if self._down_since[exchange.replica] is None:
            self._down_since[exchange.replica] = end
        if second.first_down_ns is None:
            second.first_down_ns = self.clock.wall_ns(end)
            second.why = self._scrubbed(f"{label}: {exchange.detail}")[:200]

    def _scrubbed(self, text: str) -> str:
        """Servers repeat what they were sent in their errors: a key must not come back that way."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def _count_success(self, exchange: Exchange, meter: Meter, second: Second, end: int) -> None:
        histograms, due = meter.histograms, exchange.due
        first, last = exchange.first_token or end, exchange.last_token
        sent = due if exchange.sent is None else exchange.sent
        meter.completed += 1
        self.completed += 1
        histograms.ttft.record(first - sent)
        histograms.ttft_from_due.record(first - due)
        (histograms.cold_ttft if exchange.prompt.cold else histograms.warm_ttft).record(first - sent)
        if exchange.first_content is not None:
            histograms.content_ttft.record(exchange.first_content - sent)
        histograms.e2e.record(end - due)
        tokens = exchange.tokens_out
        if exchange.gaps:
            later = exchange.chunks - 1 if tokens is None else tokens - 1
            absorb_gaps(
                histograms.itl, exchange.gaps, last - first, exchange.shortest_gap, exchange.longest_gap, later
            )  # fmt: skip
            if later > 0:
                histograms.tpot.record((last - first) // later)
        replica = meter.replicas[exchange.replica]
        replica.completed += 1
        replica.ttft.record(first - sent)
        replica.e2e.record(end - due)
        if tokens is None:
            meter.usage_missing += 1
        else:
            meter.tokens_out += tokens
            self.tokens_out += tokens
            replica.tokens_out += tokens
        usage = exchange.usage or _NO_USAGE
        meter.tokens_in += usage.prompt_tokens or 0
        meter.cached_tokens += usage.cached_tokens or 0
        meter.reasoning_tokens += usage.reasoning_tokens or 0
        meter.count_finish(exchange.finish or Finish.MISSING)
        meter.count_tag(exchange.prompt.tag)
        self.ttft_second.record(first - due)
        second.completed += 1
        second.e2e.record(end - due)
        down = self._down_since[exchange.replica]
        if down is not None and sent > down:
            # an answer that was under way when the others were lost does not mean that the server is back
            self._down_since[exchange.replica] = None
            if second.back_ns is None:
                second.back_ns = self.clock.wall_ns(end)

    def _record(self, exchange: Exchange, end: int) -> Record:
        due, usage = exchange.due, exchange.usage or _NO_USAGE

        def after(stamp: int | None) -> float | None:
            return None if stamp is None else (stamp - due) / 1e9

        tokens = exchange.tokens_out
        flags = USAGE_MISSING * (tokens is None) | RETRIED * exchange.retried | REUSED_CONNECTION * exchange.reused
        flags |= WARM_PREFIX * (not exchange.prompt.cold)
        gap = exchange.longest_gap / 1e9 if exchange.gaps else None
        return Record(
            self.clock.wall_ns(due), after(exchange.sent), after(exchange.first_byte), after(exchange.first_token),
            after(exchange.first_content), after(end), gap, usage.prompt_tokens, tokens, usage.cached_tokens,
            usage.reasoning_tokens, exchange.chunks, exchange.status, exchange.stage, exchange.error,
            exchange.finish or Finish.MISSING, exchange.replica, self._shard, flags, exchange.prompt.tag,
        )  # fmt: skip
