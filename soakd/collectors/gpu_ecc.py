"""ECC errors, retired pages, row remapping and the recovery action that the driver asks for.

VOLATILE counters restart with the driver, AGGREGATE ones are for the life of the card; only the change during a run
tells about the run. DRAM and SRAM answer on Ampere and later; earlier cards count by cache. V100 retires pages, later
cards remap rows (neither can be asked under MIG).
"""

from __future__ import annotations

from collections.abc import Sequence

from soakd.fields import ConfigModel
from soakd.model import Kind, Metric, Sample
from soakd.nvml.queries import COUNTER_TYPES, ERROR_TYPES, LOCATIONS
from soakd.nvml.readings import CardReading, Fresh, no_gpu, readings
from soakd.ports import Collector, CollectorContext, Item

KIND = "gpu_ecc"
INTERVAL_S = 5.0
DEADLINE_S = 8.0

_GPU = ("bdf", "gpu")
_NO_YES = (("no", 0), ("yes", 1))
ERRORS = Metric(
    "gpu_ecc_errors_total", "errors", Kind.COUNTER,
    "ECC errors of all memories; corrected (single bit) or uncorrected (double bit), volatile or aggregate.",
    "field NVML_FI_DEV_ECC_{SBE,DBE}_{VOL,AGG}_TOTAL", (*_GPU, "counter", "error"),
)  # fmt: skip
LOCATION_ERRORS = Metric(
    "gpu_ecc_location_errors_total", "errors", Kind.COUNTER, "ECC errors by the memory they were in.",
    "nvmlDeviceGetMemoryErrorCounter", (*_GPU, "counter", "error", "location"),
)  # fmt: skip
MODE = Metric(
    "gpu_ecc_mode", "", Kind.STATE, "Whether ECC is on now, and after the next reset (pending).",
    "nvmlDeviceGetEccMode", (*_GPU, "when"), (("off", 0), ("on", 1)),
)  # fmt: skip
RETIRED = Metric(
    "gpu_retired_pages_total", "pages", Kind.COUNTER, "Pages retired for good, by cause (V100 and earlier).",
    "nvmlDeviceGetRetiredPages", (*_GPU, "cause"),
)  # fmt: skip
RETIRED_PENDING = Metric(
    "gpu_retired_pages_pending", "", Kind.STATE, "Whether a page waits for the next reset to be retired.",
    "nvmlDeviceGetRetiredPagesPendingStatus", _GPU, _NO_YES,
)  # fmt: skip
REMAPPED = Metric(
    "gpu_remapped_rows_total", "rows", Kind.COUNTER, "Rows remapped for good, by the error that caused it.",
    "nvmlDeviceGetRemappedRows", (*_GPU, "error"),
)  # fmt: skip
REMAP_PENDING = Metric(
    "gpu_row_remap_pending", "", Kind.STATE, "Whether a row waits for the next reset to be remapped.",
    "field NVML_FI_DEV_REMAPPED_PENDING", _GPU, _NO_YES,
)  # fmt: skip
REMAP_FAILURE = Metric(
    "gpu_row_remap_failure", "", Kind.STATE, "Whether a remapping failed: the card must be replaced.",
    "field NVML_FI_DEV_REMAPPED_FAILURE", _GPU, _NO_YES,
)  # fmt: skip
REMAP_BANKS = Metric(
    "gpu_row_remap_banks", "banks", Kind.GAUGE, "Memory banks by how many spare rows they have left.",
    "nvmlDeviceGetRowRemapperHistogram", (*_GPU, "spare"),
)  # fmt: skip
RECOVERY = Metric(
    "gpu_recovery_action", "", Kind.STATE, "What the driver asks for to get the card healthy again.",
    "field NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", _GPU,
    (("none", 0), ("gpu_reset", 1), ("node_reboot", 2), ("drain_p2p", 3), ("drain_and_reset", 4),
     ("recover_imex_domain", 5), ("bus_reset", 6), ("system_reboot", 7)),
)  # fmt: skip
METRICS = (
    ERRORS, LOCATION_ERRORS, MODE, RETIRED, RETIRED_PENDING, REMAPPED, REMAP_PENDING, REMAP_FAILURE, REMAP_BANKS,
    RECOVERY,
)  # fmt: skip

_TOTALS = (
    ("corrected", "volatile", "DEV_ECC_SBE_VOL_TOTAL"),
    ("uncorrected", "volatile", "DEV_ECC_DBE_VOL_TOTAL"),
    ("corrected", "aggregate", "DEV_ECC_SBE_AGG_TOTAL"),
    ("uncorrected", "aggregate", "DEV_ECC_DBE_AGG_TOTAL"),
)


class Config(ConfigModel):
    """Nothing to set."""


class GpuEcc:
    """Totals, pending and failure flags from the fast tier; the rest whenever the slow tier is new."""

    def __init__(self, context: CollectorContext) -> None:
        self._context = context
        self._fresh = Fresh()

    async def collect(self) -> Sequence[Item]:
        fast = [card for card in await readings(self._context.gpus, "fast") if not card.mig]
        if not fast:
            return no_gpu(ERRORS, self._context.clock.wall_ns(), self._context.gpus)
        items = [sample for card in fast for sample in fast_samples(card)]
        for card in await readings(self._context.gpus, "slow"):
            if not card.mig and self._fresh(card.reply):
                items += slow_samples(card)
        return items

    async def close(self) -> None:
        return


def fast_samples(card: CardReading) -> list[Sample]:
    """Totals, the flags that make a card unfit, and the recovery action."""
    samples = [card.sample(ERRORS, key, extra=(("counter", c), ("error", e))) for e, c, key in _TOTALS]
    samples.append(card.sample(REMAP_PENDING, "DEV_REMAPPED_PENDING"))
    samples.append(card.sample(REMAP_FAILURE, "DEV_REMAPPED_FAILURE"))
    samples.append(card.sample(RECOVERY, "DEV_GET_GPU_RECOVERY_ACTION"))
    return samples


def slow_samples(card: CardReading) -> list[Sample]:
    """By location, retired pages, remapped rows and the mode."""
    samples = [
        card.sample(
            LOCATION_ERRORS, f"ecc_{error}_{counter}_{location}",
            extra=(("counter", counter), ("error", error), ("location", location)),
        )
        for error in ERROR_TYPES for counter in COUNTER_TYPES for location in LOCATIONS
    ]  # fmt: skip
    samples += [card.sample(MODE, "ecc_mode", when, extra=(("when", when),)) for when in ("current", "pending")]
    samples.append(card.sample(RETIRED, "retired_pages_sbe", extra=(("cause", "multiple_single_bit"),)))
    samples.append(card.sample(RETIRED, "retired_pages_dbe", extra=(("cause", "double_bit"),)))
    samples.append(card.sample(RETIRED_PENDING, "retired_pages_pending"))
    samples += [card.sample(REMAPPED, "remapped_rows", error, extra=(("error", error),)) for error in ERROR_TYPES]
    samples += [
        card.sample(REMAP_BANKS, "remap_histogram", spare, extra=(("spare", spare),))
        for spare in ("max", "high", "partial", "low", "none")
    ]
    return samples


def build(config: Config, context: CollectorContext) -> Collector:
    return GpuEcc(context)
