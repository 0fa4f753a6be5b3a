"""How the server under test is reached, and what is wrong when it can't be: every failure a `TargetError` with a hint.

For the questions asked before and beside a run (discovery, calibration, checks). The load itself has its own client.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import aiohttp
import orjson

from soakd.errors import TargetError
from soakd.targets.redaction import HIDDEN

MAX_BODY_BYTES = 8 * 2**20
_EXCERPT = 160
_SHORTEST_SECRET = 4
_TLS_HINTS: Mapping[int, tuple[str, str]] = {
    10: ("its certificate has expired", "renew it"),
    18: ("its certificate is self-signed", "give target.ca_file, the certificate itself"),
    19: ("its certificate chain ends in an unknown authority", "give target.ca_file with that authority"),
    20: ("its certificate is from an unknown authority", "give target.ca_file with that authority"),
    21: ("its certificate chain is incomplete", "let the server send the whole chain, or give target.ca_file"),
    62: ("its certificate is for another host name", "use the name in the certificate in target.url"),
    64: ("its certificate is for another address", "use the name in the certificate in target.url"),
}


@dataclass(frozen=True, slots=True)
class Access:
    """Address and credentials. ``url`` is the server's root, without ``/v1``; ``socket`` a Unix socket to use instead
    of the host in it."""

    url: str
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: Path | None = None
    verify_tls: bool = True
    socket: Path | None = None

    @classmethod
    def to(
        cls,
        url: str,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        ca_file: Path | None = None,
        verify_tls: bool = True,
        socket: Path | None = None,
    ) -> Access:
        """Check what the user gave; a trailing ``/v1`` or endpoint is taken off. Raises TargetError."""
        parts = _split(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise TargetError(f"{url!r} is not the address of a server", hint="write it as http://127.0.0.1:8000")
        if parts.username or parts.password:
            raise TargetError("the address holds a password", hint="give it as target.api_key_env or a header")
        path = parts.path.rstrip("/")
        for ending in ("/chat/completions", "/completions", "/models", "/v1"):
            path = path.removesuffix(ending)
        for name, value in {"the API key": api_key or "", **(headers or {})}.items():
            if not value.isprintable():
                raise TargetError(f"{name} holds a line break or control character", hint="look at the file it is from")
        root = f"{parts.scheme}://{parts.netloc}{path}"
        return cls(root, api_key, dict(headers or {}), ca_file, verify_tls, socket)

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        parts = urlsplit(self.url)
        return parts.port or (443 if parts.scheme == "https" else 80)

    def without_secrets(self, body: bytes) -> bytes:
        """What the server says with our own keys taken out: some servers repeat a key that they refuse."""
        for secret in (self.api_key or "", *self.headers.values()):
            if len(secret) >= _SHORTEST_SECRET:
                body = body.replace(secret.encode(), HIDDEN.encode())
        return body

    def all_headers(self) -> dict[str, str]:
        """Headers of a request, the key among them."""
        own = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        return own | dict(self.headers)

    def ssl_context(self) -> ssl.SSLContext | bool:
        """For aiohttp's ``ssl``. Raises TargetError for a CA file that can't be read."""
        if not self.url.startswith("https:"):
            return True
        if not self.verify_tls:
            return False
        if self.ca_file is None:
            return True
        try:
            return ssl.create_default_context(cafile=str(self.ca_file))
        except (OSError, ssl.SSLError) as error:
            reason = error.strerror or "it holds no certificate"
            raise TargetError(f"{self.ca_file}: {reason}", hint="target.ca_file is a PEM file") from None

    def session(self) -> aiohttp.ClientSession:
        """A session for few requests; the caller closes it. Raises TargetError."""
        context = self.ssl_context()
        connector: aiohttp.BaseConnector = (
            aiohttp.UnixConnector(path=str(self.socket), limit=_CONNECTIONS, keepalive_timeout=_KEEP_S)
            if self.socket
            else aiohttp.TCPConnector(ssl=context, limit=_CONNECTIONS, keepalive_timeout=_KEEP_S)
        )
        return aiohttp.ClientSession(connector=connector, headers=self.all_headers(), auto_decompress=True)


_CONNECTIONS = 2
_KEEP_S = 3.0
"""llama.cpp has a thread a connection and few of them; it holds each for 5 s after its last request, and closes it then
under a request that comes at that moment. What only asks about a server must not take its threads from its users."""


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise TargetError(f"{url!r} is not an address: {error}", hint="write it as http://127.0.0.1:8000") from None
    return parts


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole HTTP answer; ``body`` is cut at 8 MiB."""

    path: str
    status: int
    content_type: str
    body: bytes

    @property
    def is_html(self) -> bool:
        start = self.body[:200].lstrip().lower()
        return "html" in self.content_type or start.startswith((b"<!doctype", b"<html"))

    def json(self) -> object:
        """The decoded body, None when it is not JSON."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None

    def fields(self) -> Mapping[str, object]:
        """The JSON object, empty when it is none."""
        value = self.json()
        return value if isinstance(value, dict) else {}

    def complaint(self) -> str:
        """What the server says is wrong, short and on one line."""
        error = self.fields().get("error", self.fields().get("message", self.fields().get("detail")))
        if isinstance(error, dict):
            error = error.get("message", error)
        text = str(error) if error else "" if self.is_html else self.body[: _EXCERPT * 4].decode("utf-8", "replace")
        text = " ".join(text.split())
        return text if len(text) <= _EXCERPT else text[: _EXCERPT - 1] + "…"


async def ask(
    session: aiohttp.ClientSession, access: Access, path: str, body: object = None, *, timeout_s: float = 10.0
) -> Answer:
    """GET, or POST when there is a body. Any HTTP status is an answer; raises TargetError when there is none."""
    url = access.url + path
    timeout = aiohttp.ClientTimeout(total=timeout_s, connect=min(timeout_s, 10.0))
    data = None if body is None else orjson.dumps(body)
    headers = {"Content-Type": "application/json"} if data else None
    try:
        async with session.request(
            "POST" if data else "GET", url, data=data, headers=headers, timeout=timeout, allow_redirects=False
        ) as response:
            content = access.without_secrets(await _bounded(response))
            return Answer(path, response.status, response.content_type, content)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise _explained(error, access, path, timeout_s) from None


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        parts.append(chunk)
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            break
    return b"".join(parts)[:MAX_BODY_BYTES]


def _explained(error: Exception, access: Access, path: str, timeout_s: float) -> TargetError:
    where = f"{access.socket} (for {access.url})" if access.socket else access.url
    tls = _certificate_fault(error)
    if tls is not None:
        return TargetError(f"{where}: TLS failed: {tls[0]}", hint=tls[1])
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return TargetError(
            f"{where}: no address is known for {access.host!r}", hint="check the host name in target.url"
        )
    if isinstance(error, aiohttp.ClientConnectorError):
        return _unreachable(error, where, access)
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        hint = "is it under load, or is a firewall dropping packets?"
        return TargetError(f"{where}{path}: no answer within {timeout_s:g} s", hint=hint)
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError):
        return TargetError(f"{where}: closed the connection without an answer", hint=_scheme_hint(access))
    if isinstance(error, aiohttp.ClientResponseError):
        return TargetError(f"{where}: what answers does not speak HTTP", hint=_scheme_hint(access))
    return TargetError(f"{where}{path}: {type(error).__name__}: {' '.join(str(error).split())[:_EXCERPT]}")


def _certificate_fault(error: Exception) -> tuple[str, str] | None:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
        if isinstance(cause, ssl.SSLCertVerificationError):
            known = _TLS_HINTS.get(cause.verify_code)
            return known or (cause.verify_message or "bad certificate", "check the certificate, or target.ca_file")
        return str(cause), "check the certificate, or target.ca_file"
    if isinstance(error, aiohttp.ClientConnectorSSLError | ssl.SSLError):
        text = str(error)
        if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER" in text:
            return "the server does not speak TLS on this port", "write http:// in target.url"
        return " ".join(text.split())[:_EXCERPT], "check that the server speaks TLS 1.2 or later"
    return None


def _unreachable(error: aiohttp.ClientConnectorError, where: str, access: Access) -> TargetError:
    code = error.os_error.errno
    if access.socket and code == errno.ENOENT:
        return TargetError(f"{where}: no such socket", hint="check target.socket")
    if code in (errno.EACCES, errno.EPERM):
        return TargetError(f"{where}: permission denied", hint="run soakd as a user that may connect to it")
    if code == errno.ECONNREFUSED or "Connect call failed" in str(error):
        hint = "is the server running, and on this port?"
        return TargetError(f"{where}: connection refused, nothing listens there", hint=hint)
    reason = error.os_error.strerror or str(error.os_error)
    return TargetError(f"{where}: unreachable: {reason}", hint="check the address and the network")


def _scheme_hint(access: Access) -> str:
    return "try https://" if access.url.startswith("http:") else "try http://"
