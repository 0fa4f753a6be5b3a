"""Stand-ins for what surrounds the load engine: a server as a function of time, a source of prompts, a listener."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from soakd.load.arrivals import Arrivals
from soakd.load.exchange import Exchange
from soakd.load.failure import ErrorClass
from soakd.load.flight import Flight
from soakd.load.histogram import Histogram
from soakd.load.prompts import ASSUMED, Message, Prompt, PromptSpec
from soakd.load.reports import Report, WindowPart, unpack_histograms
from soakd.load.spec import LoadSpec, Stage, TargetSpec
from soakd.load.transport import Handle, Sink
from soakd.targets.base import find_adapter
from tests.support.virtual_time import VirtualLoop, virtual_clock, virtual_loop

PROMPTS = PromptSpec("mixture", "{}", ASSUMED)
HEAD = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}\n\n'
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


def usage(tokens: int) -> bytes:
    return b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":%d}}\n\n' % tokens


def a_prompt(session: int | None = None, text: str = "hello") -> Prompt:
    return Prompt((Message("user", text),), 16, "short", 1, session=session)


def a_spec(*stages: Stage, urls: Sequence[str] = ("http://127.0.0.1:1",), **options: object) -> LoadSpec:
    return LoadSpec(TargetSpec(tuple(urls), model="m"), stages, PROMPTS, **options)  # type: ignore[arg-type]


def a_stage(arrivals: Arrivals, seconds: float, name: str = "hold", measured: bool = True) -> Stage:
    return Stage(name, arrivals, seconds, measured)


class OnePrompt:
    """Always the same prompt; remembers the answers."""

    def __init__(self, prompt: Prompt | None = None) -> None:
        self.prompt = prompt or a_prompt()
        self.answers: list[str | None] = []
        self.taken = 0

    def take(self) -> Prompt:
        self.taken += 1
        return self.prompt

    def done(self, prompt: Prompt, answer: str | None) -> None:
        self.answers = [*self.answers[-99:], answer]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the fake server does with a request: tokens at set times, or a failure after ``ttft_s``."""

    ttft_s: float = 0.05
    itl_s: float = 0.01
    tokens: int = 4
    error: ErrorClass = ErrorClass.NONE
    status: int = 200
    words: str = "no"


class FakeServer:
    """A transport on virtual time. ``behave`` gives the answer by the loop's time (seconds from the start)."""

    def __init__(self, behave: Callable[[float], Answer] = lambda _: Answer()) -> None:
        self._loop: VirtualLoop = virtual_loop()
        self._start = self._loop.time()
        self._behave = behave
        self.active = 0
        self.peak = 0
        self.seen = 0

    def send(self, replica: int, body: bytes, sink: Sink) -> Handle:
        self.seen += 1
        answer = self._behave(self._loop.time() - self._start)
        if answer.error is not ErrorClass.CONNECT:
            sink.on_sent(self._loop.now_ns(), self.seen > 1)
        return _Answering(self, sink, answer, self._loop)

    async def warm(self, connections: int) -> None:
        return

    async def close(self) -> None:
        return


class _Answering:
    def __init__(self, server: FakeServer, sink: Sink, answer: Answer, loop: VirtualLoop) -> None:
        self._server = server
        self._sink: Sink | None = sink
        self._answer = answer
        self._loop = loop
        self._left = answer.tokens
        server.active += 1
        server.peak = max(server.peak, server.active)
        loop.call_later(answer.ttft_s, self._first)

    def abort(self) -> None:
        self._over()

    def _over(self) -> Sink | None:
        sink, self._sink = self._sink, None
        if sink is not None:
            self._server.active -= 1
        return sink

    def _first(self) -> None:
        if self._sink is None:
            return
        now = self._loop.now_ns()
        if self._answer.error is not ErrorClass.NONE:
            sink = self._over()
            assert sink is not None
            sink.on_failure(self._answer.error, "as the test wants", now)
            return
        self._sink.on_head(self._answer.status, "text/event-stream", now)
        if self._answer.status != 200:
            self._sink.on_body(b'{"error":{"message":"%s"}}' % self._answer.words.encode(), now)
            self._end(now)
            return
        self._sink.on_body(HEAD, now)
        self._token()

    def _token(self) -> None:
        if self._sink is None:
            return
        now = self._loop.now_ns()
        if not self._left:
            self._sink.on_body(STOP + usage(self._answer.tokens) + DONE, now)
            self._end(now)
            return
        self._left -= 1
        self._sink.on_body(TOKEN, now)
        self._loop.call_later(self._answer.itl_s if self._left else 0.0, self._token)

    def _end(self, now: int) -> None:
        sink = self._over()
        if sink is not None:
            sink.on_end(now)


def a_flight(spec: LoadSpec, server: FakeServer, source: OnePrompt | None = None, cap: int = 1000) -> Flight:
    return Flight(spec, 0, cap, find_adapter("openai_chat"), source or OnePrompt(), server, virtual_clock())


class Listening:
    """A listener that only remembers."""

    def __init__(self) -> None:
        self.over: list[Exchange] = []
        self.gaps: list[int] = []
        self.coalesced = 0

    def sent(self, exchange: Exchange) -> None:
        return

    def read(self) -> None:
        return

    def gap(self, gap_ns: int, coalesced: bool) -> None:
        self.gaps.append(gap_ns)
        self.coalesced += coalesced

    def ended(self, exchange: Exchange) -> None:
        self.over.append(exchange)


def windows(reports: Sequence[Report]) -> list[WindowPart]:
    return [report for report in reports if isinstance(report, WindowPart)]


def counted(parts: Sequence[WindowPart], name: str, stage: int | None = None) -> int:
    """The sum of a count over windows, of one stage or all."""
    return sum(getattr(t.counts, name) for p in parts for t in p.tallies if stage in (None, t.stage))


def quantile(parts: Sequence[WindowPart], name: str, q: float) -> float | None:
    """A quantile of a histogram over windows."""
    unpacked = [getattr(unpack_histograms(t.histograms), name) for p in parts for t in p.tallies]
    return Histogram.merged(unpacked).quantile_s(q)
