"""One request from its intended start to its last byte: stamps, tokens, and how it ended."""

from __future__ import annotations

from typing import Protocol

import orjson

from soakd.load.failure import ErrorClass, Finish
from soakd.load.histogram import bucket
from soakd.load.prompts import Prompt
from soakd.load.spec import Timeouts
from soakd.load.sse import EventTooLarge, Framer, JsonLinesParser, SseParser
from soakd.load.transport import Handle
from soakd.targets.base import Adapter, Carries, Delta, Framing, MalformedPayload, Usage
from soakd.targets.openai_wire import error_text

_KEPT_BODY_BYTES = 2048
_KEPT_CHUNKS = 262_144


class Owner(Protocol):
    """Whoever wants to know that a request of its own has ended."""

    def ended(self, exchange: Exchange) -> None: ...


class Listener(Protocol):
    """What the engine hears of its requests."""

    def sent(self, exchange: Exchange) -> None: ...
    def gap(self, gap_ns: int, coalesced: bool) -> None: ...
    def read(self) -> None: ...
    def ended(self, exchange: Exchange) -> None: ...


class Exchange:
    """Is the sink of its transport. All stamps are monotonic nanoseconds, None until reached."""

    __slots__ = (
        "_adapter", "_cumulative_chars", "_decode", "_framer", "_is_json", "_kept", "_listener", "_stopped", "_texts",
        "_thoughts", "_want_text", "chunks", "detail", "due", "end", "error", "finish", "first_byte", "first_content",
        "first_token", "gaps", "handle", "last_read", "last_token", "longest_gap", "owner", "prompt", "replica",
        "retried", "reused", "sent", "shortest_gap", "stage", "status", "tokens_seen", "usage",
    )  # fmt: skip

    def __init__(
        self, listener: Listener, adapter: Adapter, prompt: Prompt, due: int, stage: int, replica: int,
        owner: Owner | None, want_text: bool,
    ) -> None:  # fmt: skip
        self._listener = listener
        self._adapter = adapter
        self._decode = adapter.decode
        self._framer: Framer = SseParser() if adapter.framing is Framing.SSE else JsonLinesParser()
        self._want_text = want_text or adapter.framing is Framing.JSON_LINES
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._cumulative_chars: int | None = None
        self._kept: bytearray | None = None
        self._is_json = False
        self._stopped = False
        self.prompt = prompt
        self.owner = owner
        self.stage = stage
        self.replica = replica
        self.handle: Handle | None = None
        self.due = due
        self.sent: int | None = None
        self.first_byte: int | None = None
        self.first_token: int | None = None
        self.first_content: int | None = None
        self.last_token = 0
        self.last_read = due
        self.end: int | None = None
        self.chunks = 0
        self.tokens_seen: int | None = 0
        self.gaps: dict[int, int] = {}
        self.shortest_gap = 1 << 62
        self.longest_gap = 0
        self.usage: Usage | None = None
        self.status = 0
        self.finish: Finish | None = None
        self.error = ErrorClass.NONE
        self.detail = ""
        self.retried = False
        self.reused = False

    @property
    def answer(self) -> str:
        """The text of the answer without its reasoning, where text was wanted."""
        return "".join(self._texts)

    @property
    def whole_text(self) -> str:
        """Reasoning first, then the answer."""
        return "".join(self._thoughts) + self.answer

    @property
    def tokens_out(self) -> int | None:
        """The server's count, from usage or else from its payloads; None when it gave neither."""
        if self.usage is not None and self.usage.completion_tokens is not None:
            return self.usage.completion_tokens
        return self.tokens_seen if self.tokens_seen else None

    def on_sent(self, now_ns: int, reused: bool) -> None:
        self.sent = self.last_read = now_ns
        self.reused = reused
        self._listener.sent(self)

    def on_retry(self) -> None:
        self.retried = True

    def on_head(self, status: int, content_type: str, now_ns: int) -> None:
        self.status = status
        self.first_byte = self.last_read = now_ns
        kind = content_type.partition(";")[0].strip().lower()
        self._is_json = kind == "application/json" and self._adapter.framing is Framing.SSE
        if status != 200 or self._is_json or kind == "text/html":
            self._kept = bytearray()
        if status == 200 and kind == "text/html":
            self._fail(ErrorClass.MALFORMED_STREAM, "the answer is an HTML page", now_ns)

    def on_body(self, chunk: bytes, now_ns: int) -> None:
        if self._stopped:
            return
        self.last_read = now_ns
        if self._kept is not None:
            self._kept += chunk[: _KEPT_BODY_BYTES - len(self._kept)]
            return
        self._listener.read()
        try:
            for payload in self._framer.feed(chunk):
                self._take(self._decode(payload, self._want_text), now_ns)
        except (MalformedPayload, EventTooLarge) as error:
            self._fail(ErrorClass.MALFORMED_STREAM, str(error), now_ns)

    def on_end(self, now_ns: int) -> None:
        if self._stopped:
            return
        if self.status == 200 and self._kept is None:
            try:
                for payload in self._framer.finish():
                    self._take(self._decode(payload, self._want_text), now_ns)
            except MalformedPayload as error:
                self._fail(ErrorClass.MALFORMED_STREAM, str(error), now_ns)
        if not self._stopped:
            self._judge(now_ns)

    def on_failure(self, error: ErrorClass, detail: str, now_ns: int) -> None:
        if not self._stopped:
            self.handle = None
            self._close(error, detail, now_ns)

    def cancel(self, now_ns: int) -> None:
        """The run is over: neither completed nor failed."""
        if not self._stopped:
            self._fail(ErrorClass.CANCELLED, "the run was stopped", now_ns)

    def check(self, now_ns: int, limits: Timeouts) -> None:
        """Fail if a phase has taken too long."""
        since_sent = now_ns - (self.last_read if self.sent is None else self.sent)
        if self.sent is None:
            if since_sent > limits.connect_s * 1e9:
                self._fail(ErrorClass.CONNECT_TIMEOUT, f"no connection in {limits.connect_s:g} s", now_ns)
        elif self.first_token is None and since_sent > limits.first_token_s * 1e9:
            self._fail(ErrorClass.FIRST_TOKEN_TIMEOUT, f"no token in {limits.first_token_s:g} s", now_ns)
        elif since_sent > limits.total_s * 1e9:
            self._fail(ErrorClass.TOTAL_TIMEOUT, f"not ended in {limits.total_s:g} s", now_ns)
        elif self.first_token is not None and now_ns - self.last_read > limits.stall_s * 1e9:
            if self.finish is not None:
                # the answer is whole, only the connection was left open
                self._abort()
                self._judge(self.last_read)
            else:
                self._fail(ErrorClass.STALL_TIMEOUT, f"nothing for {limits.stall_s:g} s in mid-stream", now_ns)

    def _take(self, delta: Delta, now_ns: int) -> None:
        if self._stopped:
            return
        carries = delta.carries
        if delta.cumulative and not self._grew(delta):
            carries = Carries.NOTHING
        if carries:
            self.chunks += 1
            last = self.last_token
            self.last_token = now_ns
            if last:
                gap = now_ns - last
                index = bucket(gap)
                self.gaps[index] = self.gaps.get(index, 0) + 1
                if gap > self.longest_gap:
                    self.longest_gap = gap
                if gap < self.shortest_gap:
                    self.shortest_gap = gap
                self._listener.gap(gap, gap == 0)
            else:
                self.first_token = now_ns
            if self.first_content is None and carries is not Carries.REASONING:
                self.first_content = now_ns
            if delta.tokens is None:
                self.tokens_seen = None
            elif self.tokens_seen is not None:
                self.tokens_seen += delta.tokens
            if self._want_text and delta.text:
                self._keep_text(delta)
        if delta.usage is not None:
            self.usage = delta.usage
        if delta.finish is not None:
            self.finish = Finish.of(delta.finish)
        elif delta.done and self.finish is None:
            self.finish = Finish.MISSING
        if delta.error is not None:
            self._fail(ErrorClass.SERVER_ERROR, delta.error, now_ns)

    def _grew(self, delta: Delta) -> bool:
        """Whether a text that is repeated in full has become longer; it begins with the prompt."""
        if self._cumulative_chars is None:
            messages = self.prompt.messages
            self._cumulative_chars = sum(len(m.content) for m in messages) + 2 * (len(messages) - 1)
        if len(delta.text) <= self._cumulative_chars:
            return False
        self._cumulative_chars = len(delta.text)
        return True

    def _keep_text(self, delta: Delta) -> None:
        if delta.cumulative:
            messages = self.prompt.messages
            self._texts = [delta.text[sum(len(m.content) for m in messages) + 2 * (len(messages) - 1) :]]
        elif self.chunks < _KEPT_CHUNKS:
            (self._thoughts if delta.carries is Carries.REASONING else self._texts).append(delta.text)

    def _judge(self, now_ns: int) -> None:
        """The body has ended: was it a whole answer?"""
        if self.status in (429, 503):
            self._close(ErrorClass.REFUSED_FOR_LOAD, self._body_text(), now_ns)
        elif self.status != 200:
            self._close(ErrorClass.HTTP_STATUS, self._body_text(), now_ns)
        elif self._is_json:
            error = self._error_object()
            if error:
                self._close(ErrorClass.SERVER_ERROR, error, now_ns)
            else:
                self._close(ErrorClass.MALFORMED_STREAM, "the answer is one JSON document, not a stream", now_ns)
        elif self.finish is None and self._adapter.marks_end:
            self._close(ErrorClass.TRUNCATED, f"the stream ended after {self.chunks} chunks without its end", now_ns)
        elif self.first_token is None:
            tokens = self.tokens_out
            told = "" if tokens is None else f"; usage says {tokens} tokens"
            self._close(ErrorClass.EMPTY_ANSWER, f"status 200 without a token{told}", now_ns)
        else:
            self._close(ErrorClass.NONE, "", now_ns)

    def _body_text(self) -> str:
        return self._error_object() or " ".join(bytes(self._kept or b"").decode(errors="replace").split())[:200]

    def _error_object(self) -> str:
        try:
            document = orjson.loads(bytes(self._kept or b""))
        except orjson.JSONDecodeError:
            return ""
        if isinstance(document, dict) and document.get("error"):
            return error_text(document["error"])
        return ""

    def _fail(self, error: ErrorClass, detail: str, now_ns: int) -> None:
        self._abort()
        self._close(error, detail, now_ns)

    def _abort(self) -> None:
        handle, self.handle = self.handle, None
        if handle is not None:
            handle.abort()

    def _close(self, error: ErrorClass, detail: str, now_ns: int) -> None:
        self._stopped = True
        self.handle = None
        self.error = error
        self.detail = detail
        self.end = now_ns
        self._listener.ended(self)
