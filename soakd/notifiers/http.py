"""What the channels share: a bounded request whose failure is a sentence without secrets."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import orjson

from soakd.errors import ConfigError, Problem

_MOST_ANSWER = 64 * 1024
_LONGEST_WAIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Answer:
    """``status`` 0: there was no answer, ``problem`` says why. ``body`` is at most 64 KiB."""

    status: int
    body: bytes = b""
    retry_after_s: float | None = None
    problem: str = ""

    def json(self) -> Mapping[str, object]:
        """The body as an object; empty where it is none."""
        try:
            found = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return {}
        return found if isinstance(found, dict) else {}

    def text(self) -> str:
        return " ".join(self.body.decode("utf-8", "replace").split())[:300]


class HttpPoster:
    """POSTs JSON within ``timeout_s``. ``name`` stands for the address in messages: an address can be a secret."""

    def __init__(self, name: str, timeout_s: float, ca_file: Path | None = None, verify_tls: bool = True) -> None:
        self._name = name
        self._timeout_s = timeout_s
        self._ca_file = ca_file
        self._verify_tls = verify_tls
        self._session: aiohttp.ClientSession | None = None

    async def post(self, url: str, payload: object, headers: Mapping[str, str] | None = None) -> Answer:
        """Never raises for what the other side does."""
        try:
            async with self._open().post(
                url, data=orjson.dumps(payload), headers={"Content-Type": "application/json", **(headers or {})},
                allow_redirects=False,
            ) as response:  # fmt: skip
                body = await response.content.read(_MOST_ANSWER)
                return Answer(response.status, body, retry_after(response.headers.get("Retry-After")))
        except TimeoutError:
            return Answer(0, problem=f"{self._name} did not answer within {self._timeout_s:g} s")
        except (aiohttp.ClientSSLError, ssl.SSLError) as error:
            return Answer(0, problem=f"{self._name}: TLS failed ({type(error).__name__})")
        except (aiohttp.ClientError, OSError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            return Answer(0, problem=f"{self._name} can't be reached: {reason}")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            context: ssl.SSLContext | bool = self._verify_tls
            if self._ca_file is not None and self._verify_tls:
                context = ssl.create_default_context(cafile=str(self._ca_file))
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=self._timeout_s), connector=aiohttp.TCPConnector(ssl=context)
            )
        return self._session


def retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header, at most ten minutes; None where it is no number."""
    try:
        seconds = float(value) if value else -1.0
    except ValueError:
        return None
    return min(seconds, _LONGEST_WAIT_S) if seconds >= 0 else None


def secret(env: str | None, file: Path | None, what: str) -> str:
    """A secret from the environment or from a file. Raises ConfigError when it is named but not there."""
    if env:
        value = os.environ.get(env, "").strip()
        if not value:
            raise ConfigError([Problem("environment", None, env, "not set", f"it should hold the {what}")])
        return value
    if file:
        try:
            return file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not a text file"
            raise ConfigError([Problem(str(file), None, "", reason, f"it should hold the {what}")]) from None
    return ""
