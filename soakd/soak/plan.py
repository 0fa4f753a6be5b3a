"""Turns a configuration into what the load engine is told: stages, target, limits of patience."""

from __future__ import annotations

from dataclasses import dataclass

import orjson
from pydantic import ValidationError

from soakd.clock import FastClock
from soakd.config import Loaded, PluginConfig, read_secret
from soakd.load.arrivals import Idle
from soakd.load.canary import CanarySpec
from soakd.load.prompts import PromptSpec
from soakd.load.spec import LoadSpec, Stage, TargetSpec, Timeouts
from soakd.model import TargetInfo
from soakd.registry import plugins

_LEAST_REAL_S = 0.4
_WARMUP = (300.0, 0.15)
_IDLE_BEFORE = (30.0, 0.05)
_IDLE_AFTER = (60.0, 0.05)


@dataclass(frozen=True, slots=True)
class Phases:
    """Seconds of clock time. ``load.duration`` counts warm-up and measurement; the idle phases come on top."""

    idle_before_s: float
    warmup_s: float
    measured_s: float
    idle_after_s: float

    @property
    def total_s(self) -> float:
        return self.idle_before_s + self.warmup_s + self.measured_s + self.idle_after_s

    @property
    def measured_from_s(self) -> float:
        return self.idle_before_s + self.warmup_s


def phases(loaded: Loaded) -> Phases:
    """Explicit lengths as they are; otherwise a share of the run, up to a bound. Raises ConfigError."""
    load = loaded.config.load
    warmup = load.warmup if load.warmup is not None else _share(_WARMUP, load.duration)
    if warmup >= load.duration:
        raise loaded.source.error(
            ("load", "warmup"),
            f"a warm-up of {warmup:g} s leaves nothing of a duration of {load.duration:g} s to measure",
            "make the warm-up shorter or the duration longer",
        )
    before = load.idle_before if load.idle_before is not None else _share(_IDLE_BEFORE, load.duration)
    after = load.idle_after if load.idle_after is not None else _share(_IDLE_AFTER, load.duration)
    return Phases(before, warmup, load.duration - warmup, after)


def _share(bound: tuple[float, float], duration: float) -> float:
    most, share = bound
    return min(most, share * duration)


def interval_of(entry: PluginConfig, speed: float) -> float:
    """Seconds of clock time between readings of a collector. A rehearsal's fast clock would ask for more readings in
    a real second than a machine can give, so that they are thinned to a few."""
    return entry.interval_s if speed == 1.0 else max(entry.interval_s, _LEAST_REAL_S * speed)


def stages(loaded: Loaded) -> tuple[Stage, ...]:
    """The stages of the run. Raises ConfigError for arrivals that are not valid."""
    planned = phases(loaded)
    held = measured_stages(loaded, planned.measured_s)
    parts = [Stage("idle before", Idle(), planned.idle_before_s, False)] if planned.idle_before_s > 0 else []
    if planned.warmup_s > 0:
        parts.append(Stage("warm-up", held[0].arrivals, planned.warmup_s, False))
    parts.extend(held)
    if planned.idle_after_s > 0:
        parts.append(Stage("idle after", Idle(), planned.idle_after_s, False))
    return tuple(parts)


def measured_stages(loaded: Loaded, measured_s: float) -> tuple[Stage, ...]:
    """What the profile plug-in makes of ``load.arrivals`` for the measured part."""
    load, source = loaded.config.load, loaded.source
    options = dict(load.arrivals)
    kind = str(options.pop("kind", "closed"))
    known = plugins("load.profiles")
    if kind not in known:
        raise source.error(("load", "arrivals", "kind"), f"found {kind!r}", f"one of {', '.join(known)}")
    try:
        config = known[kind].config.model_validate(options)
    except ValidationError as error:
        raise source.validation_error(error, ("load", "arrivals")) from None
    built: tuple[Stage, ...] = tuple(known[kind].build(config, measured_s))
    return built


def target_spec(loaded: Loaded, info: TargetInfo) -> TargetSpec:
    """Raises ConfigError when a key that is named is not there."""
    target = loaded.config.target
    return TargetSpec(
        urls=(info.url, *target.replicas),
        adapter=info.kind,
        model=info.model,
        api_key=read_secret(target.api_key_env, target.api_key_file, "API key") or "",
        headers=tuple(target.headers.items()),
        extra_body=orjson.dumps(dict(target.body)).decode() if target.body else "",
        ca_file=str(target.ca_file) if target.ca_file else None,
        verify=target.verify_tls,
        unix_socket=str(target.socket) if target.socket else None,
    )


def load_spec(
    loaded: Loaded, info: TargetInfo, prompts: PromptSpec, canary: CanarySpec | None, clock: FastClock | None
) -> LoadSpec:
    load = loaded.config.load
    patience = load.timeouts
    return LoadSpec(
        target=target_spec(loaded, info),
        stages=stages(loaded),
        prompts=prompts,
        canary=canary,
        max_in_flight=load.max_in_flight,
        timeouts=Timeouts(patience.connect, patience.first_token, patience.stall, patience.total),
        seed=load.seed,
        transport=load.transport,
        workers=0 if load.workers == "auto" else load.workers,
        clock=clock,
        window_s=load.window,
    )
