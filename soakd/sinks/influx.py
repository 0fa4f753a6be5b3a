"""InfluxDB 2, 3, Cloud and 1.8+, and VictoriaMetrics, by the v2 write API."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from influxdb_client.client.exceptions import InfluxDBError
from influxdb_client.client.influxdb_client_async import InfluxDBClientAsync
from influxdb_client.client.write_api import WritePrecision
from influxdb_client.rest import ApiException
from pydantic import field_validator

from soakd.errors import ConfigError, Problem
from soakd.fields import Seconds
from soakd.model import Labels
from soakd.sinks.delivery import (
    DeliveryConfig,
    Record,
    SinkRefusedError,
    SinkRejectedError,
    SinkTooLargeError,
    SinkUnavailableError,
)
from soakd.sinks.line_protocol import LineEncoder

KIND = "influx"
_LONGEST_WAIT_S = 600.0
_LONGEST_REASON = 500


class Config(DeliveryConfig):
    """``bucket`` is ``DATABASE/RETENTION_POLICY`` for InfluxDB 1.8 (then the token is ``USER:PASSWORD``).

    The token comes from the variable ``token_env`` or the file ``token_file``, never from the configuration itself.
    ``texts: false`` leaves the texts of events out (VictoriaMetrics stores a text as 0).
    """

    url: str
    bucket: str
    org: str = "-"
    token_env: str | None = None
    token_file: Path | None = None
    gzip: bool = True
    timeout: Seconds = 15.0
    verify_tls: bool = True
    ca_file: Path | None = None
    tags: Mapping[str, str] = {}
    texts: bool = True

    @field_validator("url")
    @classmethod
    def _has_scheme(cls, url: str) -> str:
        if not url.startswith(("http://", "https://")):
            raise ValueError("give the whole address, such as http://influx.example:8086")
        return url.rstrip("/")


class InfluxSink:
    """Build it inside a running loop."""

    def __init__(self, config: Config, tags: Labels, token: str) -> None:
        self._config = config
        self._encoder = LineEncoder((*tags, *sorted(config.tags.items())), texts=config.texts)
        self._client = InfluxDBClientAsync(
            url=config.url,
            token=token or None,
            org=config.org,
            timeout=int(config.timeout * 1000),
            enable_gzip=config.gzip,
            verify_ssl=config.verify_tls,
            ssl_ca_cert=str(config.ca_file) if config.ca_file else None,
            allow_redirects=False,  # a redirected POST becomes a GET, whose 200 would look like success
        )
        self._api = self._client.write_api()

    async def write(self, batch: Sequence[Record]) -> None:
        body = "\n".join(self._encoder.encode(batch)).encode()
        config = self._config
        try:
            async with asyncio.timeout(config.timeout):
                taken = await self._api.write(config.bucket, config.org, body, WritePrecision.NS)
        except ApiException as error:
            raise _refusal(config.url, error) from None
        except TimeoutError:
            raise SinkUnavailableError(f"{config.url} did not answer within {config.timeout:g} s") from None
        except (aiohttp.ClientSSLError, ssl.SSLError) as error:
            raise SinkRefusedError(f"{config.url}: TLS failed: {error}", hint="check ca_file") from None
        except (aiohttp.ClientError, OSError, InfluxDBError) as error:
            reason = str(error) or type(error).__name__
            raise SinkUnavailableError(f"{config.url} can't be reached: {reason}") from None
        if not taken:
            raise SinkRefusedError(
                f"{config.url} answers, but not as a write API does (no 204)", hint="is it the address of InfluxDB?"
            )

    async def close(self) -> None:
        await self._client.close()

    def line(self, record: Record) -> str:
        return self._encoder.encode([record])[0]


def build(config: Config, tags: Labels) -> InfluxSink:
    """``tags`` go with every point (host). Raises ConfigError where the token is named but not there."""
    return InfluxSink(config, tags, _token(config))


def _token(config: Config) -> str:
    if config.token_env:
        token = os.environ.get(config.token_env, "")
        if not token:
            raise ConfigError([Problem("environment", None, config.token_env, "not set", "it should hold the token")])
        return token
    if config.token_file:
        try:
            return config.token_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not a text file"
            raise ConfigError([Problem(str(config.token_file), None, "", reason, "it should hold the token")]) from None
    return ""


def _refusal(
    url: str, error: Any
) -> SinkUnavailableError | SinkRefusedError | SinkTooLargeError | SinkRejectedError:  # ApiException is untyped
    status = int(error.status or 0)
    said = f"{url} answered {status}: {_reason(error)}"
    if status == 413:
        return SinkTooLargeError(said)
    if status in (400, 422):
        return SinkRejectedError(_reason(error))
    if status in (401, 403):
        return SinkRefusedError(said, hint="check the token and what it may write to")
    if status == 404:
        return SinkRefusedError(said, hint="check url, org and bucket")
    if status in (408, 425, 429) or status >= 500 or status == 0:
        return SinkUnavailableError(said, retry_after_s=retry_after(_header(error, "Retry-After")))
    return SinkRefusedError(said, hint="is it the address of InfluxDB?")


def retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Seconds of a Retry-After header (a number or a date), at most ten minutes; None where it can't be read."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            at = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = (at - (now or datetime.now(UTC))).total_seconds()
    return min(max(0.0, seconds), _LONGEST_WAIT_S) if seconds == seconds else None


def _header(error: Any, name: str) -> str | None:
    headers = getattr(error, "headers", None)
    value = headers.get(name) if headers is not None else None
    return None if value is None else str(value)


def _reason(error: Any) -> str:
    """What the database says, in a bounded line. 1.x answers {"error": ...}, 2.x {"message": ...}."""
    body = getattr(error, "body", None)
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or error.reason or "")
    try:
        data = orjson.loads(text)
        text = str(data.get("message") or data.get("error") or text) if isinstance(data, dict) else text
    except orjson.JSONDecodeError:
        pass
    return " ".join(text.split())[:_LONGEST_REASON]
