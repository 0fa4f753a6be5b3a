"""``soakd daemon``: composes collectors, journal, forwarder, soaks and web server, and ends them in order."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import orjson
import structlog
from aiohttp import web

from soakd.clock import RealClock
from soakd.config import Loaded
from soakd.errors import SoakdError
from soakd.forward.forwarder import Forwarder, SinkSpec
from soakd.model import labels
from soakd.nvml.pool import GpuPool, nvml_command
from soakd.service.alarms import build_alarms
from soakd.service.backend import DaemonBackend
from soakd.service.opening import knowing_last_boot, open_journal
from soakd.service.parting import Parting
from soakd.service.soaks import SoakDesk
from soakd.service.watching import Watch
from soakd.soak.environment import Environment
from soakd.systemd import Systemd
from soakd.web.app import build_app
from soakd.web.auth import own_token

ADDRESS_FILE = "daemon.json"
_SOAK_WITHIN_S = 6.0
"""For the soak that runs to end with its report; the rest has what is left of ten seconds."""
_JOURNAL_WITHIN_S = 6.0
log = structlog.get_logger(__name__)


async def serve(loaded: Loaded, config_path: Path | None, stopping: asyncio.Event) -> None:
    """Run until ``stopping`` is set. Raises SoakdError when it can't start."""
    clock, config = RealClock(), loaded.config
    systemd = Systemd.of_environment()
    token = own_token(config.web, _made(config.data_dir))
    async with AsyncExitStack() as stack:
        journal = open_journal(loaded, clock)
        last = Parting(_JOURNAL_WITHIN_S)
        last.add("journal", journal.close)
        stack.push_async_callback(last.stop)
        forwarder = Forwarder(journal, config.data_dir, _sinks(loaded), clock)
        parts = Parting()
        stack.push_async_callback(parts.stop)
        forwarder.start()
        parts.add("forwarder", forwarder.stop)
        pool = GpuPool(clock, nvml_command())
        parts.add("NVML workers", pool.close)
        await pool.start()
        environment = Environment(clock=clock, gpus=pool)
        watch = Watch(knowing_last_boot(loaded, journal, environment.roots), environment, journal)
        alarms = build_alarms(loaded, clock, journal, emit=watch.feed.emit, relay=watch.feed.relay, forwarder=forwarder)
        watch.listen(alarms.see)
        desk = SoakDesk(loaded, config_path, environment, journal, watch, alarms)
        backend = DaemonBackend(loaded, clock, journal, watch, desk, forwarder, pool, alarms, clock.wall_ns())
        address = await _listen(parts, config.web.listen, build_app(backend, token))
        await alarms.start()
        parts.add("alarms", alarms.stop)
        await watch.start()
        stack.push_async_callback(watch.pause)
        desk.start()
        _announce(stack, config.data_dir, address)
        systemd.tell("READY=1")
        log.info("soakd watches", web=address, data_dir=str(config.data_dir), gpus=pool.why_none or len(pool.cards))
        await _until_stopped(stopping, systemd, backend)
        systemd.tell("STOPPING=1")
        await desk.stop("SIGTERM", _SOAK_WITHIN_S)


async def _until_stopped(stopping: asyncio.Event, systemd: Systemd, backend: DaemonBackend) -> None:
    """Feeds systemd's watchdog only while something is read, so that a monitor that hangs is started anew."""
    every = systemd.watchdog_s / 3 if systemd.watchdog_s else 30.0
    while not stopping.is_set():
        health = backend.health()
        if not health.hung:
            systemd.tell("WATCHDOG=1")
        systemd.tell(f"STATUS={'; '.join(health.problems) or 'watching'}")
        try:
            await asyncio.wait_for(stopping.wait(), every)
        except TimeoutError:
            continue


def _made(directory: Path) -> Path:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SoakdError(f"{directory}: {error.strerror}", hint="give a data_dir that can be written") from None
    return directory


def _sinks(loaded: Loaded) -> Mapping[str, SinkSpec]:
    tags = labels(host=socket.gethostname())
    return {
        name: SinkSpec(entry.options, lambda e=entry: e.plugin.build(e.options, tags))  # type: ignore[arg-type,misc]
        for name, entry in loaded.sinks.items()
    }


async def _listen(parts: Parting, listen: str, app: web.Application) -> str:
    host, _, port = listen.rpartition(":")
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    parts.add("web server", runner.cleanup)
    site = web.TCPSite(runner, host.strip("[]"), int(port))
    try:
        await site.start()
    except OSError as error:
        raise SoakdError(f"can't listen on {listen}: {error.strerror}", hint="set web.listen to a free port") from None
    bound = runner.addresses[0]
    return f"http://{bound[0]}:{bound[1]}" if ":" not in bound[0] else f"http://[{bound[0]}]:{bound[1]}"


def _announce(stack: AsyncExitStack, directory: Path, address: str) -> None:
    """Where `soakd run` on this host finds the daemon."""
    path = directory / ADDRESS_FILE
    path.write_bytes(orjson.dumps({"pid": os.getpid(), "url": address}))
    stack.callback(path.unlink, missing_ok=True)
