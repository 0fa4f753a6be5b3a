"""The configuration: pydantic at the edge, every error with its file, line and key.

One file has it all; a missing file means the embedded defaults. A load profile and a set of limits may be named and are
read from the shipped ``configs/``; keys of the user's file win over theirs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from soakd import share
from soakd.cron import cron_trigger
from soakd.drill_config import DrillConfig
from soakd.errors import ConfigError, Problem
from soakd.fields import Bytes, ConfigModel, Ratio, Seconds, SomeSeconds
from soakd.limits_config import LimitsConfig
from soakd.registry import Plugin, plugins
from soakd.yaml_source import Source, load_yaml, parse_yaml

DEFAULT_PROFILE = "customer-service"


class LogConfig(ConfigModel):
    """Where the last lines of the server's log are read at a failure: one of the three."""

    file: Path | None = None
    unit: str | None = None
    container: str | None = None


class TargetConfig(ConfigModel):
    """The server under test."""

    url: str | None = None
    replicas: tuple[str, ...] = ()
    kind: Literal["auto", "openai_chat", "openai_completions", "vllm_generate", "llamacpp"] = "auto"
    model: str | None = None
    api_key_env: str | None = None
    api_key_file: Path | None = None
    headers: Mapping[str, str] = Field(default_factory=dict)
    body: Mapping[str, object] = Field(default_factory=dict)
    ca_file: Path | None = None
    verify_tls: bool = True
    socket: Path | None = None
    pid: int | None = None
    command: str | None = None
    metrics_url: str | None = None
    log: LogConfig = LogConfig()
    vram_cap: Bytes | None = None
    host_memory_cap: Bytes | None = None

    @field_validator("replicas")
    @classmethod
    def _replicas(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(not url.startswith(("http://", "https://")) for url in value):
            raise ValueError("give addresses such as http://127.0.0.1:8001")
        found = tuple(url.rstrip("/") for url in value)
        if len(set(found)) < len(found):
            raise ValueError("one address stands twice")
        return found

    @field_validator("url", "metrics_url")
    @classmethod
    def _http(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            raise ValueError("give an address such as http://127.0.0.1:8000")
        return value.rstrip("/") if value else value

    @model_validator(mode="after")
    def _one_key(self) -> TargetConfig:
        if self.api_key_env and self.api_key_file:
            raise ValueError("give api_key_env or api_key_file, not both")
        return self


class TimeoutsConfig(ConfigModel):
    connect: SomeSeconds = 10.0
    first_token: SomeSeconds = 120.0
    stall: SomeSeconds = 60.0
    total: SomeSeconds = 900.0


class LoadConfig(ConfigModel):
    """The load: a profile's keys, overridden by these. ``arrivals`` and ``workload`` belong to plug-ins by ``kind``."""

    profile: str = DEFAULT_PROFILE
    duration: Seconds = 7200.0
    warmup: Seconds | None = None
    idle_before: Seconds | None = None
    idle_after: Seconds | None = None
    arrivals: Mapping[str, object] = Field(default_factory=lambda: {"kind": "closed", "concurrency": 8})
    workload: Mapping[str, object] = Field(default_factory=lambda: {"kind": "mixture"})
    max_in_flight: int = Field(1024, ge=1, le=100_000)
    timeouts: TimeoutsConfig = TimeoutsConfig()
    seed: int = Field(1, ge=0)
    workers: Annotated[int, Field(ge=1, le=256)] | Literal["auto"] = 1
    transport: Literal["auto", "aiohttp", "raw"] = "auto"
    window: SomeSeconds = 10.0

    @field_validator("duration")
    @classmethod
    def _positive(cls, value: float) -> float:
        if value < 1:
            raise ValueError("a run lasts 1s or more")
        return value


class CanaryConfig(ConfigModel):
    """Deterministic prompts whose answers must not change."""

    enabled: bool = True
    interval: SomeSeconds = 60.0
    prompts: int = Field(3, ge=1, le=64)
    max_tokens: int = Field(48, ge=1, le=4096)


class SafetyConfig(ConfigModel):
    """What ends a run early, with its report."""

    gpu_temperature_celsius: float | None = 95.0
    xid_reboot_class: bool = True
    error_rate: Ratio | None = None
    error_rate_window: Seconds = 60.0


class CollectorConfig(ConfigModel):
    """What the runner needs; the rest of the keys are the collector's own."""

    enabled: bool = True
    interval: SomeSeconds | None = None
    deadline: SomeSeconds | None = None


class RetentionConfig(ConfigModel):
    raw: Seconds = 7 * 86400.0
    minutes: Seconds = 90 * 86400.0
    hours: Seconds = 730 * 86400.0
    max_bytes: Bytes = 20 * 2**30


class WebConfig(ConfigModel):
    """The daemon's web server. What changes state needs the token."""

    listen: str = "127.0.0.1:9464"
    token_env: str | None = None
    token_file: Path | None = None
    stale_after: Seconds = 60.0

    @field_validator("listen")
    @classmethod
    def _address(cls, value: str) -> str:
        host, colon, port = value.rpartition(":")
        if not colon or not host or not port.isdigit() or int(port) > 65535:
            raise ValueError("give host and port, such as 127.0.0.1:9464")
        return value


class SoakScheduleConfig(ConfigModel):
    """A soak that the daemon starts by itself; ``cron`` has the five usual fields, in UTC."""

    cron: str
    duration: Seconds | None = None
    profile: str | None = None

    @field_validator("cron")
    @classmethod
    def _cron(cls, value: str) -> str:
        cron_trigger(value)
        return value


class Config(ConfigModel):
    """The whole file."""

    data_dir: Path = Path(".soakd")
    target: TargetConfig = TargetConfig()
    load: LoadConfig = LoadConfig()
    canary: CanaryConfig = CanaryConfig()
    collectors: Mapping[str, Mapping[str, object]] = Field(default_factory=dict)
    limits: LimitsConfig = LimitsConfig()
    safety: SafetyConfig = SafetyConfig()
    drill: tuple[DrillConfig, ...] = Field(default=(), max_length=100)
    sinks: Mapping[str, Mapping[str, object]] = Field(default_factory=dict)
    notifiers: Mapping[str, Mapping[str, object]] = Field(default_factory=dict)
    rules: tuple[Path, ...] = ()
    retention: RetentionConfig = RetentionConfig()
    web: WebConfig = WebConfig()
    soaks: tuple[SoakScheduleConfig, ...] = ()

    @field_validator("data_dir", mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        if value == "":
            raise ValueError("give a folder; `.` is this one")
        return value


@dataclass(frozen=True, slots=True)
class Loaded:
    """A validated configuration, its source (for errors found later) and its plug-ins, each with its own model."""

    config: Config
    source: Source
    collectors: Mapping[str, PluginConfig]
    sinks: Mapping[str, PluginConfig]
    notifiers: Mapping[str, PluginConfig]

    def with_target(self, url: str) -> Loaded:
        """The same configuration for a server that was only just started."""
        target = self.config.target.model_copy(update={"url": url})
        return replace(self, config=self.config.model_copy(update={"target": target}))


@dataclass(frozen=True, slots=True)
class PluginConfig:
    """One configured plug-in. ``interval_s`` and ``deadline_s`` are the runner's (collectors only)."""

    name: str
    plugin: Plugin
    options: BaseModel
    enabled: bool = True
    interval_s: float = 5.0
    deadline_s: float = 3.0


def load_config(path: Path | None, *, profile: str | None = None, sets: Mapping[str, object] | None = None) -> Loaded:
    """Read, merge and validate. ``sets`` are dotted keys from the command line, which win over everything.

    Raises ConfigError with every problem found.
    """
    source = load_yaml(path) if path else parse_yaml("", "embedded defaults")
    if not isinstance(source.data, dict):
        raise source.error((), "the file is not a mapping of keys", "see `soakd init` for an example")
    data = dict(source.data)
    load = dict(_mapping(source, data, "load"))
    name = profile or str(load.get("profile", DEFAULT_PROFILE))
    data["load"] = {**_inherited(_profile(name, source), load), **load, "profile": name}
    limits = dict(_mapping(source, data, "limits"))
    if "use" in limits:
        data["limits"] = {**_limit_set(str(limits["use"]), source), **limits}
    for key, value in (sets or {}).items():
        _set(data, key, value)
    try:
        config = Config.model_validate(data)
    except ValidationError as error:
        raise source.validation_error(error) from None
    return Loaded(
        config,
        source,
        _plugin_section(source, "collectors", _collectors(config), every=True),
        _plugin_section(source, "sinks", config.sinks),
        _plugin_section(source, "notifiers", config.notifiers),
    )


def read_secret(env: str | None, file: Path | None, what: str) -> str | None:
    """A secret from the environment or a file. Raises ConfigError when it is named but not there."""
    if env:
        value = os.environ.get(env, "")
        if not value:
            raise ConfigError([Problem("environment", None, env, "not set", f"it should hold the {what}")])
        return value
    if file:
        try:
            return file.read_text().strip()
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError([Problem(str(file), None, "", reason, f"it should hold the {what}")]) from None
    return None


def _collectors(config: Config) -> Mapping[str, Mapping[str, object]]:
    """The configured collectors, with what follows from the rest of the file where they don't say it themselves."""
    target = config.target
    metrics: dict[str, object] = {"verify_tls": target.verify_tls}
    if target.metrics_url:
        metrics["urls"] = [target.metrics_url.removesuffix("/metrics")]
    elif target.replicas and target.url:
        metrics["urls"] = [target.url, *target.replicas]
    if target.api_key_env:
        metrics["api_key_env"] = target.api_key_env
    if target.ca_file:
        metrics["ca_file"] = str(target.ca_file)
    known = dict(config.collectors)
    known["host"] = {"disks": ["/", str(config.data_dir.absolute())], **known.get("host", {})}
    known["server_metrics"] = {**metrics, **known.get("server_metrics", {})}
    return known


def _mapping(source: Source, data: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = data.get(key) or {}
    if not isinstance(value, dict):
        raise source.error((key,), "not a mapping of keys", "see `soakd init` for an example")
    return value


def _inherited(profile: Mapping[str, object], load: Mapping[str, object]) -> Mapping[str, object]:
    """A profile's length and warm-up are those of its own arrivals: staged ones bring their own."""
    arrivals = load.get("arrivals")
    if isinstance(arrivals, dict) and arrivals.get("kind") == "staged":
        return {k: v for k, v in profile.items() if k not in ("duration", "warmup")}
    return profile


def _profile(name: str, source: Source) -> Mapping[str, object]:
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        path = share.find("configs/profiles", f"{name}.yaml")
        if not path.is_file():
            known = ", ".join(share.names("configs/profiles"))
            raise source.error(("load", "profile"), f"no profile named {name!r}", f"one of {known}, or a .yaml file")
    profile = load_yaml(path)
    if not isinstance(profile.data, dict):
        raise profile.error((), "the file is not a mapping of keys", "see configs/profiles/")
    try:
        LoadConfig.model_validate(profile.data)
    except ValidationError as error:
        raise profile.validation_error(error) from None
    return {k: v for k, v in profile.data.items() if k != "profile"}


def _limit_set(name: str, source: Source) -> Mapping[str, object]:
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        path = share.find("configs/limits", f"{name}.yaml")
        if not path.is_file():
            known = ", ".join(share.names("configs/limits"))
            raise source.error(("limits", "use"), f"no limits named {name!r}", f"one of {known}, or a .yaml file")
    limits = load_yaml(path)
    if not isinstance(limits.data, dict):
        raise limits.error((), "the file is not a mapping of keys", "see configs/limits/")
    try:
        LimitsConfig.model_validate(limits.data)
    except ValidationError as error:
        raise limits.validation_error(error) from None
    return limits.data


def _set(data: dict[str, object], dotted: str, value: object) -> None:
    *parents, last = dotted.split(".")
    here = data
    for parent in parents:
        child = here.get(parent)
        here[parent] = here = dict(child) if isinstance(child, dict) else {}
    here[last] = value


def _plugin_section(
    source: Source, section: str, entries: Mapping[str, Mapping[str, object]], *, every: bool = False
) -> Mapping[str, PluginConfig]:
    """Validate each entry by its plug-in's own model. With ``every``, plug-ins not named run on their defaults."""
    known = plugins(section)
    problems: list[Problem] = []
    result: dict[str, PluginConfig] = {}
    wanted: dict[str, Mapping[str, object]] = {kind: {} for kind in known} if every else {}
    wanted.update(entries)
    for name, entry in wanted.items():
        own = dict(entry)
        kind = str(own.pop("kind", name))
        if kind not in known:
            problems.append(
                source.problem((section, name), f"no {section[:-1]} of this name", "one of " + ", ".join(known))
            )
            continue
        general = {k: own.pop(k) for k in ("enabled", "interval", "deadline") if every and k in own}
        try:
            common = CollectorConfig.model_validate(general)
            options = known[kind].config.model_validate(own)
        except ValidationError as error:
            problems.extend(source.validation_error(error, (section, name)).problems)
            continue
        interval = common.interval or known[kind].interval_s
        result[name] = PluginConfig(name, known[kind], options, common.enabled, interval,
                                    common.deadline or known[kind].deadline_s)  # fmt: skip
    if problems:
        raise ConfigError(problems)
    return result
