"""Standard streams that are closed, full or no longer read: they must neither end a run nor change its exit code."""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO


class Tolerant(io.TextIOBase):
    """stderr of a program whose run goes on: what can't be written is lost."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except (OSError, ValueError):
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            return

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()


class Gathered(io.StringIO):
    """Takes what is meant for another stream and looks like it, so that a renderer chooses colours and characters for
    that one but its faults come when the text is written, in one place."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    def isatty(self) -> bool:
        return self._stream.isatty()


def settle() -> None:
    """Give every standard stream that was closed by the caller the null device, before anything else gets its number.

    Otherwise the journal might be opened as file 1, and libuv refuses to work with the numbers 0 to 2.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = _opened(1)
    if sys.stderr is None:
        sys.stderr = _opened(2)
    sys.stderr = Tolerant(sys.stderr)


def mute(stream: TextIO) -> None:
    """What is still in its buffer, and what comes, goes to the null device."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except (OSError, ValueError):
        return


def flush_all() -> None:
    """The last act of the program."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            mute(stream)


def _opened(number: int) -> TextIO:
    return open(number, "w", encoding="utf-8", errors="replace", closefd=False)
