"""Both transports against servers that misbehave as real ones do, over real sockets."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Literal

import pytest

from soakd.load.exchange import Exchange
from soakd.load.failure import ErrorClass
from soakd.load.spec import TargetSpec
from soakd.load.transport import Transport, make_transport
from soakd.targets.base import find_adapter
from tests.support.fake_load import DONE, HEAD, STOP, TOKEN, Listening, a_prompt, usage
from tests.support.scripted_server import (
    ANSWER,
    EVENT_STREAM,
    LAST_CHUNK,
    WHOLE,
    Asked,
    Script,
    chunk,
    reset,
    scripted,
)

pytestmark = pytest.mark.integration
Kind = Literal["raw", "aiohttp"]
KINDS: tuple[Kind, ...] = ("raw", "aiohttp")
both = pytest.mark.parametrize("kind", KINDS)
CERTIFICATE = Path(__file__).parents[1] / "fixtures" / "tls" / "localhost.pem"


class Owner:
    def __init__(self) -> None:
        self.over = asyncio.Event()

    def ended(self, exchange: Exchange) -> None:
        self.over.set()


class Harness(Listening):
    """Sends one request after another and waits for each."""

    def __init__(self, transport: Transport) -> None:
        super().__init__()
        self._transport = transport
        self.token = asyncio.Event()

    def read(self) -> None:
        self.token.set()

    def ended(self, exchange: Exchange) -> None:
        super().ended(exchange)
        assert isinstance(exchange.owner, Owner)
        exchange.owner.over.set()

    def start(self, replica: int = 0) -> Exchange:
        adapter = find_adapter("openai_chat")
        exchange = Exchange(self, adapter, a_prompt(), 0, 0, replica, Owner(), True)
        exchange.handle = self._transport.send(replica, adapter.body("m", a_prompt(), b""), exchange)
        return exchange

    async def ask(self) -> Exchange:
        exchange = self.start()
        assert isinstance(exchange.owner, Owner)
        await asyncio.wait_for(exchange.owner.over.wait(), 10)
        return exchange

    async def all_over(self, exchanges: Sequence[Exchange]) -> None:
        for exchange in exchanges:
            assert isinstance(exchange.owner, Owner)
            await asyncio.wait_for(exchange.owner.over.wait(), 20)


async def harness(kind: Kind, target: TargetSpec) -> AsyncIterator[Harness]:
    transport = make_transport(target, "/v1/chat/completions", kind)
    try:
        yield Harness(transport)
    finally:
        await transport.close()


async def answers(kind: Kind, script: Script, times: int = 1) -> tuple[list[Exchange], int]:
    """So many requests in turn; the exchanges and how many connections the server saw."""
    async with scripted(script) as seen:
        found: list[Exchange] = []
        async for using in harness(kind, TargetSpec((seen.url,))):
            found = [await using.ask() for _ in range(times)]
        return found, seen.connections


def says(*writes: bytes, keep: bool = True, pause: float = 0.0) -> Script:
    async def script(_: Asked, writer: asyncio.StreamWriter) -> bool:
        for data in writes:
            writer.write(data)
            await writer.drain()
            await asyncio.sleep(pause)
        return keep

    return script


@both
async def test_chunked_answers_over_one_kept_connection(kind: Kind) -> None:
    """vLLM PR 21981: a connection for each request costs a handshake in every TTFT."""
    found, connections = await answers(kind, says(WHOLE), 20)
    assert {e.error for e in found} == {ErrorClass.NONE}
    assert {(e.answer, e.tokens_out, e.chunks) for e in found} == {("xx", 2, 2)}
    assert [e.reused for e in found] == [False] + [True] * 19
    assert connections == 1


@both
async def test_any_split_of_the_bytes_on_the_wire(kind: Kind) -> None:
    for size in (1, 7, 100):
        (exchange,), _ = await answers(kind, says(*(WHOLE[i : i + size] for i in range(0, len(WHOLE), size))))
        assert (exchange.error, exchange.answer) == (ErrorClass.NONE, "xx")


@both
async def test_bodies_by_content_length_and_by_close(kind: Kind) -> None:
    body = b"".join(ANSWER)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    counted, _ = await answers(kind, says(head + b"Content-Length: %d\r\n\r\n" % len(body) + body), 2)
    assert [e.error for e in counted] == [ErrorClass.NONE] * 2
    closed, connections = await answers(kind, says(head + b"Connection: close\r\n\r\n" + body, keep=False), 2)
    assert [e.error for e in closed] == [ErrorClass.NONE] * 2
    assert connections == 2


@both
async def test_a_kept_connection_that_was_closed_meanwhile_is_retried_once_and_told(kind: Kind) -> None:
    """vllm-omni #1374: the keep-alive race."""

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        if asked.nth:
            reset(writer)
            return False
        writer.write(WHOLE)
        return True

    found, _ = await answers(kind, script, 3)
    assert [e.error for e in found] == [ErrorClass.NONE] * 3
    assert [e.retried for e in found] == [False, True, True]


