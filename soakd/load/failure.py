"""How a request ended: the classes of failure and of finish, each with the code that records carry."""

from __future__ import annotations

import enum


class ErrorClass(enum.IntEnum):
    """Why a request failed. Codes are stored in the journal: never renumber.

    ``RESET`` is a connection lost before the first byte of the answer, ``TRUNCATED`` one lost after it or a stream
    that ends without the protocol's end; ``REFUSED_FOR_LOAD`` is HTTP 429 or 503; ``CANCELLED`` a request that was
    cut off because the run was stopped (it counts as neither completed nor failed).
    """

    NONE = 0
    CONNECT = 1
    CONNECT_TIMEOUT = 2
    FIRST_TOKEN_TIMEOUT = 3
    STALL_TIMEOUT = 4
    TOTAL_TIMEOUT = 5
    HTTP_STATUS = 6
    REFUSED_FOR_LOAD = 7
    MALFORMED_STREAM = 8
    TRUNCATED = 9
    SERVER_ERROR = 10
    EMPTY_ANSWER = 11
    RESET = 12
    TLS = 13
    CANCELLED = 14

    def label(self, status: int = 0) -> str:
        """The name shown and counted: ``http_404`` for a status, the lower-case name otherwise."""
        return f"http_{status}" if self is ErrorClass.HTTP_STATUS else self.name.lower()


DOWN = frozenset(
    {
        ErrorClass.CONNECT, ErrorClass.CONNECT_TIMEOUT, ErrorClass.RESET, ErrorClass.TRUNCATED,
        ErrorClass.FIRST_TOKEN_TIMEOUT, ErrorClass.STALL_TIMEOUT, ErrorClass.TLS,
    }
)  # fmt: skip
"""The failures of a server that is not there, as opposed to one that answers with an error."""


class Finish(enum.IntEnum):
    """The finish reason the server gave. Codes are stored in the journal: never renumber."""

    MISSING = 0
    STOP = 1
    LENGTH = 2
    TOOL_CALLS = 3
    CONTENT_FILTER = 4
    ABORT = 5
    OTHER = 6

    @classmethod
    def of(cls, reason: str | None) -> Finish:
        """``eos``, ``word`` and ``limit`` are llama.cpp's names, ``function_call`` OpenAI's older one."""
        return cls.MISSING if reason is None else _FINISH.get(reason, cls.OTHER)


_FINISH = {
    "stop": Finish.STOP, "eos": Finish.STOP, "word": Finish.STOP,
    "length": Finish.LENGTH, "limit": Finish.LENGTH,
    "tool_calls": Finish.TOOL_CALLS, "function_call": Finish.TOOL_CALLS,
    "content_filter": Finish.CONTENT_FILTER,
    "abort": Finish.ABORT, "cancelled": Finish.ABORT,
}  # fmt: skip
