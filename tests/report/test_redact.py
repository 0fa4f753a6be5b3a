"""Nothing that names a machine, a person or a secret gets through; what a reader needs stays."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.report.redact import Redactor, redact
from tests.report import samples

UUID = "0f4f7a43-9a07-4bb3-8f8e-7d2f44e3ac11"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("connect to 10.12.0.7:8000 failed", "connect to [ip]:8000 failed"),
        ("http://gpu07.corp.example.com:8000/v1?key=1 is down", "[url] is down"),
        ("http://alice:pw@127.0.0.1:8000/x", "[url]"),
        ("http://127.0.0.1:8000/v1/models answered 500", "http://127.0.0.1:8000/v1/models answered 500"),
        ("http://localhost:8000/secret/path", "http://localhost:8000"),
        ("listens on 127.0.0.1:8000 and [::1]:8000", "listens on 127.0.0.1:8000 and [::1]:8000"),
        ("fe80::1ff:fe23:4567:890a%eth0 answered", "[ip] answered"),
        ("opened /home/alice/models/qwen.gguf twice", "opened [path] twice"),
        ("--model=/srv/m/qwen.gguf", "--model=[path]"),
        ("~/models/x.gguf and ../x/y.py and C:\\Users\\bob\\x", "[path] and [path] and [path]"),
        ('File "/usr/lib/python3/x.py", line 3', 'File "[path]", line 3'),
        ("models/private/qwen.gguf", "[path]"),
        ("/dev/shm is full, see /proc/4211/limits", "/dev/shm is full, see /proc/4211/limits"),
        (f"GPU-{UUID} lost", "[id] lost"),
        (f"boot {UUID}", "boot [id]"),
        ("GPU-1f0c2d1e fell off", "[id] fell off"),
        ("serial number 1654022101", "serial number [id]"),
        ("mac 02:42:ac:11:00:02", "mac [id]"),
        ("Authorization: Bearer abc.def-123", "Authorization: [key]"),
        ("--api-key s3cr3tvalue9 --port 8000", "--api-key [key] --port 8000"),
        ("OPENAI_API_KEY=sk-proj-abcdef1234567890", "OPENAI_API_KEY=[key]"),
        ("used hf_AbCdEfGhIjKlMnOpQrStUv", "used [key]"),
        ("password: hunter2", "password: [key]"),
        ("mail bob@example.org", "mail [user]"),
        ("user=bob did it", "user=[user] did it"),
        ("node3.cluster.local refused", "[host] refused"),
        ("10.1.2.3/home/alice", "[ip]"),
        ("nas.example.com:/export/alice", "[host]:[path]"),
        ("[x]/etc/alice", "[x][path]"),
        (f"/mnt/{UUID}/alice/x", "[path]"),
        ("/srv/sk-abcdef1234567890/alice", "[path]"),
    ],
)  # fmt: skip
def test_taken_out(text: str, wanted: str) -> None:
    assert redact(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "XID 31 on 0000:01:00.0 at 12:30:45, pid 4211",
        "Qwen/Qwen3-30B-A3B on vLLM 0.11.2, driver 535.183.06",
        "28.4 requests/s where 30 were asked; 3.9 MiB/h; 80 %",
        "output_tokens: 5123, max_tokens 64, token rate 1,812 tokens/s",
        "limit.vram_leak: gpu_memory_used_bytes grew 0.012 %/h",
        "P50/P95/P99 412/742/1930 ms and/or more",
        "2026-12-01 03:56:09 UTC +01:00:00",
        "gen3 x16, AER 3 / 0",
        "firmware 12.575.51.1, vbios v88.0.80.1",
        "server.restart: pid 4211 became 4890",
    ],
)
def test_left_alone(text: str) -> None:
    assert redact(text) == text


def test_known_names_go_and_dull_ones_stay() -> None:
    redactor = Redactor.of(samples.full())
    assert redactor("GPU07 rebooted; gpu07.corp.example.com is back") == "[host] rebooted; [host] is back"
    assert redactor("card 1654022101 was replaced") == "card [id] was replaced"
    assert redactor("gpu07/home/alice and gpu07.other.lan") == "[host][path] and [host]"
    assert Redactor(("server",))("server is up") == "[host] is up"
    assert "server" not in Redactor.of(samples.full()).hosts


_WORDS = st.lists(st.sampled_from(["ok", "at", "pid", "31", "lost,", "(x)", "=", "to:", "50%", "é"]), max_size=4).map(
    " ".join
)
_NAME = st.from_regex(r"[a-z][a-z0-9_]{3,9}", fullmatch=True)
_IP = st.tuples(st.integers(1, 126), *[st.integers(0, 255)] * 3).map(lambda p: ".".join(map(str, p)))
_HOST = st.tuples(_NAME, _NAME).map(lambda p: f"{p[0].replace('_', '-')}x.{p[1].replace('_', '-')}x.com")
_PATH = st.lists(_NAME, min_size=2, max_size=4).map(lambda p: "/zz/" + "/".join(p))


@given(_WORDS, _IP, _WORDS)
def test_no_address_gets_through(before: str, address: str, after: str) -> None:
    assert address not in redact(f"{before} {address} {after}")


@given(_WORDS, _PATH, _WORDS)
def test_no_path_gets_through(before: str, path: str, after: str) -> None:
    out = redact(f"{before} {path} {after}")
    assert not [part for part in path.split("/")[2:] if re.search(rf"/{part}\b", out)]


@given(_WORDS, _HOST, st.integers(1, 65535), _WORDS)
def test_no_host_or_url_gets_through(before: str, host: str, port: int, after: str) -> None:
    assert host not in redact(f"{before} {host}:{port} {after}")
    assert host not in redact(f"{before} https://{host}:{port}/v1/models {after}")


@given(_WORDS, st.uuids(), _WORDS)
def test_no_uuid_gets_through(before: str, uuid: object, after: str) -> None:
    assert str(uuid) not in redact(f"{before} GPU-{uuid} {after}")
    assert str(uuid) not in redact(f"{before} {uuid} {after}")


@given(_WORDS, st.from_regex(r"[A-Za-z0-9]{20,40}", fullmatch=True))
def test_no_named_key_gets_through(before: str, key: str) -> None:
    for form in (f"api_key={key}", f"Bearer {key}", f'"token": "{key}"', f"sk-{key}", f"--api-key=x{key}"):
        assert key not in redact(f"{before} {form}")


@given(st.text(max_size=300))
def test_any_text_is_taken_and_twice_is_once(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


_PIECES = ["/", "\\", ":", ".", "[", "]", "@", "=", "-", "~", " ", '"', "a", "1", "[path]", "http://", "127.0.0.1",
           "10.1.1.1", "token", "sk-", "Bearer ", "user=", "::", "x.com", "GPU-", "serial "]  # fmt: skip


@given(st.lists(st.sampled_from(_PIECES), max_size=14).map("".join))
def test_pieces_that_make_addresses_and_keys_are_settled_in_one_call(text: str) -> None:
    once = redact(text)
    assert redact(once) == once
    assert "10.1.1.1" not in re.split(r"[^\d.]+", once)
