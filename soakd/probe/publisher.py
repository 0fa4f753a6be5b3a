"""The thread that publishes, and how it starts: once per process, also after a fork, and never at the server's cost."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .placing import open_folder, replace_file, sweep, usual_folder
from .reading import TorchReader
from .record import ProcessRecord, encode

THREAD_NAME = "soakd-probe"
_OFF = ("", "0", "off", "false", "no")
_ON = ("1", "on", "true", "yes")
_MIN_INTERVAL = 0.1
_MAX_BACKOFF = 60.0


@dataclass(frozen=True)
class Settings:
    """What the environment asks for. ``folder`` is empty for the usual one."""

    folder: str
    interval_s: float
    visible_devices: str

    @staticmethod
    def of(environment: Mapping[str, str]) -> Settings | None:
        """None when the probe is not asked for; a wrong interval falls back to one second."""
        asked = environment.get("SOAKD_PROBE", "").strip()
        if asked.lower() in _OFF:
            return None
        try:
            interval = float(environment.get("SOAKD_PROBE_INTERVAL", "1"))
        except ValueError:
            interval = 1.0
        folder = usual_folder(environment) if asked.lower() in _ON else asked
        interval = interval if _MIN_INTERVAL <= interval <= 3600 else 1.0
        return Settings(folder, interval, environment.get("CUDA_VISIBLE_DEVICES", ""))


def register() -> None:
    """Start the probe in this process, if ``SOAKD_PROBE`` asks for it and it does not run yet. Never raises.

    vLLM calls this in every one of its processes, in some of them more than once.
    """
    try:
        settings = Settings.of(os.environ)
        if settings is None or any(thread.name == THREAD_NAME for thread in threading.enumerate()):
            return
        publisher = Publisher(settings, sys.modules)
        publisher.start()
        os.register_at_fork(after_in_child=publisher.start_in_child)
        atexit.register(publisher.remove)
        logging.getLogger("soakd.probe").info("publishing allocator statistics into %s", settings.folder)
    except Exception:  # noqa: BLE001  # a server must never fail because of its probe
        return


class Publisher:
    """Publishes one process. Every failure is counted and shown in the next file that can be written."""

    def __init__(self, settings: Settings, modules: Mapping[str, Any]) -> None:
        self._settings = settings
        self._modules = modules
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._reader = TorchReader(self._modules, self._settings.visible_devices)
        self._namespace, self._start_ticks, self._boot_id = _identity()
        self._name = f"probe-{self._namespace}-{self._pid}.json"
        self._stop = threading.Event()
        self._sequence = 0
        self._errors = 0
        self._last_error = ""
        self._busy_s = 0.0

    def start(self) -> None:
        """Start the thread; its first file comes after one interval (at most a second)."""
        threading.Thread(target=self._run, name=THREAD_NAME, daemon=True).start()

    def start_in_child(self) -> None:
        """After a fork: a thread and counters of its own, nothing shared with the parent.

        Between fork and exec the thread only waits, so that a plain subprocess is not disturbed.
        """
        try:
            self._begin()
            self.start()
        except Exception:  # noqa: BLE001  # a server must never fail because of its probe
            return

    def publish(self) -> None:
        """Read and write once. Raises what goes wrong."""
        ready = self._reader.ready()
        record = ProcessRecord(
            pid=self._pid,
            pid_namespace=self._namespace,
            start_ticks=self._start_ticks,
            boot_id=self._boot_id,
            wall_ns=time.time_ns(),
            monotonic_ns=time.monotonic_ns(),
            interval_s=self._settings.interval_s,
            sequence=self._sequence + 1,
            errors=self._errors,
            last_error=self._last_error,
            busy_s=self._busy_s,
            torch=self._reader.version(),
            cuda_ready=ready,
            visible_devices=self._settings.visible_devices,
            devices=self._reader.read() if ready else (),
        )
        folder = open_folder(self._settings.folder)
        try:
            if self._sequence == 0:
                sweep(folder, os.geteuid())
            replace_file(folder, self._name, encode(record))
        finally:
            os.close(folder)
        self._sequence += 1

    def publish_contained(self) -> bool:
        """``publish`` with every failure counted instead of raised. True when a file was written."""
        started = time.thread_time()
        try:
            self.publish()
        except Exception as error:  # noqa: BLE001  # a server must never fail because of its probe
            self._errors += 1
            self._last_error = f"{type(error).__name__}: {error}"[:200]
            return False
        finally:
            self._busy_s += time.thread_time() - started
        return True

    def remove(self) -> None:
        """Take the file away at a clean exit; a child that inherited this call leaves its parent's file alone."""
        try:
            if os.getpid() == self._pid:
                self._stop.set()
                os.unlink(os.path.join(self._settings.folder, self._name))
        except OSError:
            pass

    def _run(self) -> None:
        interval = self._settings.interval_s
        wait = min(interval, 1.0)
        while not self._stop.wait(wait):
            wait = interval if self.publish_contained() else min(max(wait, interval) * 2, _MAX_BACKOFF)


def _identity() -> tuple[int, int, str]:
    """PID namespace, start time in ticks since boot, boot id; zeros and '' where /proc does not say."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read(4096).rpartition(b")")[2].split()[19])
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as text:
            boot = text.read(64).strip()
        return os.stat("/proc/self/ns/pid").st_ino, ticks, boot
    except (OSError, ValueError, IndexError):
        return 0, 0, ""
