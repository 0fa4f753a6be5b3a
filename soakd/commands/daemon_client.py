"""Asks the daemon of a data directory, found by the file it leaves there and its token."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import orjson

from soakd.config import WebConfig, read_secret
from soakd.daemon import ADDRESS_FILE
from soakd.errors import SoakdError
from soakd.journal.lock import owner_pid
from soakd.web.auth import FILE


@dataclass(frozen=True, slots=True)
class DaemonClient:
    url: str
    token: str = field(repr=False)

    @classmethod
    def of(cls, directory: Path, web: WebConfig | None = None) -> DaemonClient | None:
        """None when no daemon lives there: what one that was killed left behind is no daemon.

        ``web`` is the configuration that may name the token. Raises SoakdError when the token can't be read.
        """
        try:
            found = orjson.loads((directory / ADDRESS_FILE).read_bytes())
            pid, url = int(found["pid"]), str(found["url"])
        except PermissionError:
            raise SoakdError(f"{directory / ADDRESS_FILE} can't be read", hint="ask as the daemon's user") from None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if owner_pid(directory) != pid:
            return None
        configured = read_secret(web.token_env, web.token_file, "web token") if web else None
        return cls(url, os.environ.get("SOAKD_TOKEN") or configured or _token(directory))

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
                    raise _refusal(response.status, await response.read())
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


def _refusal(status: int, body: bytes) -> SoakdError:
    try:
        found = orjson.loads(body)
        return SoakdError(str(found["error"]), hint=str(found.get("hint") or ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        return SoakdError(f"the daemon answered with status {status}", hint="see its log")


def _token(directory: Path) -> str:
    path = directory / FILE
    try:
        return path.read_text().strip()
    except OSError as error:
        raise SoakdError(f"{path}: {error.strerror}", hint="set SOAKD_TOKEN, or ask as the daemon's user") from None
