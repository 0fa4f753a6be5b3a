"""Finds the plug-ins: every module of a plug-in package that has ``KIND``, ``Config`` and ``build``."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from pydantic import BaseModel

from soakd.model import Metric


@dataclass(frozen=True, slots=True)
class Plugin:
    """One plug-in module: its kind, its configuration model, its factory and the metrics it declares.

    A collector module may set ``INTERVAL_S`` and ``DEADLINE_S``, its schedule unless the configuration says otherwise.
    """

    kind: str
    config: type[BaseModel]
    build: Callable[..., Any]
    metrics: tuple[Metric, ...]
    module: str
    interval_s: float = 5.0
    deadline_s: float = 3.0


def plugins(package: str) -> Mapping[str, Plugin]:
    """Every plug-in of ``soakd.<package>`` by its kind, in order of name. Two of one kind are a programming error."""
    root = importlib.import_module(f"soakd.{package}")
    found: dict[str, Plugin] = {}
    for info in sorted(pkgutil.iter_modules(root.__path__), key=lambda m: m.name):
        plugin = _as_plugin(importlib.import_module(f"{root.__name__}.{info.name}"))
        if plugin is None:
            continue
        if plugin.kind in found:
            raise RuntimeError(f"{plugin.module} and {found[plugin.kind].module} are both of kind {plugin.kind}")
        found[plugin.kind] = plugin
    return found


def _as_plugin(module: ModuleType) -> Plugin | None:
    kind = getattr(module, "KIND", None)
    config = getattr(module, "Config", None)
    build = getattr(module, "build", None)
    if not isinstance(kind, str) or not isinstance(config, type) or not callable(build):
        return None
    metrics = tuple(getattr(module, "METRICS", ()))
    interval, deadline = float(getattr(module, "INTERVAL_S", 5.0)), float(getattr(module, "DEADLINE_S", 3.0))
    return Plugin(kind, config, build, metrics, module.__name__, interval, deadline)
