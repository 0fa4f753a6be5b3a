"""Slack without Alertmanager: by an incoming webhook, or by a bot token, which can also update and thread.

One message an alert. With a token (chat.postMessage, chat.update) the message is updated when the alert changes, and
its end is said in its thread as well; a webhook can only post, so that the end is a message of its own. When many
alerts come at once they are one digest. Answers and limits: api.slack.com, messaging/webhooks, methods/chat.postMessage
and apis/rate-limits. The webhook's address and the token are secrets: no message of an error holds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from soakd.errors import ConfigError, Problem
from soakd.fields import ConfigModel, Seconds
from soakd.model import Alert, AlertState, Labels
from soakd.notifiers.http import Answer, HttpPoster, secret
from soakd.notifiers.slack_blocks import Block, alert_blocks, digest_blocks, escape, headline
from soakd.ports import Clock, Notice, Notifier, Told

KIND = "slack"
_POSTED, _DIGEST = "posted", "digest"
_HOPELESS = (
    "invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "no_permission",
    "missing_scope", "channel_not_found", "not_in_channel", "is_archived", "channel_is_archived", "no_service",
    "no_service_id", "no_team", "team_disabled", "action_prohibited", "invalid_token", "no_active_hooks",
)  # fmt: skip
_GONE = ("message_not_found", "cant_update_message", "edit_window_closed")
_RATE_LIMITED_S = 30.0


class Config(ConfigModel):
    """A webhook (``webhook_env`` or ``webhook_file`` holds its address) or a bot (``token_env`` or ``token_file``, and
    ``channel``). More new alerts at once than ``digest_above`` are one message. ``run_url`` is where a run can be seen,
    with ``{run}`` for its id. ``update_every`` renews the figures of messages of alerts that fire (bot only)."""

    webhook_env: str | None = None
    webhook_file: Path | None = None
    token_env: str | None = None
    token_file: Path | None = None
    channel: str | None = None
    api_url: str = "https://slack.com/api"
    digest_above: Annotated[int, Field(ge=1, le=50)] = 5
    update_every: Seconds = 900.0
    run_url: str = ""
    timeout: Seconds = 10.0

    @field_validator("api_url")
    @classmethod
    def _http(cls, value: str) -> str:
        if not value.startswith(("http://", "https://")):
            raise ValueError("give an address")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _one_way(self) -> Config:
        webhook = bool(self.webhook_env or self.webhook_file)
        token = bool(self.token_env or self.token_file)
        if webhook == token:
            raise ValueError("give a webhook (webhook_env or webhook_file) or a token (token_env or token_file)")
        if token and not self.channel:
            raise ValueError("a bot token needs the channel to post to")
        return self


@dataclass(frozen=True, slots=True)
class _Sent:
    """What one call came to: ``channel`` and ``ts`` name the message where a bot posted it."""

    ok: bool
    channel: str = ""
    ts: str = ""
    error: str = ""
    problem: str = ""
    retry_after_s: float | None = None

    @property
    def place(self) -> str:
        return f"{self.channel}:{self.ts}" if self.ts else ""


@dataclass(slots=True)
class _Round:
    """One call of ``notify``: what was delivered so far, and the first failure, which ends it."""

    memories: dict[tuple[str, Labels], str] = field(default_factory=dict)
    failed: _Sent | None = None

    def take(self, alerts: Sequence[Alert], sent: _Sent, memory: str) -> bool:
        if sent.ok:
            self.memories.update({alert.key: memory for alert in alerts})
        else:
            self.failed = sent
        return sent.ok


@dataclass(slots=True)
class SlackNotifier:
    """Memories: ``posted`` (a webhook's message), ``msg:CHANNEL:TS`` (a bot's), ``digest[:CHANNEL:TS]``."""

    name: str
    config: Config
    webhook: str
    token: str
    poster: HttpPoster
    resend_s: float | None
    pause_s: float = 1.0
    heartbeat: bool = False

    async def notify(self, notices: Sequence[Notice]) -> Told:
        turn = _Round()
        new = [n for n in notices if not n.memory]
        known = [n for n in notices if n.memory]
        if len(new) > self.config.digest_above:
            await self._digest([n.alert for n in new], turn)
        else:
            for notice in new:
                if turn.failed is None:
                    await self._post_alert(notice.alert, turn)
        await self._changes(known, turn)
        failed = turn.failed
        if failed is None:
            return Told(turn.memories)
        return Told(turn.memories, failed.problem, failed.retry_after_s, failed.error in _HOPELESS)

    async def close(self) -> None:
        await self.poster.close()

    async def _post_alert(self, alert: Alert, turn: _Round) -> None:
        sent = await self._post(headline(alert), alert_blocks(alert, self.config.run_url))
        turn.take([alert], sent, f"msg:{sent.place}" if sent.place else _POSTED)

    async def _digest(self, alerts: Sequence[Alert], turn: _Round) -> None:
        over = sum(a.state is AlertState.RESOLVED for a in alerts)
        what = "fired" if not over else "fired and are over" if over == len(alerts) else f"fired, {over} are over"
        sent = await self._post(f"{len(alerts)} alerts {what}", digest_blocks(alerts, what))
        turn.take(alerts, sent, f"{_DIGEST}:{sent.place}" if sent.place else _DIGEST)

    async def _changes(self, known: Sequence[Notice], turn: _Round) -> None:
        ended: dict[str, list[Alert]] = {}
        for notice in known:
            kind, _, place = notice.memory.partition(":")
            resolved = notice.alert.state is AlertState.RESOLVED
            if turn.failed is not None:
                return
            if kind == "msg":
                await self._change_message(notice, place, turn)
            elif resolved:
                ended.setdefault(notice.memory, []).append(notice.alert)
            else:
                # a digest names no single alert, and a webhook can't be updated: figures stay as they were posted
                turn.memories[notice.alert.key] = notice.memory
        for memory, alerts in ended.items():
            if turn.failed is None:
                await self._end(memory, alerts, turn)

    async def _change_message(self, notice: Notice, place: str, turn: _Round) -> None:
        alert = notice.alert
        channel, _, ts = place.partition(":")
        blocks = alert_blocks(alert, self.config.run_url)
        sent = await self._call(
            "chat.update", {"channel": channel, "ts": ts, "text": headline(alert), "blocks": blocks}
        )
        if not sent.ok and sent.error in _GONE:
            await self._post_alert(alert, turn)
            return
        if sent.ok and alert.state is AlertState.RESOLVED:
            reply = await self._call(
                "chat.postMessage", {"channel": channel, "thread_ts": ts, "text": escape(headline(alert))}
            )
            # the message itself shows the end already; a thread that can't be written is not tried for ever
            sent = sent if reply.ok or reply.error in _GONE or reply.error == "thread_not_found" else reply
        turn.take([alert], sent, notice.memory)

    async def _end(self, memory: str, alerts: Sequence[Alert], turn: _Round) -> None:
        _, _, place = memory.partition(":")
        channel, _, ts = place.partition(":")
        if ts or len(alerts) > self.config.digest_above:
            text, blocks = f"{len(alerts)} alerts resolved", digest_blocks(alerts, "resolved")
            turn.take(alerts, await self._post(text, blocks, channel, ts), memory)
            return
        for alert in alerts:
            if turn.failed is None:
                sent = await self._post(headline(alert), alert_blocks(alert, self.config.run_url))
                turn.take([alert], sent, memory)

    async def _post(self, text: str, blocks: list[Block], channel: str = "", thread: str = "") -> _Sent:
        payload: dict[str, object] = {"text": escape(text), "blocks": blocks}
        if self.webhook:
            return self._webhook_answer(await self.poster.post(self.webhook, payload))
        payload |= {"channel": channel or self.config.channel}
        if thread:
            payload |= {"thread_ts": thread}
        return await self._call("chat.postMessage", payload)

    async def _call(self, method: str, payload: Mapping[str, object]) -> _Sent:
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = await self.poster.post(f"{self.config.api_url}/{method}", payload, headers)
        if answer.problem:
            return _Sent(False, problem=answer.problem)
        if answer.status == 429:
            return self._limited(answer)
        said = answer.json()
        if answer.status == 200 and said.get("ok") is True:
            return _Sent(True, str(said.get("channel", "")), str(said.get("ts", "")))
        error = str(said.get("error", "")) or f"status {answer.status}"
        if error == "ratelimited":
            return self._limited(answer)
        return _Sent(False, error=error, problem=f"{self.name}: {method} answered {error}")

    def _webhook_answer(self, answer: Answer) -> _Sent:
        if answer.problem:
            return _Sent(False, problem=answer.problem)
        if answer.status == 429:
            return self._limited(answer)
        if answer.status == 200:
            return _Sent(True)
        error = answer.text()[:60]
        return _Sent(False, error=error, problem=f"{self.name}: the webhook answered {answer.status} {error}".strip())

    def _limited(self, answer: Answer) -> _Sent:
        wait = answer.retry_after_s if answer.retry_after_s is not None else _RATE_LIMITED_S
        return _Sent(False, error="ratelimited", problem=f"{self.name}: asked to wait {wait:g} s", retry_after_s=wait)


def build(config: Config, clock: Clock) -> Sequence[Notifier]:
    """Raises ConfigError where a secret is named but not there."""
    del clock
    webhook = secret(config.webhook_env, config.webhook_file, "address of the incoming webhook")
    token = secret(config.token_env, config.token_file, "bot token")
    if webhook and not webhook.startswith(("http://", "https://")):
        place = config.webhook_env or str(config.webhook_file)
        raise ConfigError([Problem(place, None, "", "not an address", "the webhook begins with https://")])
    name = f"slack {config.channel}" if token else "slack webhook"
    resend = config.update_every if token else None
    return (SlackNotifier(name, config, webhook, token, HttpPoster(name, config.timeout), resend),)
