"""A sink in memory that keeps points as a database does: by line and time, a repeat overwrites."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from soakd.sinks.delivery import Record, SinkError, SinkRejectedError, SinkTooLargeError
from soakd.sinks.line_protocol import LineEncoder

Fault = Callable[[Sequence[Record]], SinkError | None]


class FakeSink:
    """``fault`` is asked before each write; ``takes`` is the largest batch, ``bad`` says which line is refused."""

    def __init__(
        self, fault: Fault | None = None, *, takes: int = 10**9, bad: Callable[[str], bool] | None = None
    ) -> None:
        self.points: dict[str, str] = {}
        self.order: list[str] = []
        self.writes = 0
        self.closed = False
        self._fault = fault
        self._takes = takes
        self._bad = bad or (lambda line: False)
        self._encoder = LineEncoder()

    async def write(self, batch: Sequence[Record]) -> None:
        self.writes += 1
        error = self._fault(batch) if self._fault else None
        if error is not None:
            raise error
        if len(batch) > self._takes:
            raise SinkTooLargeError("413")
        lines = self._encoder.encode(batch)
        good = [line for line in lines if not self._bad(line)]
        for line in good:
            key, fields, at = line.rsplit(" ", 2)
            self.points[f"{key} {at}"] = fields
            self.order.append(line)
        if len(good) < len(lines):
            raise SinkRejectedError("partial write: field type conflict")

    async def close(self) -> None:
        self.closed = True

    def line(self, record: Record) -> str:
        return self._encoder.encode([record])[0]