@both
async def test_a_fresh_connection_that_is_reset_is_not_retried(kind: Kind) -> None:
    async def script(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        reset(writer)
        return False

    (exchange,), connections = await answers(kind, script)
    assert (exchange.error, exchange.retried, connections) == (ErrorClass.RESET, False, 1)


@both
async def test_a_reset_after_the_first_byte_is_truncated_and_never_retried(kind: Kind) -> None:
    async def script(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        if asked.number == 0:
            writer.write(WHOLE)
            return True
        writer.write(EVENT_STREAM + chunk(TOKEN))
        await writer.drain()
        await asyncio.sleep(0.02)
        reset(writer)
        return False

    (_, cut), _ = await answers(kind, script, 2)
    assert (cut.error, cut.retried, cut.chunks) == (ErrorClass.TRUNCATED, False, 1)


@both
async def test_a_stream_that_ends_cleanly_without_its_end_is_truncated(kind: Kind) -> None:
    (exchange,), _ = await answers(kind, says(EVENT_STREAM + chunk(HEAD) + chunk(TOKEN) + LAST_CHUNK))
    assert exchange.error is ErrorClass.TRUNCATED


@both
async def test_an_error_status_keeps_its_body_and_its_connection(kind: Kind) -> None:
    body = b'{"error":{"message":"too long","type":"invalid_request"}}'
    head = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    found, connections = await answers(kind, says(head + body), 2)
    assert {(e.error.label(e.status), e.detail) for e in found} == {("http_400", "invalid_request: too long")}
    assert connections == 1


@both
async def test_an_html_answer(kind: Kind) -> None:
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<html></html>"
    (exchange,), _ = await answers(kind, says(page))
    assert exchange.error is ErrorClass.MALFORMED_STREAM


async def test_a_compressed_answer_that_nobody_asked_for_is_named() -> None:
    packed = gzip.compress(b"".join(ANSWER))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    script = says(head % len(packed) + packed)
    (raw, again), _ = await answers("raw", script, 2)
    assert {(e.error, "gzip" in e.detail) for e in (raw, again)} == {(ErrorClass.MALFORMED_STREAM, True)}
    (unpacked,), _ = await answers("aiohttp", script)
    assert (unpacked.error, unpacked.answer) == (ErrorClass.NONE, "xx")


@both
async def test_what_is_not_http(kind: Kind) -> None:
    (exchange,), _ = await answers(kind, says(b"SSH-2.0-OpenSSH_9.2\r\n", keep=False))
    assert exchange.error is ErrorClass.MALFORMED_STREAM


async def test_an_upgrade_that_nobody_asked_for() -> None:
    upgrade = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"
    (exchange,), _ = await answers("raw", says(upgrade))
    assert exchange.error is ErrorClass.MALFORMED_STREAM


@both
async def test_an_interim_response_before_the_answer(kind: Kind) -> None:
    (exchange,), _ = await answers(kind, says(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + WHOLE))
    assert (exchange.error, exchange.status, exchange.chunks) == (ErrorClass.NONE, 200, 2)


@both
async def test_an_error_in_mid_stream_closes_and_the_next_request_goes_well(kind: Kind) -> None:
    async def script(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        broken = EVENT_STREAM + chunk(TOKEN) + chunk(b'data: {"error":{"message":"out of memory"}}\n\n')
        writer.write(WHOLE if asked.number else broken)
        return True

    (first, second), connections = await answers(kind, script, 2)
    assert (first.error, first.detail) == (ErrorClass.SERVER_ERROR, "out of memory")
    assert (second.error, connections) == (ErrorClass.NONE, 2)


@both
async def test_a_refused_connection(kind: Kind) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        async for using in harness(kind, TargetSpec((url,))):
            exchange = await using.ask()
            assert (exchange.error, exchange.sent) == (ErrorClass.CONNECT, None)


@both
async def test_more_than_a_hundred_streams_at_once(kind: Kind) -> None:
    """guidellm #487: concurrency silently capped at the client's default of 100 connections."""

    full = asyncio.Event()

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        writer.write(EVENT_STREAM + chunk(HEAD))
        if asked.number == 299:
            full.set()
        await full.wait()
        writer.write(WHOLE.removeprefix(EVENT_STREAM))
        return True

    async with scripted(script) as seen:
        async for using in harness(kind, TargetSpec((seen.url,))):
            exchanges = [using.start() for _ in range(300)]
            await using.all_over(exchanges)
            assert {e.error for e in exchanges} == {ErrorClass.NONE}
        assert seen.peak == 300


@both
async def test_an_event_above_64_kib(kind: Kind) -> None:
    """vLLM #39963: a line above the client's 64 KiB buffer."""
    text = b"y" * 900_000
    big = b'data: {"choices":[{"index":0,"delta":{"content":"' + text + b'"},"finish_reason":null}]}\n\n'
    body = EVENT_STREAM + chunk(big) + chunk(STOP) + chunk(usage(1)) + chunk(DONE) + LAST_CHUNK
    (exchange,), _ = await answers(kind, says(body))
    assert (exchange.error, len(exchange.answer)) == (ErrorClass.NONE, 900_000)


@both
async def test_a_cancelled_request_closes_its_connection(kind: Kind) -> None:
    gone = asyncio.Event()

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        writer.write(EVENT_STREAM + chunk(TOKEN))
        try:
            while True:
                await writer.drain()
                writer.write(chunk(b": still here\n\n"))
                await asyncio.sleep(0.01)
        except ConnectionError:
            gone.set()
        return False

    async with scripted(script) as seen:
        async for using in harness(kind, TargetSpec((seen.url,))):
            exchange = using.start()
            await asyncio.wait_for(using.token.wait(), 5)
            exchange.cancel(1)
            await asyncio.wait_for(gone.wait(), 5)
            assert exchange.error is ErrorClass.CANCELLED


async def test_headers_key_and_path_are_sent() -> None:
    async with scripted() as seen:
        target = TargetSpec((seen.url + "/base",), api_key="sk-1", headers=(("X-Team", "a"), ("User-Agent", "me")))
        for kind in KINDS:
            async for using in harness(kind, target):
                await using.ask()
    for asked in seen.asked:
        head = asked.head.lower()
        assert head.startswith(b"post /base/v1/chat/completions http/1.1\r\n")
        for line in (b"authorization: bearer sk-1", b"x-team: a", b"user-agent: me", b"content-type: application/json"):
            assert head.count(line + b"\r\n") == 1


async def test_tls_with_the_given_authority_and_without() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, CERTIFICATE.with_suffix(".key"))
    async with scripted(tls=context) as seen:
        found = []
        url = f"https://localhost:{seen.port}"
        for target in (
            TargetSpec((url,), ca_file=str(CERTIFICATE)),
            TargetSpec((url,), verify=False),
            TargetSpec((url,)),
        ):
            async for using in harness("aiohttp", target):
                found.append((await using.ask()).error)
    assert found == [ErrorClass.NONE, ErrorClass.NONE, ErrorClass.TLS]


async def test_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "llm.sock"
    async with scripted(socket=path) as seen:
        async for using in harness("aiohttp", TargetSpec((seen.url,), unix_socket=str(path))):
            assert (await using.ask()).error is ErrorClass.NONE


async def test_replicas_go_to_their_own_servers() -> None:
    async with scripted() as one, scripted() as two:
        async for using in harness("raw", TargetSpec((one.url, two.url))):
            await using.all_over([using.start(0), using.start(1), using.start(1)])
        assert (len(one.asked), len(two.asked)) == (1, 2)


async def test_warm_connections_are_used_by_the_first_requests() -> None:
    async with scripted() as seen:
        transport = make_transport(TargetSpec((seen.url,)), "/v1/chat/completions", "raw")
        await transport.warm(5)
        using = Harness(transport)
        await using.all_over([using.start() for _ in range(5)])
        await transport.close()
        assert seen.connections == 5
