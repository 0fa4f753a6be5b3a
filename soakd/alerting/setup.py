"""From configured notifiers to channels that can be told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pydantic import BaseModel

from soakd.ports import Clock, Notifier
from soakd.registry import Plugin


class Configured(Protocol):
    """A notifier of the configuration (``soakd.config.PluginConfig``)."""

    @property
    def plugin(self) -> Plugin: ...
    @property
    def options(self) -> BaseModel: ...


def build_notifiers(entries: Mapping[str, Configured], clock: Clock) -> tuple[Notifier, ...]:
    """Every channel of every notifier; build them inside the running loop. Raises ConfigError for a missing secret."""
    found: list[Notifier] = []
    for entry in entries.values():
        built: Sequence[Notifier] = entry.plugin.build(entry.options, clock)
        found.extend(built)
    return tuple(found)
