from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from soakd.errors import TargetError
from soakd.targets.access import Access, ask

TLS = Path(__file__).parents[1] / "fixtures" / "tls"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(body: bytes = b"{}", tls: bool = False, **more: str) -> AsyncIterator[int]:
    async def handle(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, headers={"X-Key": request.headers.get("Authorization", ""), **more})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    context = None
    if tls:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(TLS / "localhost.pem", TLS / "localhost.key")
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw(handler: Handler) -> AsyncIterator[int]:
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


async def fault(access: Access, timeout_s: float = 5.0) -> str:
    async with access.session() as session:
        with pytest.raises(TargetError) as caught:
            await ask(session, access, "/v1/models", timeout_s=timeout_s)
    return str(caught.value)


@pytest.mark.parametrize(
    ("given", "root"),
    [
        ("http://h:8000", "http://h:8000"),
        ("http://h:8000/", "http://h:8000"),
        ("http://h:8000/v1", "http://h:8000"),
        ("http://h:8000/v1/chat/completions", "http://h:8000"),
        ("https://h/llm/v1/", "https://h/llm"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_the_root_is_found_in_what_people_write(given: str, root: str) -> None:
    assert Access.to(given).url == root


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("localhost:8000", "not the address of a server"),
        ("ftp://h", "not the address of a server"),
        ("http://", "not the address of a server"),
        ("http://h:99999", "Port out of range"),
        ("http://u:secret@h", "holds a password"),
    ],
)
def test_addresses_that_can_not_be(given: str, message: str) -> None:
    with pytest.raises(TargetError, match=message) as caught:
        Access.to(given)
    assert "secret" not in str(caught.value)


def test_a_key_with_a_line_break_is_refused_and_no_key_is_shown() -> None:
    with pytest.raises(TargetError, match="line break") as caught:
        Access.to("http://h", api_key="sk-123\n")
    assert "sk-123" not in str(caught.value)
    assert "sk-123" not in repr(Access.to("http://h", api_key="sk-123", headers={"X": "sk-123"}))


async def test_a_key_that_the_server_repeats_is_taken_out() -> None:
    body = b'{"error": {"message": "Incorrect API key provided: s3same-street"}}'
    async with serving(body=body) as port:
        access = Access.to(f"http://127.0.0.1:{port}", api_key="s3same-street")
        async with access.session() as session:
            answer = await ask(session, access, "/v1/models")
    assert answer.complaint() == "Incorrect API key provided: [hidden]"


async def test_the_key_is_sent() -> None:
    async with serving(b'{"a": 1}') as port:
        access = Access.to(f"http://127.0.0.1:{port}", api_key="k1")
        async with access.session() as session:
            answer = await ask(session, access, "/x")
    assert answer.status == 200
    assert answer.fields() == {"a": 1}


async def test_refused_connection() -> None:
    text = await fault(Access.to(f"http://127.0.0.1:{free_port()}"))
    assert "connection refused, nothing listens there" in text


async def test_unknown_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    assert "no address is known for 'no-such-host.invalid'" in await fault(Access.to("http://no-such-host.invalid:80"))


async def test_no_answer_in_time() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with raw(silent) as port:
        assert "no answer within 0.05 s" in await fault(Access.to(f"http://127.0.0.1:{port}"), timeout_s=0.05)


async def test_a_server_that_hangs_up_or_is_not_http() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.close()

    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"220 mail.example ESMTP\r\n\r\n")
        writer.close()

    async with raw(hang_up) as port:
        assert "closed the connection without an answer (try https://)" in await fault(
            Access.to(f"http://127.0.0.1:{port}")
        )
    async with raw(other) as port:
        assert "does not speak HTTP" in await fault(Access.to(f"http://127.0.0.1:{port}"))


async def test_tls_failures_are_told_apart() -> None:
    ca = TLS / "localhost.pem"
    async with serving(tls=True) as port, serving() as plain:
        unknown = await fault(Access.to(f"https://localhost:{port}"))
        assert "TLS failed: its certificate is self-signed (give target.ca_file" in unknown
        name = await fault(Access.to(f"https://127.0.0.1:{port}", ca_file=ca))
        assert "certificate is for another address" in name
        assert "does not speak TLS on this port (write http://" in await fault(Access.to(f"https://127.0.0.1:{plain}"))
        for good in (
            Access.to(f"https://localhost:{port}", ca_file=ca),
            Access.to(f"https://127.0.0.1:{port}", verify_tls=False),
        ):
            async with good.session() as session:
                assert (await ask(session, good, "/")).status == 200


def test_a_ca_file_that_is_none(tmp_path: Path) -> None:
    wrong = tmp_path / "ca.pem"
    wrong.write_text("no certificate")
    for path in (wrong, tmp_path / "missing.pem"):
        with pytest.raises(TargetError, match=r"ca(_file)?|missing"):
            Access.to("https://h", ca_file=path).ssl_context()


async def test_a_unix_socket(tmp_path: Path) -> None:
    assert "no such socket" in await fault(Access.to("http://llm", socket=tmp_path / "none.sock"))


async def test_a_huge_answer_is_cut() -> None:
    async with serving(b"x" * (9 * 2**20)) as port:
        access = Access.to(f"http://127.0.0.1:{port}")
        async with access.session() as session:
            assert len((await ask(session, access, "/")).body) == 8 * 2**20
