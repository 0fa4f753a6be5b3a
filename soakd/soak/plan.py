"""Turns a configuration into what the load engine is told: stages, target, limits of patience."""

from __future__ import annotations

from dataclasses import dataclass

import orjson
from pydantic import BaseModel, ValidationError

from soakd.clock import FastClock
from soakd.config import LoadConfig, Loaded, PluginConfig, read_secret
from soakd.load.arrivals import Idle
from soakd.load.canary import CanarySpec
from soakd.load.profiles import staged
from soakd.load.prompts import PromptSpec
from soakd.load.spec import LoadSpec, Stage, TargetSpec, Timeouts
from soakd.model import TargetInfo
from soakd.quantities import format_duration
from soakd.registry import Plugin, plugins

_LEAST_REAL_S = 0.4
_SAME_S = 0.5
_WARMUP = (300.0, 0.15)
_IDLE_BEFORE = (30.0, 0.05)
_IDLE_AFTER = (60.0, 0.05)


@dataclass(frozen=True, slots=True)
class Phases:
    """Seconds of clock time. ``load.duration`` counts warm-up and measurement; the idle phases come on top.

    Of staged arrivals the first and the last stages that are not measured are ``warmup_s`` and ``cooldown_s``.
    """

    idle_before_s: float
    warmup_s: float
    measured_s: float
    idle_after_s: float
    cooldown_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.idle_before_s + self.load_s + self.idle_after_s

    @property
    def load_s(self) -> float:
        return self.warmup_s + self.measured_s + self.cooldown_s

    @property
    def measured_from_s(self) -> float:
        return self.idle_before_s + self.warmup_s


def phases(loaded: Loaded) -> Phases:
    """Explicit lengths as they are; otherwise a share of the run, up to a bound. Raises ConfigError."""
    load = loaded.config.load
    _, arrivals = _arrivals(loaded)
    if isinstance(arrivals, staged.Config):
        return _staged_phases(loaded, arrivals)
    warmup = load.warmup if load.warmup is not None else _share(_WARMUP, load.duration)
    if warmup >= load.duration:
        raise loaded.source.error(
            ("load", "warmup"),
            f"a warm-up of {warmup:g} s leaves nothing of a duration of {load.duration:g} s to measure",
            "make the warm-up shorter or the duration longer",
        )
    before, after = _idle(load, load.duration)
    return Phases(before, warmup, load.duration - warmup, after)


def _staged_phases(loaded: Loaded, arrivals: staged.Config) -> Phases:
    """The stages bring their own length and warm-up."""
    load, source = loaded.config.load, loaded.source
    if load.warmup is not None:
        raise source.error(
            ("load", "warmup"),
            "staged arrivals bring their own warm-up",
            "leave it out; a first stage with measured: false is the warm-up",
        )
    length = arrivals.length_s
    if "duration" in load.model_fields_set:
        if not arrivals.stretch and abs(length - load.duration) > _SAME_S:
            raise source.error(
                ("load", "duration"),
                f"{format_duration(load.duration)} contradicts the stages, which last {format_duration(length)} in all",
                "leave out the duration, or set load.arrivals.stretch: true to stretch the stages to it",
            )
        length = load.duration
    built = staged.build(arrivals, length)
    measured = [number for number, stage in enumerate(built) if stage.measured]
    if not measured:
        raise source.error(("load", "arrivals", "stages"), "no stage is measured", "leave measured: false out of one")
    warmup = sum(stage.duration_s for stage in built[: measured[0]])
    cooldown = sum(stage.duration_s for stage in built[measured[-1] + 1 :])
    before, after = _idle(load, length)
    return Phases(before, warmup, length - warmup - cooldown, after, cooldown)


def _idle(load: LoadConfig, length_s: float) -> tuple[float, float]:
    before = load.idle_before if load.idle_before is not None else _share(_IDLE_BEFORE, length_s)
    after = load.idle_after if load.idle_after is not None else _share(_IDLE_AFTER, length_s)
    return before, after


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
    plugin, config = _arrivals(loaded)
    parts = [Stage("idle before", Idle(), planned.idle_before_s, False)] if planned.idle_before_s > 0 else []
    if isinstance(config, staged.Config):
        parts.extend(staged.build(config, planned.load_s))
    else:
        held: tuple[Stage, ...] = tuple(plugin.build(config, planned.measured_s))
        if planned.warmup_s > 0:
            parts.append(Stage("warm-up", held[0].arrivals, planned.warmup_s, False))
        parts.extend(held)
    if planned.idle_after_s > 0:
        parts.append(Stage("idle after", Idle(), planned.idle_after_s, False))
    return tuple(parts)


def _arrivals(loaded: Loaded) -> tuple[Plugin, BaseModel]:
    """The profile plug-in of ``load.arrivals`` and its options. Raises ConfigError."""
    load, source = loaded.config.load, loaded.source
    options = dict(load.arrivals)
    kind = str(options.pop("kind", "closed"))
    known = plugins("load.profiles")
    if kind not in known:
        raise source.error(("load", "arrivals", "kind"), f"found {kind!r}", f"one of {', '.join(known)}")
    try:
        return known[kind], known[kind].config.model_validate(options)
    except ValidationError as error:
        raise source.validation_error(error, ("load", "arrivals")) from None


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
