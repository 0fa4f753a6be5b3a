"""Made-up readings of a machine with cards, the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from soakd.model import Kind, Labels, Metric, Sample, State, labels

T0 = 1_700_000_000_000_000_000
SECOND = 10**9
TEMPERATURE = Metric("soakd_gpu_temperature_celsius", "celsius", Kind.GAUGE, "Core temperature", "nvml", ("gpu", "bdf"))
MEMORY = Metric("soakd_gpu_memory_used_bytes", "bytes", Kind.GAUGE, "Memory in use", "nvml", ("gpu", "bdf"))
POWER = Metric("soakd_gpu_power_watts", "watts", Kind.GAUGE, "Board power", "nvml", ("gpu", "bdf"))
ENERGY = Metric("soakd_gpu_energy_joules_total", "joules", Kind.COUNTER, "Energy", "nvml", ("gpu", "bdf"))
ECC = Metric("soakd_gpu_ecc_corrected_total", "errors", Kind.COUNTER, "SBE", "nvml", ("gpu", "bdf", "place"))
RATIO = Metric("soakd_gpu_utilization_ratio", "ratio", Kind.GAUGE, "Busy share", "nvml", ("gpu", "bdf"))
AER = Metric("soakd_pcie_aer_correctable_total", "errors", Kind.COUNTER, "AER", "sysfs", ("gpu", "bdf", "kind"))


def card(index: int) -> Labels:
    return labels(gpu=f"GPU-00000000-0000-0000-0000-{index:012d}", bdf=f"0000:{index:02x}:00.0")


def feed(
    seconds: int, *, cards: int = 8, metrics_per_card: int = 40, seed: int = 1, start_ns: int = T0
) -> Iterator[list[Sample]]:
    """One list a second: ``metrics_per_card`` readings of each card, all of a card at one time.

    A fifth are whole degrees, a fifth bytes in 2 MiB pages, a fifth milliwatts as watts, a fifth counters that stand
    still, and a fifth noise of full precision; now and then a card doesn't answer.
    """
    rng = np.random.default_rng(seed)
    kinds = (TEMPERATURE, MEMORY, POWER, ECC, RATIO)
    series = [
        [(kinds[m % 5], tuple(sorted((*card(c), ("part", str(m // 5)))))) for m in range(metrics_per_card)]
        for c in range(cards)
    ]
    for second in range(seconds):
        batch: list[Sample] = []
        for c in range(cards):
            at_ns = start_ns + second * SECOND + int(rng.integers(0, 2_000_000))
            lost = rng.random() < 0.001
            noise = rng.random(metrics_per_card)
            for (metric, key), n in zip(series[c], noise.tolist(), strict=True):
                if lost:
                    batch.append(Sample.unknown(metric, State.TIMEOUT, at_ns, key))
                else:
                    batch.append(Sample.ok(metric, _value(metric, n, second), at_ns, key))
        yield batch


def _value(metric: Metric, noise: float, second: int) -> float:
    if metric is TEMPERATURE:
        return 60.0 + int(noise * 4)
    if metric is MEMORY:
        return float((40_000 + second // 60 + int(noise * 3)) * 2 * 2**20)
    if metric is POWER:
        return round(550 + noise * 90, 3)
    if metric is ECC:
        return float(second // 1800)
    return noise
