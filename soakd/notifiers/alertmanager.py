"""Prometheus' Alertmanager by its API v2 (POST /api/v2/alerts, Alertmanager 0.16 and later).

Every instance of a cluster is told by a queue of its own: instances share what they notified, not what they were told
(prometheus.io/docs/alerting, "High availability"). A firing alert is told again long before its ``endsAt`` comes; where
soakd falls silent, Alertmanager resolves it then.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from soakd.fields import ConfigModel, Seconds
from soakd.model import AlertState
from soakd.notifiers.http import Answer, HttpPoster, secret
from soakd.ports import Clock, Notice, Notifier, Told
from soakd.quantities import format_value

KIND = "alertmanager"
_PER_REQUEST = 256
_LEAST_LIFE = 4
"""``endsAt`` is this many resends away, as in Prometheus: three may fail before an alert ends by itself."""
_TOLD = "told"


class Config(ConfigModel):
    """``urls``: every instance of the cluster, with path prefix where it has one. ``external_url`` is put into
    ``generatorURL`` (soakd's own page). An alert that came and went while an instance was away is told to it as firing
    for ``late``: it would not notify of an alert that it learns of as resolved."""

    urls: Annotated[tuple[str, ...], Field(min_length=1, max_length=16)]
    resend: Seconds = 60.0
    late: Seconds = 300.0
    timeout: Seconds = 10.0
    external_url: str = ""
    basic_auth_env: str | None = None
    token_env: str | None = None
    token_file: Path | None = None
    ca_file: Path | None = None
    verify_tls: bool = True

    @field_validator("urls")
    @classmethod
    def _http(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for url in value:
            if not url.startswith(("http://", "https://")) or "@" in url:
                raise ValueError("give addresses such as http://127.0.0.1:9093, without user and password")
        return tuple(url.rstrip("/") for url in value)

    @model_validator(mode="after")
    def _sane(self) -> Config:
        if self.resend < 1:
            raise ValueError("resend is 1s or more")
        return self


@dataclass(slots=True)
class AlertmanagerNotifier:
    """One instance."""

    name: str
    url: str
    config: Config
    clock: Clock
    poster: HttpPoster
    authorization: str
    resend_s: float | None
    pause_s: float = 0.2
    heartbeat: bool = True

    async def notify(self, notices: Sequence[Notice]) -> Told:
        now_ns = self.clock.wall_ns()
        memories: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {}
        for start in range(0, len(notices), _PER_REQUEST):
            part = notices[start : start + _PER_REQUEST]
            answer = await self._post([self._payload(notice, now_ns) for notice in part])
            if answer.status == 400 and len(part) > 1:
                # it takes a request whole or not at all: find the alert that it refuses
                refused = await self._one_by_one(part, now_ns)
                memories.update({n.alert.key: _TOLD for n in part if n not in refused})
                if refused:
                    return _failed(self.name, answer, memories)
                continue
            if answer.status != 200:
                return _failed(self.name, answer, memories)
            memories.update({notice.alert.key: _TOLD for notice in part})
        return Told(memories)

    async def close(self) -> None:
        await self.poster.close()

    async def _one_by_one(self, notices: Sequence[Notice], now_ns: int) -> list[Notice]:
        refused = []
        for notice in notices:
            answer = await self._post([self._payload(notice, now_ns)])
            if answer.status != 200:
                refused.append(notice)
        return refused

    async def _post(self, payload: list[dict[str, object]]) -> Answer:
        headers = {"Authorization": self.authorization} if self.authorization else None
        return await self.poster.post(f"{self.url}/api/v2/alerts", payload, headers)

    def _payload(self, notice: Notice, now_ns: int) -> dict[str, object]:
        alert = notice.alert
        ends_ns = now_ns + int(_LEAST_LIFE * self.config.resend * 1e9)
        description = alert.description
        if alert.state is AlertState.RESOLVED:
            ends_ns = min(alert.ended_ns or now_ns, now_ns)
            if not notice.memory:
                description = f"Over since {_iso(ends_ns)} (told late: it could not be told then). {description}"
                ends_ns = now_ns + int(self.config.late * 1e9)
        if not alert.known:
            description = f"{description} Not read since {_iso(alert.seen_ns)}.".strip()
        annotations = {
            "summary": alert.summary,
            "description": description,
            "runbook_url": alert.runbook,
            "value": format_value(alert.value, alert.unit) if alert.value is not None else "",
            "limit": format_value(alert.limit, alert.unit) if alert.limit is not None else "",
            "over": alert.over,
        }
        return {
            # Alertmanager refuses an alert with an empty label value
            "labels": {name: value for name, value in alert.all_labels if value},
            "annotations": {name: text for name, text in annotations.items() if text},
            "startsAt": _iso(min(alert.fired_ns or alert.since_ns, ends_ns)),
            "endsAt": _iso(ends_ns),
            "generatorURL": self.config.external_url,
        }


def _failed(name: str, answer: Answer, memories: dict[tuple[str, tuple[tuple[str, str], ...]], str]) -> Told:
    problem = answer.problem or f"{name} answered {answer.status}: {answer.text() or 'nothing'}"
    return Told(memories, problem, answer.retry_after_s, answer.status in (400, 401, 403, 404))


def _iso(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _authorization(config: Config) -> str:
    if config.basic_auth_env:
        pair = secret(config.basic_auth_env, None, "user and password as USER:PASSWORD")
        return f"Basic {base64.b64encode(pair.encode()).decode()}"
    token = secret(config.token_env, config.token_file, "token for Alertmanager")
    return f"Bearer {token}" if token else ""


def build(config: Config, clock: Clock) -> Sequence[Notifier]:
    """One notifier for each instance. Raises ConfigError where a secret is named but not there."""
    authorization = _authorization(config)
    found = []
    for url in config.urls:
        name = f"alertmanager {url.partition('://')[2]}"
        poster = HttpPoster(name, config.timeout, config.ca_file, config.verify_tls)
        found.append(AlertmanagerNotifier(name, url, config, clock, poster, authorization, config.resend))
    return tuple(found)
