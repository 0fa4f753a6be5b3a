"""Against real Alertmanagers: fire, update, resolve, restarts of either side, a cut network, a cluster, a thousand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from soakd import share
from soakd.alerting.channel import Channel
from soakd.alerting.outbox import Outbox
from soakd.clock import FastClock, RealClock
from soakd.model import Alert, AlertState, Severity, labels
from soakd.notifiers import alertmanager
from soakd.ports import Clock
from tests.support.alertmanagers import Alertmanager, Cable, Receiver, free_port, needs, receiver, webhook_config

pytestmark = pytest.mark.integration


def fired(name: str = "GpuTemperatureHigh", gpu: str = "GPU-1", **more: str) -> Alert:
    now_ns = time.time_ns()
    return Alert(
        name, AlertState.FIRING, Severity.WARNING, labels(host="h1", gpu=gpu, bdf=f"bdf-{gpu}", **more),
        f"{name} of {gpu}", now_ns, now_ns, now_ns, value=88.0, limit=85.0, unit="celsius", run="r1",
    )  # fmt: skip


def resolved(alert: Alert) -> Alert:
    return replace(alert, state=AlertState.RESOLVED, ended_ns=time.time_ns(), over="it is cool again")


class Lines:
    """Channels to some Alertmanagers, started; ``put`` tells all of them."""

    def __init__(self, urls: tuple[str, ...], clock: Clock, resend_s: float = 60.0) -> None:
        config = alertmanager.Config(urls=urls, resend=f"{resend_s:g}s", timeout="2s")
        self.channels = [
            Channel(n, Outbox(int((n.resend_s or 0) * 1e9)), clock, lambda: 0.5)
            for n in alertmanager.build(config, RealClock())
        ]

    def put(self, *alerts: Alert) -> None:
        for channel in self.channels:
            for alert in alerts:
                channel.outbox.put(alert)
            channel.wake()

    async def __aenter__(self) -> Lines:
        for channel in self.channels:
            channel.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for channel in self.channels:
            await channel.stop(1.0)


@pytest.fixture
async def hook() -> AsyncIterator[Receiver]:
    async with receiver() as here:
        yield here


@pytest.fixture
async def server(tmp_path: Path, hook: Receiver) -> AsyncIterator[Alertmanager]:
    here = Alertmanager(tmp_path / "am", webhook_config(hook.url), free_port())
    try:
        await here.start()
        yield here
    finally:
        await here.stop()


async def test_fire_update_resolve(server: Alertmanager, hook: Receiver) -> None:
    async with Lines((server.url,), RealClock(), resend_s=1.0) as lines:
        alert = fired()
        lines.put(alert)
        await hook.until(lambda h: h.names("firing") == ["GpuTemperatureHigh"])
        told = hook.alerts()[0]
        assert told["labels"] == {
            "alertname": "GpuTemperatureHigh", "severity": "warning", "host": "h1", "gpu": "GPU-1", "bdf": "bdf-GPU-1",
            "run": "r1",
        }  # fmt: skip
        for channel in lines.channels:
            channel.outbox.refresh(replace(alert, summary="now 91", value=91.0))
        await server.until(lambda found: [a["annotations"]["summary"] for a in found] == ["now 91"])  # type: ignore[index]
        lines.put(resolved(alert))
        await hook.until(lambda h: h.names("resolved") == ["GpuTemperatureHigh"])
    assert hook.names("firing") == ["GpuTemperatureHigh"], "an update is no new notification"


async def test_an_alertmanager_that_lost_everything_is_told_again(server: Alertmanager, hook: Receiver) -> None:
    async with Lines((server.url,), RealClock(), resend_s=1.0) as lines:
        alert = fired()
        lines.put(alert)
        await hook.until(lambda h: len(h.names("firing")) == 1)
        await server.stop()
        server.forget()
        await server.start()
        await server.until(lambda found: len(found) == 1)
        lines.put(resolved(alert))
        await hook.until(lambda h: len(h.names("resolved")) == 1)


async def test_a_restart_of_soakd_notifies_nobody_twice_and_still_resolves(
    server: Alertmanager, hook: Receiver
) -> None:
    alert = fired()
    async with Lines((server.url,), RealClock()) as before:
        before.put(alert)
        await hook.until(lambda h: len(h.names("firing")) == 1)
    kept = before.channels[0].outbox.dump()
    after = Lines((server.url,), RealClock())
    after.channels[0].outbox.load(kept)
    after.channels[0].outbox.settle([alert], time.time_ns())
    async with after:
        async with asyncio.timeout(5):
            while not after.channels[0].status().sent:  # noqa: ASYNC110  # a status has no event
                await asyncio.sleep(0.01)
        after.put(resolved(alert))
        await hook.until(lambda h: len(h.names("resolved")) == 1)
    assert len(hook.names("firing")) == 1


async def test_firing_is_told_again_before_it_ends_by_itself(server: Alertmanager, hook: Receiver) -> None:
    """Life is four resends, so that a silence of soakd ends the alert, and a resend prolongs it."""
    async with Lines((server.url,), RealClock(), resend_s=1.0) as lines:
        lines.put(fired())
        await hook.until(lambda h: len(h.names("firing")) == 1)
        with pytest.raises(TimeoutError):
            await hook.until(lambda h: bool(h.names("resolved")), within_s=6.0)
    await hook.until(lambda h: len(h.names("resolved")) == 1, within_s=15.0)


async def test_ten_minutes_without_a_network(server: Alertmanager, hook: Receiver) -> None:
    """The channel's clock runs 60 times faster: ten minutes of backing off are ten seconds."""
    cable = Cable(server.port)
    await cable.plug()
    async with Lines((cable.url,), FastClock.start(60.0)) as lines:
        before = fired("Before")
        lines.put(before)
        await hook.until(lambda h: h.names() == ["Before"])
        await cable.cut()
        short, stays = fired("CameAndWent"), fired("Stays")
        lines.put(short, stays)
        await asyncio.sleep(5)
        lines.put(resolved(short), resolved(before))
        await asyncio.sleep(5)
        assert lines.channels[0].status().waiting == 3
        assert 3 <= lines.channels[0].status().failures <= 30, "it backs off"
        await cable.plug()
        await hook.until(
            lambda h: {"CameAndWent", "Stays"} <= set(h.names("firing")) and "Before" in h.names("resolved")
        )
        assert "told late" in str([a for a in hook.alerts() if "CameAndWent" in str(a)])
        assert sorted(hook.names("firing")) == ["Before", "CameAndWent", "Stays"]
        assert lines.channels[0].status().dropped == 0
    await cable.cut()


