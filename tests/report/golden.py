"""Golden files of the outputs. ``SOAKD_UPDATE_GOLDEN=1`` writes them anew, for a person to read in the diff."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def check(name: str, text: str) -> None:
    """``text`` is what ``golden/NAME`` holds."""
    path = FOLDER / name
    if os.environ.get("SOAKD_UPDATE_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text
