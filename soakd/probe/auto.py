"""``import soakd.probe.auto`` in any torch server starts the probe, if the environment asks for it."""

from __future__ import annotations

from .publisher import register

register()
