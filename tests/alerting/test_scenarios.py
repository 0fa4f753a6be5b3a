"""The shipped rules over simulated soaks (SIMULATED): silence for a healthy one, the right alert for each fault."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import pytest

from soakd.alerting.evaluation import Evaluation
from soakd.alerting.rule_files import load_rules, rule_files
from soakd.metrics import catalogue
from soakd.model import Alert, AlertState, Labels
from soakd.rules.condition import NS
from tests.support.simulated_soak import RUN, START_NS, soak

HOURS = 3600.0


@dataclass(frozen=True)
class Wanted:
    """``from_s`` is when the fault begins, ``within_s`` how soon after it the alert must fire; ``stays`` where what it
    says goes on after the soak."""

    name: str
    from_s: float
    within_s: float
    stays: bool = False


FAULTS = {
    "leak": (Wanted("GpuMemoryLeak", 0, 1.5 * HOURS),),
    "staircase": (Wanted("GpuMemoryLeak", 0.16 * 4 * HOURS, 3.4 * HOURS),),
    "thermal-drift": (
        Wanted("GpuThermalDrift", 0, 3 * HOURS),
        # it drifts by 12 C: in the end past what the card is made for
        Wanted("GpuTemperatureAboveMax", 0, 4 * HOURS, stays=True),
        Wanted("GpuMemoryTemperatureAboveMax", 0, 4 * HOURS, stays=True),
    ),
    "server-crash": (Wanted("ServerDown", 0.45 * 4 * HOURS, 60), Wanted("ServerOutage", 0.45 * 4 * HOURS, 60)),
    "ecc-burst": (
        Wanted("GpuEccUncorrected", 2 * HOURS, 60),
        Wanted("GpuXidWorkflow", 2 * HOURS, 60),
        Wanted("GpuEccCorrectedRate", 2 * HOURS, 600),
        Wanted("GpuRetiredPagesPending", 2 * HOURS, 60, stays=True),
    ),
    "gpu-lost": (
        Wanted("GpuLost", 0.6 * 4 * HOURS, 60, stays=True),
        Wanted("GpuXidReboot", 0.6 * 4 * HOURS, 60),
        Wanted("SoakErrorBudgetBurnsFast", 0.6 * 4 * HOURS, 900),
        Wanted("SoakErrorBudgetBurns", 0.6 * 4 * HOURS, 1800),
    ),
    "garbled": (Wanted("SoakAnswersChanged", 2 * HOURS, 60),),
}


async def run_rules(scenario: str, duration_s: float, step_s: float, cards: int = 2) -> dict[str, list[Alert]]:
    """Changes of alerts by rule, pending ones left out."""
    evaluation = Evaluation(load_rules(rule_files(()), catalogue().by_name), ())
    found: dict[str, list[Alert]] = defaultdict(list)
    async for now_ns, items in soak(scenario, duration_s, step_s, cards):
        for alert in (*evaluation.step(items, now_ns), *evaluation.tick(now_ns)):
            if alert.state is not AlertState.PENDING:
                found[alert.name].append(alert)
    assert not [s for s in evaluation.status() if s.problem]
    return found


async def test_a_healthy_day_is_silent() -> None:
    assert await run_rules("healthy", 24 * HOURS, 60, cards=1) == {}


@pytest.mark.parametrize("scenario", FAULTS)
async def test_each_fault_gives_its_alerts_once_in_time_and_resolved(scenario: str) -> None:
    found = await run_rules(scenario, 4 * HOURS, 60)
    assert set(found) == {w.name for w in FAULTS[scenario]}
    for wanted in FAULTS[scenario]:
        changes = found[wanted.name]
        fired = [a for a in changes if a.state is AlertState.FIRING]
        assert len(fired) == 1, wanted
        assert fired[0].run == RUN
        assert fired[0].fired_ns is not None
        began_s = (fired[0].fired_ns - START_NS) / NS
        assert wanted.from_s <= began_s <= wanted.from_s + wanted.within_s, (wanted, began_s)
        assert (changes[-1].state is AlertState.RESOLVED) != wanted.stays, wanted
        assert _card(fired[0].labels) in ("", "0000:1b:00.0"), "the card at fault is the second one"


def _card(found: Labels) -> str:
    return dict(found).get("bdf", "")
