from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from soakd.analysis.series import Floats
from soakd.analysis.thermal import (
    Drift,
    ThermalQuestion,
    against_siblings,
    band_occupancy,
    judge_thermal,
    lagged,
    oscillation,
    throttle_time,
)

Draw = Callable[..., Floats]
X = np.arange(7200.0)


def heated(
    noise: Draw, seed: int, drift: float = 0.0, ramp_w: float = 0.0, inlet: Floats | None = None
) -> ThermalQuestion:
    """Whole degrees of a card at about 300 W, with poles of 30 s and 10 min."""
    power = 300 + ramp_w * X / X[-1] + noise(7200, seed, 15.0, 0.95)
    hot = 24 + 0.08 * lagged(X, power, 30.0) + 0.05 * lagged(X, power, 600.0) + drift * X / 3600
    hot += noise(7200, seed + 1000, 0.2, 0.98) + (0 if inlet is None else inlet - 24)
    return ThermalQuestion(X, np.round(hot), power, inlet=inlet)


@pytest.mark.parametrize("ramp_w", [0.0, 40.0])
def test_no_drift_is_seen_where_power_explains_the_rise(noise: Draw, ramp_w: float) -> None:
    found = [judge_thermal(heated(noise, s, ramp_w=ramp_w)) for s in range(8)]
    assert Drift.DRIFT not in {j.verdict for j in found}
    resistances = [j.resistance for j in found if j.resistance is not None]
    assert np.median(resistances) == pytest.approx(0.13, abs=0.02)


def test_a_drift_is_found_and_not_called_a_fan(noise: Draw) -> None:
    found = [judge_thermal(heated(noise, s, drift=3.0)) for s in range(8)]
    assert sum(j.verdict is Drift.DRIFT for j in found) >= 7
    assert "not explained by power" in found[0].why
    assert "inlet is not measured" in found[0].why
    assert not {"fan", "paste"} & set(found[0].why.split())


def test_a_measured_inlet_explains_a_warmer_room(noise: Draw) -> None:
    inlet = 24 + 3 * X / X[-1]
    found = judge_thermal(heated(noise, 3, inlet=inlet))
    assert found.verdict is not Drift.DRIFT
    assert "inlet" not in found.why


def test_a_run_inside_its_warm_up_settles_nothing(noise: Draw) -> None:
    q = heated(noise, 4)
    found = judge_thermal(ThermalQuestion(q.x[:600], q.temperature[:600], q.power[:600]))
    assert found.verdict is Drift.INCONCLUSIVE
    assert "25m" in found.why


def test_a_steady_card_has_no_drift() -> None:
    found = judge_thermal(ThermalQuestion(X, np.full(7200, 61.0), np.full(7200, 690.0)))
    assert (found.verdict, found.slope) == (Drift.NO_DRIFT, 0.0)


def test_lag_is_an_exponential_average() -> None:
    step = np.where(X < 100, 0.0, 100.0)
    felt = lagged(X, step, 60.0)
    assert felt[160] == pytest.approx(100 * (1 - np.exp(-1)), abs=1.5)
    assert felt[0] == 0.0
    assert np.array_equal(lagged(X, step, 0.0), step)


def test_a_band_is_weighed_by_time_and_gaps_are_unknown() -> None:
    x = np.array([0.0, 1.0, 2.0, 3.0, 100.0])
    band = band_occupancy(x, np.array([77.0, 78.0, 81.0, np.nan, 75.0]), 76.0, 80.0)
    assert band.known_s < 20
    assert band.inside + band.below + band.above == pytest.approx(1.0)
    assert (band.least, band.most) == (75.0, 81.0)
    assert np.isnan(band_occupancy(x, np.full(5, np.nan), 0, 1).inside)


def test_an_oscillation_has_its_amplitude_and_period() -> None:
    found = oscillation(X, np.round(70 + 4 * np.sin(2 * np.pi * X / 240)))
    assert found.amplitude == pytest.approx(4, abs=0.6)
    assert found.period == pytest.approx(240, rel=0.05)
    assert oscillation(X, 70 + (X % 2)).period is None


def test_a_power_cap_is_not_thermal() -> None:
    reasons = np.array([0x1, 0x4, 0x4, 0x24, 0x40, 0x8], dtype=np.float64)
    found = throttle_time(np.arange(6.0), reasons)
    assert (found.power_cap_s, found.thermal_s, found.hardware_slowdown_s) == (3.0, 2.0, 1.0)


def test_a_card_is_compared_with_its_siblings(noise: Draw) -> None:
    cards = [(f"gpu{i}", X, 70.0 + noise(7200, i, 0.5, 0.9) + (6 if i == 2 else 0)) for i in range(4)]
    found = {s.name: s for s in against_siblings(cards)}
    assert found["gpu2"].low < 6 < found["gpu2"].high
    assert found["gpu2"].low > 5
    assert found["gpu0"].low < 0.5
    assert against_siblings(cards[:1]) == ()
