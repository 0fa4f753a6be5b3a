"""The limits a run is judged by, as they stand in a configuration. Each key's meaning is in docs/limits.md."""

from __future__ import annotations

from pydantic import Field

from soakd.fields import Bytes, ConfigModel, Percent, Ratio, Seconds


class BandConfig(ConfigModel):
    """A temperature band: ``center`` +/- ``width`` must hold for ``share`` of the measured time."""

    center: float
    width: float = Field(gt=0)
    share: Ratio = 0.95


class LimitsConfig(ConfigModel):
    """None: not judged. A key the user wrote must be judged (else INCONCLUSIVE); a default one may be NOT_JUDGED."""

    use: str | None = None

    e2e_p95: Seconds | None = None
    e2e_p99: Seconds | None = None
    ttft_p95: Seconds | None = None
    ttft_p99: Seconds | None = None
    itl_p95: Seconds | None = None
    itl_p99: Seconds | None = None
    request_rate_min: float | None = Field(None, gt=0)
    output_token_rate_min: float | None = Field(None, gt=0)
    error_rate_max: Ratio | None = 0.01
    empty_answers_max: int | None = Field(0, ge=0)
    decode_retention_min: Ratio | None = 0.8

    outages_max: int | None = Field(0, ge=0)
    outage_seconds_max: Seconds | None = None
    restarts_max: int | None = Field(0, ge=0)
    canary_identical_min: Ratio | None = 1.0

    vram_used_max: Bytes | None = None
    temperature_max: float | None = None
    temperature_band: BandConfig | None = None
    memory_temperature_max: float | None = None
    thermal_drift_max: float | None = Field(1.0, gt=0)
    thermal_throttle_max: Seconds | None = 300.0

    ecc_uncorrected_max: int | None = Field(0, ge=0)
    ecc_corrected_max: int | None = Field(None, ge=0)
    aer_fatal_max: int | None = Field(0, ge=0)
    aer_nonfatal_max: int | None = Field(0, ge=0)
    aer_correctable_max: int | None = Field(None, ge=0)
    pcie_replay_per_minute_max: float | None = Field(None, ge=0)
    xid_max: int | None = Field(0, ge=0)
    gpu_lost_max: int | None = Field(0, ge=0)

    vram_leak_max: Percent | None = 0.05
    host_memory_leak_max: Bytes | None = 64 * 2**20
    open_files_leak_max: float | None = Field(20.0, gt=0)
    shm_leak_max: Bytes | None = 64 * 2**20
    threads_leak_max: float | None = Field(20.0, gt=0)
