"""Line protocol in rotated files: for a host without a database, or for ``influx write`` later."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from soakd.fields import Bytes
from soakd.model import Labels
from soakd.sinks.delivery import DeliveryConfig, Record, SinkRefusedError, SinkUnavailableError
from soakd.sinks.line_protocol import LineEncoder

KIND = "file"
_NAME = "soakd.lp"


class Config(DeliveryConfig):
    """``directory`` holds ``soakd.lp`` and up to ``keep`` older files (``soakd.lp.1`` is the newest of them)."""

    directory: Path
    max_bytes: Bytes = 100 * 2**20
    keep: Annotated[int, Field(ge=0, le=1000)] = 10


class FileSink:
    """Appends; a batch is on disk as a whole or, after a crash, again at the next start."""

    def __init__(self, config: Config, tags: Labels) -> None:
        self._config = config
        self._encoder = LineEncoder(tags)
        self._path = config.directory / _NAME

    async def write(self, batch: Sequence[Record]) -> None:
        body = "".join(f"{line}\n" for line in self._encoder.encode(batch)).encode()
        try:
            self._config.directory.mkdir(parents=True, exist_ok=True)
            if self._path.exists() and self._path.stat().st_size + len(body) > self._config.max_bytes:
                self._rotate()
            with self._path.open("ab+") as file:
                if file.tell() and not _ends_a_line(self._path):
                    file.write(b"\n")
                file.write(body)
        except PermissionError as error:
            raise SinkRefusedError(f"can't write {self._path}: {error.strerror}") from None
        except OSError as error:
            raise SinkUnavailableError(f"can't write {self._path}: {error.strerror}") from None

    async def close(self) -> None:
        """Nothing is held open between writes."""

    def line(self, record: Record) -> str:
        return self._encoder.encode([record])[0]

    def _rotate(self) -> None:
        older = [self._path, *(self._path.with_name(f"{_NAME}.{n}") for n in range(1, self._config.keep + 1))]
        older[-1].unlink(missing_ok=True)
        for source, target in reversed(list(itertools.pairwise(older))):
            if source.exists():
                source.replace(target)


def build(config: Config, tags: Labels) -> FileSink:
    return FileSink(config, tags)


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) == b"\n"
