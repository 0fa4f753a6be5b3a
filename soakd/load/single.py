"""One request at a time, with its answer: for probes that ask beside a load and must see the text."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from types import TracebackType

from soakd.load.exchange import Exchange
from soakd.load.failure import ErrorClass
from soakd.load.prompts import Prompt
from soakd.load.spec import TargetSpec, Timeouts, TransportKind
from soakd.load.transport import make_transport
from soakd.targets.base import find_adapter

_CHECK_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class SingleAnswer:
    """How one request ended. Times are seconds from its sending, None when not reached; tokens are the server's."""

    text: str
    error: ErrorClass
    status: int
    detail: str
    ttft_s: float | None
    e2e_s: float
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None

    @property
    def failed(self) -> bool:
        return self.error is not ErrorClass.NONE

    @property
    def error_label(self) -> str:
        return self.error.label(self.status) if self.failed else ""


class SingleRequests:
    """``async with SingleRequests(target) as ask: await ask(prompt)``. Never raises for the network."""

    def __init__(self, target: TargetSpec, timeouts: Timeouts, transport: TransportKind = "auto") -> None:
        self._target = target
        self._timeouts = timeouts
        self._kind: TransportKind = transport
        self._adapter = find_adapter(target.adapter)

    async def __aenter__(self) -> SingleRequests:
        self._transport = make_transport(self._target, self._adapter.path, self._kind)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.close()

    async def __call__(self, prompt: Prompt) -> SingleAnswer:
        body = self._adapter.body(self._target.model, prompt, self._target.extra_body.encode())
        ended = asyncio.Event()
        exchange = Exchange(_Ended(ended), self._adapter, prompt, time.monotonic_ns(), 0, 0, None, want_text=True)
        exchange.handle = self._transport.send(0, body, exchange)
        try:
            while not ended.is_set():
                try:
                    async with asyncio.timeout(_CHECK_EVERY_S):
                        await ended.wait()
                except TimeoutError:
                    exchange.check(time.monotonic_ns(), self._timeouts)
        finally:
            exchange.cancel(time.monotonic_ns())
        return _answer(exchange)


class _Ended:
    """Hears one request and keeps nothing but its end."""

    def __init__(self, event: asyncio.Event) -> None:
        self._event = event

    def sent(self, exchange: Exchange) -> None: ...
    def gap(self, gap_ns: int, coalesced: bool) -> None: ...
    def read(self) -> None: ...

    def ended(self, exchange: Exchange) -> None:
        self._event.set()


def _answer(exchange: Exchange) -> SingleAnswer:
    sent = exchange.due if exchange.sent is None else exchange.sent
    usage = exchange.usage
    return SingleAnswer(
        text=exchange.whole_text,
        error=exchange.error,
        status=exchange.status,
        detail=exchange.detail,
        ttft_s=None if exchange.first_token is None else (exchange.first_token - sent) / 1e9,
        e2e_s=((exchange.end or sent) - sent) / 1e9,
        prompt_tokens=usage.prompt_tokens if usage else None,
        completion_tokens=exchange.tokens_out,
        cached_tokens=usage.cached_tokens if usage else None,
    )
