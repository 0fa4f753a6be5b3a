"""Tells systemd (Type=notify) that the daemon is ready, alive and stopping; does nothing where there is no systemd.

Protocol: sd_notify(3), a datagram to the socket in ``NOTIFY_SOCKET``.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Systemd:
    """``address`` is empty where there is no systemd; ``watchdog_s`` None where no watchdog is set."""

    address: str
    watchdog_s: float | None

    @classmethod
    def of_environment(cls) -> Systemd:
        micros = os.environ.get("WATCHDOG_USEC", "")
        mine = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        return cls(
            os.environ.get("NOTIFY_SOCKET", ""),
            int(micros) / 1e6 if micros.isdigit() and mine and int(micros) else None,
        )

    def tell(self, state: str) -> None:
        """``READY=1``, ``WATCHDOG=1``, ``STOPPING=1`` or ``STATUS=...``. A systemd that does not listen is no fault."""
        if not self.address:
            return
        path = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
                out.connect(path)
                out.sendall(state.encode())
        except OSError:
            pass
