"""Asks the daemon of a data directory, found by the file it leaves there and its token."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import orjson

from soakd.daemon import ADDRESS_FILE
from soakd.errors import SoakdError
from soakd.web.auth import FILE


@dataclass(frozen=True, slots=True)
class DaemonClient:
    url: str
    token: str = field(repr=False)

    @classmethod
    def of(cls, directory: Path) -> DaemonClient | None:
        """None when no daemon lives there. Raises SoakdError when its token can't be read."""
        try:
            found = orjson.loads((directory / ADDRESS_FILE).read_bytes())
            pid, url = int(found["pid"]), str(found["url"])
            os.kill(pid, 0)
        except PermissionError:
            raise SoakdError(
                f"a daemon owns {directory}, and it belongs to another user", hint="ask it as that user"
            ) from None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        token = os.environ.get("SOAKD_TOKEN") or _token(directory)
        return cls(url, token)

    async def order(self, path: str, body: object = None) -> dict[str, object]:
        """One POST. Raises SoakdError with the daemon's own words."""
        async for message in self.stream(path, body):
            return message
        return {}

    async def stream(self, path: str, body: object = None) -> AsyncIterator[dict[str, object]]:
        """One POST and the JSON lines of its answer."""
        headers = {"Authorization": f"Bearer {self.token}"}
        timeout = aiohttp.ClientTimeout(total=None, connect=10.0)
        try:
            async with (
                aiohttp.ClientSession(headers=headers, timeout=timeout, read_bufsize=2**24) as session,
                session.post(self.url + path, data=orjson.dumps(body)) as response,
            ):
                if response.status != 200:
                    found = orjson.loads(await response.read())
                    raise SoakdError(str(found.get("error")), hint=str(found.get("hint") or ""))
                if response.content_type == "application/json":
                    yield orjson.loads(await response.read())
                    return
                buffer = b""
                async for chunk in response.content.iter_any():
                    *lines, buffer = (buffer + chunk).split(b"\n")
                    for line in lines:
                        if line:
                            yield orjson.loads(line)
        except aiohttp.ClientError as error:
            raise SoakdError(f"the daemon at {self.url} can't be asked: {error}") from None


def _token(directory: Path) -> str:
    path = directory / FILE
    try:
        return path.read_text().strip()
    except OSError as error:
        raise SoakdError(f"{path}: {error.strerror}", hint="set SOAKD_TOKEN, or ask as the daemon's user") from None
