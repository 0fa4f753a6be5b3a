"""Temperature against power, card by card: the limit on drift, the swing, the time slowed down, the siblings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from soakd.analysis.evidence import RunEvidence, Track
from soakd.analysis.limits import Limit
from soakd.analysis.series import Floats
from soakd.analysis.thermal import (
    Drift,
    Oscillation,
    Sibling,
    ThermalJudgement,
    ThermalQuestion,
    against_siblings,
    judge_thermal,
    oscillation,
)
from soakd.model import Finding, Labels, LimitResult, Severity
from soakd.quantities import format_duration

DRIFT_THAT_COUNTS = 1.0
"""C/h, where no limit on drift is set."""

_HOTTER_C = 3.0
"""Degrees above its siblings, beyond doubt, from which a card is worth a look; slots differ by a degree or two."""

_SWING_C = 3.0
"""Half a peak-to-peak swing from which cooling or load is unsteady enough to be told."""

_SETTLES_S = 300.0
_THERMAL_REASONS = ("hw_thermal", "sw_thermal")


@dataclass(frozen=True, slots=True)
class CardHeat:
    """How one card's temperature behaved in the measured part, beside its drift. ``above`` is against the median of
    the other cards at the same times (None: no other card), ``throttled`` seconds under each reason that was active
    at all."""

    track: Track
    judged: ThermalJudgement | None
    swing: Oscillation
    above: Sibling | None
    throttled: tuple[tuple[str, float], ...]


def card_heat(evidence: RunEvidence, thermal: Sequence[tuple[Track, ThermalJudgement]]) -> tuple[CardHeat, ...]:
    """Of every card whose core temperature was read."""
    tracks = [t for t in evidence.track("gpu_temperature_celsius", sensor="core") if len(t.y)]
    parts = [_measured(t, evidence) for t in tracks]
    names = [str(i) for i in range(len(tracks))]
    siblings = {s.name: s for s in against_siblings([(n, *part) for n, part in zip(names, parts, strict=True)])}
    judged = {t.labels: found for t, found in thermal}
    return tuple(
        CardHeat(t, judged.get(t.labels), oscillation(*part), siblings.get(n), _throttled(t, evidence))
        for n, t, part in zip(names, tracks, parts, strict=True)
    )


def _measured(track: Track, evidence: RunEvidence) -> tuple[Floats, Floats]:
    """Without the first minutes under load, in which every card still warms up, and without outages and the minutes
    after them, in which it cools down and warms up again."""
    settles = min(_SETTLES_S, (evidence.measured_to_s - evidence.measured_from_s) / 4)
    inside = (track.x >= evidence.measured_from_s + settles) & (track.x <= evidence.measured_to_s)
    for outage in evidence.load.outages:
        start = evidence.duration_s + (outage.start_ns - evidence.end_ns) / 1e9
        inside &= (track.x < start) | (track.x > start + outage.seconds(evidence.end_ns) + settles)
    return track.x[inside], track.y[inside]


def _throttled(track: Track, evidence: RunEvidence) -> tuple[tuple[str, float], ...]:
    bdf = dict(track.labels).get("bdf", "")
    gains = [g for g in evidence.gain("gpu_throttle_seconds_total", bdf=bdf) if g.increase]
    return tuple(sorted((dict(g.labels).get("reason", ""), float(g.increase or 0.0)) for g in gains))


def thermal_findings(heat: Sequence[CardHeat], at_ns: int) -> tuple[Finding, ...]:
    """What no limit is on and a person would want to know. Changes no outcome."""
    return tuple(f for card in heat for f in _of_card(card, at_ns))


def _of_card(card: CardHeat, at_ns: int) -> Iterator[Finding]:
    metric, tags = card.track.metric, card.track.labels

    def say(source: str, severity: Severity, title: str, detail: str, value: float, unit: str) -> Finding:
        return Finding(f"thermal.{source}", severity, title, detail, at_ns, tags, metric, value, unit)

    above, swing = card.above, card.swing
    if above is not None and above.low > _HOTTER_C:
        title = f"{above.difference:.1f} C warmer than the other cards"
        detail = (
            f"against the median of {above.cards - 1} at the same minutes (98 % interval {above.low:.1f} to "
            f"{above.high:.1f} C): its load, its cooler or its place in the air flow differs"
        )
        yield say("siblings", Severity.WARNING, title, detail, above.difference, "celsius")
    if swing.amplitude > _SWING_C:
        period = f"every {format_duration(swing.period)}" if swing.period else "without a steady period"
        detail = "98 % of the readings under load lie within it, a straight line taken out"
        yield say(
            "oscillation", Severity.INFO, f"temperature swings by +/- {swing.amplitude:.1f} C {period}", detail,
            swing.amplitude, "celsius",
        )  # fmt: skip
    slowed = [(name, seconds) for name, seconds in card.throttled if name in _THERMAL_REASONS]
    if slowed:
        parts = ", ".join(f"{name} for {format_duration(seconds)}" for name, seconds in slowed)
        total = sum(seconds for _, seconds in slowed)
        yield say("throttle", Severity.INFO, "heat kept its clocks down", parts, total, "seconds")


def _powers(evidence: RunEvidence) -> Mapping[Labels, Track]:
    """The best power reading of each card: temperature follows instantaneous power (measured on H200)."""
    found: dict[Labels, Track] = {}
    for reading in ("usage", "average", "instant"):
        found.update({t.key: t for t in evidence.track("gpu_power_watts", reading=reading) if len(t.y)})
    return found


def judge_drift(allowed: float, evidence: RunEvidence) -> tuple[tuple[Track, ThermalJudgement], ...]:
    """Each card's temperature against its power; ``allowed`` in C/h."""
    powers = _powers(evidence)
    judged = []
    for track in evidence.track("gpu_temperature_celsius", sensor="core"):
        power = powers.get(track.key)
        if power is None or len(power.y) < 2 or len(track.y) < 2:
            continue
        watts = np.interp(track.x, power.x, power.y)
        warmup = evidence.measured_from_s + min(900.0, (evidence.measured_to_s - evidence.measured_from_s) / 4)
        inside = track.x <= evidence.measured_to_s
        question = ThermalQuestion(
            track.x[inside], track.y[inside], watts[inside], warmup=warmup, limit=allowed, name=track.metric
        )
        judged.append((track, judge_thermal(question)))
    return tuple(judged)


def drift_results(
    limit: Limit, judged: Sequence[tuple[Track, ThermalJudgement]], evidence: RunEvidence
) -> tuple[LimitResult, ...]:
    if not judged:
        return (limit.absent(evidence.gpu_note or "temperature and power were not both measured"),)
    results = []
    for track, found in judged:
        if found.verdict is Drift.INCONCLUSIVE or found.slope is None:
            results.append(limit.absent(found.why, track.coverage, track.labels, found.slope))
        else:
            ok = found.verdict is Drift.NO_DRIFT
            results.append(limit.judged(ok, found.slope, found.why, track.coverage, track.labels))
    return tuple(results)
