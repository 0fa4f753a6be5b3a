"""The configured limits as the judges take them: name, value, unit, and whether the user set it."""

from __future__ import annotations

from soakd.analysis.limits import Limit
from soakd.limits_config import BandConfig, LimitsConfig

UNITS = {
    "e2e_p95": "s", "e2e_p99": "s", "ttft_p95": "s", "ttft_p99": "s", "itl_p95": "s", "itl_p99": "s",
    "request_rate_min": "requests/s", "output_token_rate_min": "tokens/s", "error_rate_max": "ratio",
    "empty_answers_max": "requests", "decode_retention_min": "ratio", "outages_max": "outages",
    "outage_seconds_max": "s", "restarts_max": "restarts", "canary_identical_min": "ratio",
    "vram_used_max": "bytes", "temperature_max": "celsius", "temperature_band": "celsius",
    "memory_temperature_max": "celsius", "thermal_drift_max": "celsius/h", "thermal_throttle_max": "s",
    "ecc_uncorrected_max": "errors", "ecc_corrected_max": "errors", "aer_fatal_max": "errors",
    "aer_nonfatal_max": "errors", "aer_correctable_max": "errors", "pcie_replay_per_minute_max": "replays/min",
    "xid_max": "events", "gpu_lost_max": "events", "vram_leak_max": "%/h", "host_memory_leak_max": "bytes/h",
    "open_files_leak_max": "files/h", "shm_leak_max": "bytes/h", "threads_leak_max": "threads/h",
}  # fmt: skip


def limits_of(config: LimitsConfig) -> tuple[Limit, ...]:
    """Every limit that is not switched off, in the order of the configuration model."""
    limits: list[Limit] = []
    for name in LimitsConfig.model_fields:
        value = getattr(config, name)
        if name == "use" or value is None:
            continue
        user_set = name in config.model_fields_set
        if isinstance(value, BandConfig):
            extra = (("width", value.width), ("share", value.share))
            limits.append(Limit(name, value.center, UNITS[name], user_set, extra))
        else:
            limits.append(Limit(name, float(value), UNITS[name], user_set))
    return tuple(limits)
