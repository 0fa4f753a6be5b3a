"""Slack, against a server with Slack's documented answers and limits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from pydantic import ValidationError

from soakd.errors import ConfigError
from soakd.model import Alert, AlertState, Severity, labels
from soakd.notifiers import slack
from soakd.notifiers.slack_blocks import alert_blocks, digest_blocks, escape, sparkline
from soakd.ports import Notice, Notifier, Told
from tests.support.gpus import HandClock
from tests.support.slack_server import SECRET_PATH, TOKEN, SlackServer, fault_of, slack_server

NOW = 1_700_000_000_000_000_000


def alert(name: str = "GpuTemperatureHigh", gpu: str = "GPU-1", **changes: object) -> Alert:
    made = Alert(
        name, AlertState.FIRING, Severity.WARNING, labels(gpu=gpu, host="h1"), f"{gpu} is at 88 °C", NOW, NOW, NOW,
        description="limit 85 °C", value=88.0, limit=85.0, unit="celsius", run="20261201-0000-abcd",
        runbook="https://example.invalid/runbook", recent=(80.0, 84.0, 88.0),
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def over(one: Alert) -> Alert:
    return replace(one, state=AlertState.RESOLVED, ended_ns=NOW + 720_000_000_000, over="it is cool again")


@pytest.fixture
async def server() -> AsyncIterator[SlackServer]:
    async with slack_server() as here:
        yield here


@pytest.fixture
async def bot(server: SlackServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Notifier]:
    monkeypatch.setenv("SLACK_TOKEN", TOKEN)
    config = slack.Config(
        token_env="SLACK_TOKEN", channel="#gpu", api_url=f"{server.url}/api", run_url="http://h1/{run}"
    )
    (notifier,) = slack.build(config, HandClock())
    yield notifier
    await notifier.close()


@pytest.fixture
async def webhook(server: SlackServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Notifier]:
    monkeypatch.setenv("SLACK_WEBHOOK", server.webhook)
    (notifier,) = slack.build(slack.Config(webhook_env="SLACK_WEBHOOK"), HandClock())
    yield notifier
    await notifier.close()


async def tell(notifier: Notifier, alerts: Sequence[Alert], before: Told | None = None) -> Told:
    memories = before.memories if before else {}
    return await notifier.notify([Notice(a, memories.get(a.key, "")) for a in alerts])


async def test_a_message_shows_figure_limit_sparkline_and_run(bot: Notifier, server: SlackServer) -> None:
    told = await tell(bot, [alert()])
    assert not told.problem
    (message,) = server.messages.values()
    shown = str(message["blocks"])
    for wanted in ("88 °C", "85 °C", "▁▅█", "<http://h1/20261201-0000-abcd|run>", "|runbook>", "GPU-1"):
        assert wanted in shown
    assert message["channel"] == "#gpu"


async def test_one_message_an_alert_updated_and_threaded_at_its_end(bot: Notifier, server: SlackServer) -> None:
    one = alert()
    first = await tell(bot, [one])
    second = await tell(bot, [replace(one, value=91.0)], first)
    await tell(bot, [over(one)], second)
    assert len(server.messages) == 1
    assert len(server.updates) == 2
    assert "Resolved" in str(server.updates[-1]["text"])
    assert "12m" in str(server.updates[-1]["blocks"])
    (reply,) = server.replies
    assert reply["thread_ts"] in server.messages


async def test_a_message_that_was_deleted_is_posted_anew(bot: Notifier, server: SlackServer) -> None:
    one = alert()
    first = await tell(bot, [one])
    server.messages.clear()
    told = await tell(bot, [over(one)], first)
    assert told.memories.keys() == {one.key}
    assert len(server.messages) == 1


async def test_a_webhook_posts_the_end_as_a_message(webhook: Notifier, server: SlackServer) -> None:
    one = alert()
    first = await tell(webhook, [one])
    assert (await tell(webhook, [over(one)], first)).problem == ""
    assert [("Resolved" in str(m["text"])) for m in server.messages.values()] == [False, True]


async def test_many_at_once_are_one_digest_and_end_in_its_thread(bot: Notifier, server: SlackServer) -> None:
    many = [alert("Flood", f"GPU-{i}") for i in range(1000)]
    first = await tell(bot, many)
    assert len(first.memories) == 1000
    assert len(server.calls) == 1
    (message,) = server.messages.values()
    assert "1000 alerts" in str(message["text"])
    assert "× 1000" in str(message["blocks"])
    told = await tell(bot, [over(a) for a in many], first)
    assert len(told.memories) == 1000
    assert len(server.replies) == 1


async def test_429_keeps_what_was_told_and_passes_the_wait_on(bot: Notifier, server: SlackServer) -> None:
    server.limited = 1
    told = await tell(bot, [alert()])
    assert (told.memories, told.retry_after_s, told.hopeless) == ({}, 7.0, False)
    server.errors = ["ratelimited"]
    assert (await tell(bot, [alert()])).retry_after_s == 30.0
    two = [alert(gpu="GPU-1"), alert(gpu="GPU-2")]
    taken = await tell(bot, two[:1])
    server.limited = 1
    again = await tell(bot, two, taken)
    assert again.retry_after_s == 7.0
    assert two[1].key not in again.memories


@pytest.mark.parametrize("error", ["invalid_auth", "channel_not_found", "not_in_channel", "is_archived"])
async def test_what_a_person_must_fix_is_said(bot: Notifier, server: SlackServer, error: str) -> None:
    server.errors = [error]
    told = await tell(bot, [alert()])
    assert told.hopeless
    assert error in told.problem


async def test_webhook_errors_and_limits(webhook: Notifier, server: SlackServer) -> None:
    server.limited, server.errors = 1, ["no_service"]
    assert (await tell(webhook, [alert()])).retry_after_s == 7.0
    told = await tell(webhook, [alert()])
    assert told.hopeless
    assert "no_service" in told.problem


async def test_no_secret_is_ever_said(monkeypatch: pytest.MonkeyPatch, webhook: Notifier, server: SlackServer) -> None:
    server.errors = ["no_service"]
    said = [(await tell(webhook, [alert()])).problem]
    monkeypatch.setenv("DEAD", f"http://127.0.0.1:9{SECRET_PATH}")
    (dead,) = slack.build(slack.Config(webhook_env="DEAD"), HandClock())
    said += [(await tell(dead, [alert()])).problem, dead.name, webhook.name]
    await dead.close()
    assert all(said)
    assert not [s for s in said if "secretsecret" in s or TOKEN in s]


def test_texts_are_escaped_and_within_slacks_limits() -> None:
    nasty = alert(
        summary="<!channel> & <http://x|y> " + "s" * 3000, description="d" * 9000, runbook="javascript:alert(1)",
        labels=tuple((f"l{i}", "v" * 3000) for i in range(40)), recent=tuple(float(i) for i in range(24)),
    )  # fmt: skip
    blocks = alert_blocks(nasty, "")
    assert fault_of({"text": escape(nasty.summary)[:3000], "blocks": blocks}) == ""
    assert "javascript" not in str(blocks)
    assert escape("<!channel> & <b>") == "&lt;!channel&gt; &amp; &lt;b&gt;"
    digest = digest_blocks([nasty], "fired")
    marked = [b["text"]["text"] for b in digest if b["type"] == "section"]  # type: ignore[index]
    assert not [text for text in marked if "<!" in text or "<http" in text]


def test_sparkline() -> None:
    assert sparkline([1, 2, 3, 4, 5, 6, 7, 8]) == "▁▂▃▄▅▆▇█"
    assert sparkline([5, 5, 5]) == "▁▁▁"
    assert sparkline([1]) == ""


@pytest.mark.parametrize(
    "keys", [{}, {"webhook_env": "A", "token_env": "B", "channel": "#c"}, {"token_env": "B"}, {"webhook": "https://x"}]
)
def test_wrong_keys(keys: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        slack.Config.model_validate(keys)


def test_a_secret_that_is_named_but_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(ConfigError, match="NOT_SET"):
        slack.build(slack.Config(webhook_env="NOT_SET"), HandClock())
