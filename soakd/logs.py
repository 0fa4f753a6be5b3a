"""Logging: structlog to stderr, console style on a terminal, one JSON object a line otherwise.

stdout is never touched: it belongs to ``--json``.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO, cast

import structlog
from structlog.tracebacks import ExceptionDictTransformer

_SECRET_WORDS = ("api_key", "token", "password", "secret", "authorization", "webhook")
_REDACTED = "[redacted]"
# a variable may hold a key
_TRACEBACKS = structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False))


class _Stderr:
    """Whatever is stderr at the time: loggers are kept for good, and must not keep a stream that is closed by then."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def configure(*, verbose: bool = False, stream: TextIO | None = None) -> None:
    """Set up logging once, at the edge of the program."""
    out = stream or sys.stderr
    level = logging.DEBUG if verbose else logging.INFO
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer(colors=not os.environ.get("NO_COLOR"))
        if out.isatty()
        else structlog.processors.JSONRenderer(sort_keys=False)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            redact_secrets,
            _TRACEBACKS if not out.isatty() else _keep,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", stream or _Stderr())),
        cache_logger_on_first_use=True,
    )
    # APScheduler and aiohttp log through the standard library; only their warnings are of interest
    logging.basicConfig(stream=out, level=logging.WARNING, format="%(name)s: %(message)s")
    logging.getLogger("apscheduler").setLevel(logging.ERROR)


def redact_secrets(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:  # the signature structlog gives its processors
    """Blank every value whose key looks secret."""
    for key in event:
        if any(word in key.lower() for word in _SECRET_WORDS):
            event[key] = _REDACTED
    return event


def _keep(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return event
