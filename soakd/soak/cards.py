"""The cards and the collectors of a run, as its report shows them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from soakd.analysis.evidence import RunEvidence, Track
from soakd.analysis.limits_thermal import CardHeat
from soakd.journal.reader import JournalReader
from soakd.model import GpuIdentity, State, labels
from soakd.quantities import format_duration
from soakd.report import facts
from soakd.soak.gather import Window
from soakd.soak.run_facts import RunFacts


def cards(evidence: RunEvidence, run: RunFacts, heat: Sequence[CardHeat]) -> tuple[facts.Gpu, ...]:
    """Every card that was there at the start, with what was seen of it."""
    warmth = {dict(h.track.labels).get("gpu"): h for h in heat}
    return tuple(_card(gpu, evidence, run, warmth.get(gpu.mig or gpu.uuid)) for gpu in run.gpus)


def _card(gpu: GpuIdentity, evidence: RunEvidence, run: RunFacts, heat: CardHeat | None) -> facts.Gpu:
    mine = [t for t in evidence.tracks if dict(t.labels).get("gpu") == (gpu.mig or gpu.uuid)]
    total = _span(mine, "gpu_memory_total_bytes").high
    xids = tuple(
        int(number)
        for e in evidence.event("xid")
        if dict(e.labels).get("gpu") == gpu.uuid and (number := dict(e.attrs).get("xid", "")).isdigit()
    )
    lost = any(dict(e.labels).get("gpu") == gpu.uuid for e in evidence.event("gpu.lost"))
    return facts.Gpu(
        uuid=gpu.uuid,
        bdf=gpu.bdf,
        serial=gpu.serial,
        name=gpu.name,
        index=gpu.index,
        mig=gpu.mig,
        state=State.LOST if lost else State.OK,
        used_by_target=_used(mine, run),
        memory_total_bytes=int(total) if total is not None else None,
        memory_used_bytes=_span(mine, "gpu_memory_used_bytes"),
        temperature_celsius=_span(mine, "gpu_temperature_celsius", sensor="core"),
        memory_temperature_celsius=_span(mine, "gpu_temperature_celsius", sensor="memory"),
        power_watts=_span(mine, "gpu_power_watts", reading="usage"),
        utilisation_ratio=_span(mine, "gpu_utilization_ratio", engine="gpu"),
        throttled_s=_gain(evidence, gpu, "gpu_throttle_seconds_total", reason="hw_thermal"),
        throttle_reasons=tuple(f"{name} {format_duration(s)}" for name, s in heat.throttled) if heat else (),
        ecc_corrected_increase=_count(evidence, gpu, "gpu_ecc_errors_total", counter="aggregate", error="corrected"),
        ecc_uncorrected_increase=_count(
            evidence, gpu, "gpu_ecc_errors_total", counter="aggregate", error="uncorrected"
        ),
        aer_correctable_increase=_count(evidence, gpu, "pcie_aer_severity_errors_total", severity="correctable"),
        aer_fatal_increase=_count(evidence, gpu, "pcie_aer_severity_errors_total", severity="fatal"),
        xids=xids,
        thermal=thermal(heat) if heat else None,
    )


def thermal(heat: CardHeat) -> facts.Thermal:
    found, above = heat.judged, heat.above
    figures = facts.Thermal(
        oscillation_celsius=heat.swing.amplitude if math.isfinite(heat.swing.amplitude) else None,
        oscillation_period_s=heat.swing.period,
        above_siblings_celsius=above.difference if above else None,
        above_siblings_low=above.low if above else None,
        above_siblings_high=above.high if above else None,
        siblings=above.cards - 1 if above else 0,
    )
    if found is None:
        return replace(figures, why="power was not measured beside it")
    return replace(
        figures,
        resistance_celsius_per_watt=found.resistance,
        resistance_low=found.resistance_low,
        resistance_high=found.resistance_high,
        drift_celsius_per_hour=found.slope,
        drift_low=found.slope_low,
        drift_high=found.slope_high,
        smallest_detectable_drift=found.smallest_detectable,
        why=found.why,
    )


def _used(tracks: Iterable[Track], run: RunFacts) -> bool | None:
    processes = [t for t in tracks if t.metric == "gpu_process_memory_bytes"]
    if not processes or run.target.pid is None:
        return None
    return any(dict(t.labels).get("pid") == str(run.target.pid) for t in processes)


def _span(tracks: Iterable[Track], metric: str, **where: str) -> facts.Span:
    found = [t.y for t in tracks if t.metric == metric and where.items() <= dict(t.labels).items() and len(t.y)]
    if not found:
        return facts.Span()
    values = np.concatenate(found)
    return facts.Span(float(values.min()), float(values.mean()), float(values.max()))


def _gain(evidence: RunEvidence, gpu: GpuIdentity, metric: str, **where: str) -> float | None:
    gains = evidence.gain(metric, bdf=gpu.bdf, **where)
    mine = [g.increase for g in gains if g.increase is not None]
    return sum(mine) if mine else None


def _count(evidence: RunEvidence, gpu: GpuIdentity, metric: str, **where: str) -> int | None:
    gained = _gain(evidence, gpu, metric, **where)
    return int(gained) if gained is not None else None


def coverage(reader: JournalReader, window: Window) -> tuple[facts.CollectorCoverage, ...]:
    """Readings had over readings due, for each collector, from the runner's own samples."""
    found = []
    names = sorted({dict(k.labels).get("collector", "") for k in reader.series("collector_up", window.run_id)})
    for name in names:
        up = reader.read("collector_up", labels(collector=name), run_id=window.run_id)
        took = reader.read("collector_duration_seconds", labels(collector=name), run_id=window.run_id)
        good = int(np.sum(np.asarray(up.values) == 1))
        status = {1: "ok", 2: "unsupported", 3: "absent", 4: "timeout", 5: "error", 6: "lost"}
        last = status.get(int(up.values[-1]), "error") if len(up.values) else "absent"
        p95 = float(np.quantile(np.asarray(took.values), 0.95)) if len(took.values) else None
        total = len(up.values)
        found.append(facts.CollectorCoverage(name, last, good / total if total else None, total, good, p95))
    return tuple(found)
