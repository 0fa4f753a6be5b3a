"""Slack as documented (api.slack.com): webhooks, chat.postMessage, chat.update, their errors, limits and 429."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson
from aiohttp import web

TOKEN = "xoxb-test-0123456789"
SECRET_PATH = "/services/T000/B000/secretsecret"


@dataclass
class SlackServer:
    """``limited`` answers so many calls with 429 first; ``errors`` are answered in turn before anything is taken."""

    url: str = ""
    messages: dict[str, dict[str, object]] = field(default_factory=dict)
    replies: list[dict[str, object]] = field(default_factory=list)
    updates: list[dict[str, object]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    limited: int = 0
    errors: list[str] = field(default_factory=list)

    @property
    def webhook(self) -> str:
        return self.url + SECRET_PATH

    async def post(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        self.calls.append(method)
        if self.limited:
            self.limited -= 1
            body = {"ok": False, "error": "ratelimited"}
            return web.json_response(body, status=429, headers={"Retry-After": "7"})
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.json_response({"ok": False, "error": "invalid_auth"})
        if self.errors:
            return web.json_response({"ok": False, "error": self.errors.pop(0)})
        payload = orjson.loads(await request.read())
        problem = fault_of(payload)
        if problem:
            return web.json_response({"ok": False, "error": problem})
        if method == "chat.update":
            if payload["ts"] not in self.messages:
                return web.json_response({"ok": False, "error": "message_not_found"})
            self.messages[payload["ts"]] = payload
            self.updates.append(payload)
            return web.json_response({"ok": True, "channel": payload["channel"], "ts": payload["ts"]})
        ts = f"1700000000.{len(self.calls):06d}"
        if "thread_ts" in payload:
            self.replies.append(payload)
        else:
            self.messages[ts] = payload
        return web.json_response({"ok": True, "channel": "C0123456789", "ts": ts})

    async def hook(self, request: web.Request) -> web.Response:
        self.calls.append("webhook")
        if self.limited:
            self.limited -= 1
            return web.Response(status=429, headers={"Retry-After": "7"}, text="rate_limited")
        if self.errors:
            return web.Response(status=404, text=self.errors.pop(0))
        payload = orjson.loads(await request.read())
        problem = fault_of(payload)
        if problem:
            return web.Response(status=400, text=problem)
        self.messages[str(len(self.calls))] = payload
        return web.Response(text="ok")


def fault_of(payload: dict[str, object]) -> str:
    """What Slack would refuse it for; empty for nothing. Limits of Block Kit's reference."""
    text, blocks = payload.get("text"), payload.get("blocks", [])
    if not isinstance(text, str) or not text:
        return "no_text"
    if len(text) > 40_000 or not isinstance(blocks, list) or len(blocks) > 50:
        return "msg_too_long"
    return next((fault for block in blocks if (fault := _block_fault(block))), "")


def _block_fault(block: dict[str, object]) -> str:
    inner = block.get("text")
    length = len(str(inner["text"])) if isinstance(inner, dict) else 0
    fields, elements = block.get("fields", []), block.get("elements", [])
    assert isinstance(fields, list)
    assert isinstance(elements, list)
    match block.get("type"):
        case "header":
            bad = not 0 < length <= 150 or not isinstance(inner, dict) or inner.get("type") != "plain_text"
        case "section":
            bad = length > 3000 or len(fields) > 10 or any(len(f["text"]) > 2000 for f in fields)
            bad = bad or not (length or fields)
        case "context":
            bad = not 0 < len(elements) <= 10 or any(not e["text"] for e in elements)
        case _:
            bad = True
    return "invalid_blocks" if bad else ""


@asynccontextmanager
async def slack_server() -> AsyncIterator[SlackServer]:
    here = SlackServer()
    app = web.Application()
    app.router.add_post("/api/{method}", here.post)
    app.router.add_post(SECRET_PATH, here.hook)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    here.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield here
    finally:
        await runner.cleanup()
