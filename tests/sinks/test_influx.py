from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web
from pydantic import ValidationError

from soakd.errors import ConfigError
from soakd.model import Sample, labels
from soakd.sinks import influx
from soakd.sinks.delivery import (
    SinkError,
    SinkRefusedError,
    SinkRejectedError,
    SinkTooLargeError,
    SinkUnavailableError,
)
from soakd.sinks.influx import retry_after
from tests.support.databases import free_port
from tests.support.readings import T0, TEMPERATURE, card

SAMPLE = Sample.ok(TEMPERATURE, 61.0, T0, card(0))
SECRET = "s3cr3t-token"


@asynccontextmanager
async def server(handle: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def write(url: str, monkeypatch: pytest.MonkeyPatch, **keys: object) -> None:
    monkeypatch.setenv("THE_TOKEN", SECRET)
    config = influx.Config.model_validate({"url": url, "bucket": "b", "org": "o", "token_env": "THE_TOKEN", **keys})
    sink = influx.build(config, labels(host="gpu-01"))
    try:
        await sink.write([SAMPLE])
    finally:
        await sink.close()


@pytest.mark.integration
async def test_a_write_is_what_the_v2_api_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, dict[str, str], str, str, str]] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append((
            request.path, dict(request.query), request.headers["Authorization"],
            request.headers["Content-Encoding"], (await request.read()).decode(),
        ))  # fmt: skip
        return web.Response(status=204)

    async with server(handle) as url:
        await write(url, monkeypatch, tags={"rack": "r7"})
    path, query, authorization, encoding, body = seen[0]
    assert (path, query) == ("/api/v2/write", {"org": "o", "bucket": "b", "precision": "ns"})
    assert (authorization, encoding) == (f"Token {SECRET}", "gzip")
    assert body.startswith(f"{TEMPERATURE.name},bdf=0000:00:00.0,gpu=GPU-")
    assert body.endswith(f"host=gpu-01,rack=r7 value=61.0 {T0}")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        (400, '{"error": "partial write: field type conflict dropped=1"}', SinkRejectedError, "field type conflict"),
        (422, '{"code": "unprocessable", "message": "beyond retention"}', SinkRejectedError, "beyond retention"),
        (413, "", SinkTooLargeError, "413"),
        (401, '{"message": "unauthorized access"}', SinkRefusedError, "unauthorized access"),
        (403, "", SinkRefusedError, "check the token"),
        (404, '{"message": "bucket \\"b\\" not found"}', SinkRefusedError, "not found"),
        (405, "<html>", SinkRefusedError, "address of InfluxDB"),
        (200, "<html>it works</html>", SinkRefusedError, "no 204"),
        (302, "", SinkRefusedError, "302"),
        (429, "", SinkUnavailableError, "429"),
        (500, '{"message": "' + "x" * 5000 + '"}', SinkUnavailableError, "xxx"),
        (503, b"\xff\xfe", SinkUnavailableError, "503"),
    ],
)
async def test_every_answer_is_classed(
    status: int, body: str | bytes, kind: type[SinkError], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handle(request: web.Request) -> web.Response:
        headers = {"Retry-After": "7", "Location": "/elsewhere"}
        raw = body if isinstance(body, bytes) else body.encode()
        return web.Response(status=status if request.path != "/elsewhere" else 204, body=raw, headers=headers)

    async with server(handle) as url:
        with pytest.raises(kind) as caught:
            await write(url, monkeypatch)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 700
    assert SECRET not in str(caught.value)
    if isinstance(caught.value, SinkUnavailableError):
        assert caught.value.retry_after_s == 7.0


@pytest.mark.integration
async def test_nobody_listening_and_a_wrong_protocol_are_classed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SinkUnavailableError, match="can't be reached"):
        await write(f"http://127.0.0.1:{free_port()}", monkeypatch)

    async def handle(request: web.Request) -> web.Response:
        return web.Response(status=204)

    async with server(handle) as url:
        with pytest.raises(SinkRefusedError, match="TLS failed"):
            await write(url.replace("http://", "https://"), monkeypatch)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("30", 30.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("86400", 600.0),
        ("Tue, 01 Dec 2026 04:00:10 GMT", 10.0),
        ("Tue, 01 Dec 2026 03:00:00 GMT", 0.0),
        ("soon", None),
        ("nan", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_read_in_both_forms(value: str | None, seconds: float | None) -> None:
    assert retry_after(value, datetime(2026, 12, 1, 4, 0, 0, tzinfo=UTC)) == seconds


async def test_the_token_comes_from_a_file_or_is_missed_clearly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text(f"{SECRET}\n")
    config = influx.Config(url="http://x", bucket="b", token_file=tmp_path / "token")
    sink = influx.build(config, ())
    assert SECRET not in repr(config)
    await sink.close()
    monkeypatch.delenv("NOT_THERE", raising=False)
    with pytest.raises(ConfigError, match="NOT_THERE: not set"):
        influx.build(influx.Config(url="http://x", bucket="b", token_env="NOT_THERE"), ())
    with pytest.raises(ConfigError, match="No such file"):
        influx.build(influx.Config(url="http://x", bucket="b", token_file=tmp_path / "gone"), ())


@pytest.mark.parametrize("wrong", [{"url": "influx:8086"}, {"batch_rows": 0}, {"every": "5"}, {"tokn_env": "X"}])
def test_wrong_configuration_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        influx.Config.model_validate({"url": "http://x", "bucket": "b", **wrong})
