"""Puts a small file into a shared folder safely: whole or not at all, and never through somebody else's link."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping

from .record import DEFAULT_FOLDER, FILE_NAME

_STALE_SECONDS = 3600.0
_MAX_SWEPT = 1024
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def usual_folder(environment: Mapping[str, str]) -> str:
    """``/run/soakd/probe`` where it exists and is writable, else a folder below ``$XDG_RUNTIME_DIR``, else ``''``."""
    if os.access(DEFAULT_FOLDER, os.W_OK | os.X_OK):
        return DEFAULT_FOLDER
    private = environment.get("XDG_RUNTIME_DIR", "")
    return os.path.join(private, "soakd", "probe") if private else DEFAULT_FOLDER


def open_folder(path: str) -> int:
    """A descriptor of the folder, created (0750) if need be.

    Raises OSError, also for a link in its place, a foreign owner, or a folder in which others may replace our files.
    """
    try:
        descriptor = os.open(path, _FOLDER_FLAGS)
    except FileNotFoundError:
        os.makedirs(path, mode=0o750, exist_ok=True)
        descriptor = os.open(path, _FOLDER_FLAGS)
    found = os.fstat(descriptor)
    open_to_all = found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
    if open_to_all or found.st_uid not in (0, os.geteuid()):
        os.close(descriptor)
        raise PermissionError(f"{path}: others could replace the files in it")
    return descriptor


def replace_file(folder: int, name: str, content: bytes) -> None:
    """Write ``name`` (0640) by renaming a finished file over it. Raises OSError and leaves the old one in place."""
    draft = f".{name}.tmp"
    try:
        os.unlink(draft, dir_fd=folder)
    except FileNotFoundError:
        pass
    descriptor = os.open(draft, _FILE_FLAGS, 0o640, dir_fd=folder)
    try:
        os.fchmod(descriptor, 0o640)  # the server's umask may be tighter
        if os.write(descriptor, content) != len(content):
            raise OSError("the file system is full")
    except OSError:
        os.unlink(draft, dir_fd=folder)
        raise
    finally:
        os.close(descriptor)
    os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)


def sweep(folder: int, mine: int) -> None:
    """Remove own files that nobody has written for an hour: what processes that were killed left behind."""
    now = time.time()
    for name in os.listdir(folder)[:_MAX_SWEPT]:
        if not FILE_NAME.fullmatch(name):
            continue
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISREG(found.st_mode) and found.st_uid == mine and now - found.st_mtime > _STALE_SECONDS:
            os.unlink(name, dir_fd=folder)
