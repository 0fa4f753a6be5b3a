"""One owner a data directory: an flock that dies with its process, so that no stale lock is left behind."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from soakd.errors import JournalError

_NAME = "lock"


def is_owned(directory: Path) -> bool:
    """Whether a living process owns the data directory; a run left RUNNING without an owner was killed."""
    try:
        fd = os.open(directory / _NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def owner_pid(directory: Path) -> int | None:
    """The process that owns the data directory now; None where nobody does, or it can't be told."""
    if not is_owned(directory):
        return None
    try:
        return int((directory / _NAME).read_text())
    except (OSError, ValueError):
        return None


class DirectoryLock:
    """Held from construction to ``release``. Raises JournalError that names the process holding it."""

    def __init__(self, directory: Path) -> None:
        path = directory / _NAME
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise JournalError(
                f"can't write to the data directory {directory}: {error.strerror}",
                hint="give one that soakd may write to",
            ) from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            by = f"process {holder}" if holder else "another process"
            raise JournalError(
                f"the data directory {directory} is in use by {by}",
                hint="one soakd a data directory: ask that one, stop it, or choose another directory",
            ) from None
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            pass  # a full disk: the lock holds without the number of its holder

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
