"""Writing a page to where the user asked."""

from __future__ import annotations

from pathlib import Path

from soakd.commands.terminal import say
from soakd.errors import SoakdError


def write_page(path: Path, page: str) -> None:
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise SoakdError(f"{path}: {error.strerror}", hint="give a file that can be written") from None
    say(f"written to {path}")
