"""Temperature against power, as the thermal analysis sees the simulated cards."""

from __future__ import annotations

import numpy as np
import pytest

from soakd.analysis.thermal import Drift, ThermalJudgement, ThermalQuestion, judge_thermal
from soakd.rehearsal.hardware import SimulatedDevice
from soakd.rehearsal.scenarios import SCENARIOS

TWO_HOURS = 7200.0
IDLE_BEFORE = 120.0


def judged(name: str, card: int, seed: int, step: float) -> ThermalJudgement:
    """Whole degrees, as NVML gives them."""
    device = SimulatedDevice(SCENARIOS[name], TWO_HOURS, card, seed)
    x = np.arange(-IDLE_BEFORE, TWO_HOURS, step)
    readings = [device.at(float(t)) for t in x]
    temperature = np.array([round(r.temperature_c) for r in readings], dtype=np.float64)
    return judge_thermal(ThermalQuestion(x, temperature, np.array([r.power_w for r in readings])))


@pytest.mark.parametrize("seed", range(1, 4))
def test_healthy_cards_and_siblings_do_not_drift(seed: int) -> None:
    for name, card in (("healthy", 0), ("healthy", 1), ("thermal-drift", 0)):
        assert judged(name, card, seed, 5.0).verdict is Drift.NO_DRIFT
        assert judged(name, card, seed, 15.0).verdict is not Drift.DRIFT


@pytest.mark.parametrize("step", [5.0, 15.0])
@pytest.mark.parametrize("seed", range(1, 4))
def test_the_drift_is_found_at_its_true_rate(seed: int, step: float) -> None:
    found = judged("thermal-drift", 1, seed, step)
    (expected,) = SCENARIOS["thermal-drift"].expects(TWO_HOURS)
    assert found.verdict is Drift.DRIFT
    assert found.slope == pytest.approx(expected.value, rel=0.1)
