"""When canaries are asked: round after round while there is load, one question at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from soakd.load.canary import CanarySpec
from soakd.load.exchange import Exchange
from soakd.load.failure import ErrorClass
from soakd.load.flight import Flight
from soakd.load.prompts import Prompt

_SHORTEST_S = 0.25


class CanaryRounds:
    """``answer`` gets the id of the canary, the whole text, and how the question failed (empty when it did not).

    A round that is not over delays no other: the next one is left out."""

    def __init__(self, spec: CanarySpec, flight: Flight, answer: Callable[[str, str, str], None]) -> None:
        self._ids = tuple(prompt.id for prompt in spec.prompts)
        self._prompts = spec.as_prompts()
        self._interval_s = spec.interval_s
        self._flight = flight
        self._answer = answer
        self._round: Iterator[tuple[str, Prompt]] = iter(())
        self._asked = ""
        self._timer: asyncio.TimerHandle | None = None
        self._every_s = spec.interval_s

    def go(self, speed: float) -> None:
        """Begin, half an interval from now, unless it has begun."""
        self._every_s = max(_SHORTEST_S, self._interval_s / speed)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._every_s / 2, self._begin)

    def pause(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def ended(self, exchange: Exchange) -> None:
        if exchange.error is not ErrorClass.CANCELLED:
            failed = exchange.error is not ErrorClass.NONE
            label = exchange.error.label(exchange.status) if failed else ""
            self._answer(self._asked, "" if failed else exchange.whole_text, label)
        self._asked = ""
        if exchange.error is not ErrorClass.CANCELLED:
            self._next()

    def _begin(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._every_s, self._begin)
        if not self._asked:
            self._round = zip(self._ids, self._prompts, strict=True)
            self._next()

    def _next(self) -> None:
        following = next(self._round, None)
        if following is not None:
            self._asked, prompt = following
            self._flight.ask_canary(prompt, self)
