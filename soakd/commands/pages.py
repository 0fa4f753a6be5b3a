"""Writing to where the user asked."""

from __future__ import annotations

import os
from pathlib import Path

from soakd.commands.terminal import say
from soakd.errors import SoakdError

_HINT = "give a file that can be written"


def write_page(path: Path, page: str | bytes) -> None:
    """Raises SoakdError when the file can't be written."""
    try:
        path.write_bytes(page.encode() if isinstance(page, str) else page)
    except OSError as error:
        raise SoakdError(f"{path}: {error.strerror}", hint=_HINT) from None
    say(f"written to {path}")


def check_place(path: Path | None) -> None:
    """Before hours of load rather than after them: raises SoakdError where nothing could be written."""
    if path is None:
        return
    if path.is_dir():
        raise SoakdError(f"{path}: Is a directory", hint=_HINT)
    if not path.absolute().parent.is_dir():
        raise SoakdError(f"{path}: {path.absolute().parent} is no folder", hint=_HINT)
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise SoakdError(f"{path}: Permission denied", hint=_HINT)
