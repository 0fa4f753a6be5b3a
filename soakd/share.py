"""The files that ship with soakd: configs, alerts, dashboards; in the wheel, or beside the package in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent
FOLDERS = ("configs", "alerts", "dashboards")


def root() -> Path:
    """The folder that holds ``configs/``, ``alerts/`` and ``dashboards/``."""
    shipped = _PACKAGE / "share"
    return shipped if shipped.is_dir() else _PACKAGE.parent


def find(folder: str, name: str) -> Path:
    """The path of a shipped file; it may not exist. Names that would leave the folder are refused (no such file)."""
    path = root() / folder / name
    return path if path.resolve().is_relative_to(root().resolve()) else root() / folder / "none"


def names(folder: str) -> list[str]:
    """The names (without ``.yaml``) of the shipped files of a folder."""
    return sorted(p.stem for p in (root() / folder).glob("*.yaml"))