async def test_two_instances_of_a_cluster_tell_once(tmp_path: Path, hook: Receiver) -> None:
    gossip = [free_port(), free_port()]
    config = webhook_config(hook.url)
    servers = [
        Alertmanager(tmp_path / f"am{i}", config, free_port(), (
            f"--cluster.listen-address=127.0.0.1:{gossip[i]}", f"--cluster.peer=127.0.0.1:{gossip[1 - i]}",
            "--cluster.peer-timeout=3s", "--cluster.gossip-interval=50ms", "--cluster.settle-timeout=3s",
        ))
        for i in range(2)
    ]  # fmt: skip
    async with AsyncExitStack() as stack:
        for server in servers:
            stack.push_async_callback(server.stop)
        await asyncio.gather(*(server.start() for server in servers))
        lines = await stack.enter_async_context(Lines(tuple(s.url for s in servers), RealClock()))
        alert = fired()
        lines.put(alert)
        for server in servers:
            await server.until(lambda found: len(found) == 1)
        await hook.until(lambda h: len(h.names("firing")) == 1)
        with pytest.raises(TimeoutError):
            await hook.until(lambda h: len(h.names("firing")) > 1, within_s=6.0)
        await servers[0].stop()
        lines.put(resolved(alert))
        await hook.until(lambda h: len(h.names("resolved")) == 1)
        other = fired("WhileOneIsDown")
        lines.put(other)
        await hook.until(lambda h: "WhileOneIsDown" in h.names("firing"))


async def test_a_thousand_alerts_at_once_are_grouped_and_all_there(tmp_path: Path, hook: Receiver) -> None:
    server = Alertmanager(tmp_path / "am", webhook_config(hook.url, "[host]"), free_port())
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop)
        await server.start()
        lines = await stack.enter_async_context(Lines((server.url,), RealClock()))
        lines.put(*(fired("Flood", f"GPU-{i}") for i in range(1000)))
        await hook.until(lambda h: len({str(a["labels"]) for a in h.alerts("firing")}) == 1000)
        assert len(hook.got) <= 10, "groups, not a thousand messages"


async def test_a_refused_alert_does_not_hold_up_the_others(server: Alertmanager, hook: Receiver) -> None:
    async with Lines((server.url,), RealClock()) as lines:
        lines.put(fired("Good"), replace(fired("Bad"), labels=(("bad-name", "x"),)))
        await hook.until(lambda h: h.names("firing") == ["Good"])
        async with asyncio.timeout(5):
            while not lines.channels[0].status().hopeless:  # noqa: ASYNC110  # a status has no event
                await asyncio.sleep(0.01)
        assert "bad-name" in lines.channels[0].status().problem


async def test_the_shipped_configuration_silences_what_a_lost_card_takes_with_it(
    tmp_path: Path, hook: Receiver
) -> None:
    shipped = yaml.safe_load((share.root() / "configs/alertmanager/alertmanager.yml").read_text())
    del shipped["global"]["slack_api_url_file"]
    shipped["receivers"] = [
        {"name": r["name"], "webhook_configs": [{"url": hook.url}]} for r in shipped["receivers"]
    ]  # fmt: skip
    server = Alertmanager(tmp_path / "am", yaml.safe_dump(shipped), free_port())
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop)
        await server.start()
        lines = await stack.enter_async_context(Lines((server.url,), RealClock()))
        lines.put(replace(fired("GpuLost"), severity=Severity.CRITICAL))
        lines.put(fired("GpuTemperatureHigh"), fired("GpuTemperatureHigh", "GPU-2"))
        await hook.until(lambda h: set(h.names()) >= {"GpuLost", "GpuTemperatureHigh"})
        states = {
            (a["labels"]["alertname"], a["labels"]["gpu"]): a["status"]["state"]  # type: ignore[index]
            for a in await server.alerts()
        }
    assert states == {
        ("GpuLost", "GPU-1"): "active", ("GpuTemperatureHigh", "GPU-1"): "suppressed",
        ("GpuTemperatureHigh", "GPU-2"): "active",
    }  # fmt: skip
    assert {str(a["labels"]) for a in hook.alerts() if "GpuTemperatureHigh" in str(a) and "'GPU-1'" in str(a)} == set()


async def test_amtool_accepts_the_shipped_configuration() -> None:
    process = await asyncio.create_subprocess_exec(
        needs("amtool"), "check-config", str(share.root() / "configs/alertmanager/alertmanager.yml"),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
