"""Simulated cards: the habits of real ones, the fault on one card alone, and no memory between two readings."""

from __future__ import annotations

import itertools

import pytest

from soakd.nvml.device import FAST, GPU_IS_LOST, NOT_SUPPORTED, SLOW, SUCCESS
from soakd.nvml.queries import calls, fields
from soakd.rehearsal.activity import Activity, Change
from soakd.rehearsal.gpu_answers import answers_of
from soakd.rehearsal.hardware import RESERVED_BYTES, Reading, SimulatedDevice
from soakd.rehearsal.scenarios import CARD_BYTES, PAGE_BYTES, SCENARIOS, Leak

RUN = 7200.0


def device(name: str, card: int = 1, activity: Activity | None = None, seed: int = 1) -> SimulatedDevice:
    return SimulatedDevice(SCENARIOS[name], RUN, card, seed, activity or Activity.steady())


def readings(source: SimulatedDevice, step: float = 60.0, run: float = RUN) -> list[Reading]:
    return [source.at(i * step) for i in range(int(run / step) + 1)]


def test_a_reading_depends_on_the_time_alone() -> None:
    times = [5.0, 4000.0, 17.0, 5.0]
    assert [device("leak").at(t) for t in times] == [device("leak").at(t) for t in times]
    assert device("leak").at(5.0) != device("leak", seed=2).at(5.0)


def test_healthy_memory_rises_in_thinning_jumps_and_then_stands_still() -> None:
    used = [r.used_bytes for r in readings(device("healthy"), 5.0)]
    rises = [b - a for a, b in itertools.pairwise(used) if b > a]
    assert used == sorted(used)
    assert len(rises) >= 6
    assert rises[0] > 3 * rises[-1]
    assert all(u % PAGE_BYTES == 0 for u in used)
    assert len(set(used[int(400 / 5) :])) == 1


def test_a_short_run_has_a_settled_part_too() -> None:
    short = SimulatedDevice(SCENARIOS["healthy"], 600.0, 1)
    assert len({r.used_bytes for r in readings(short, 5.0, 600.0)[24:]}) == 1


@pytest.mark.parametrize("card", [0, 1])
def test_memory_adds_up_to_the_card(card: int) -> None:
    for r in readings(device("leak", card)):
        assert r.used_bytes + r.free_bytes + RESERVED_BYTES == CARD_BYTES
        assert r.process_bytes < r.used_bytes


def test_only_the_leaking_card_leaks_and_at_the_rate_it_says() -> None:
    first, last = device("leak").at(1800), device("leak").at(5400)
    assert last.used_bytes - first.used_bytes == pytest.approx(Leak().bytes_per_hour(RUN), abs=PAGE_BYTES)
    assert device("leak", 0).at(1800).used_bytes == device("leak", 0).at(7000).used_bytes


def test_a_leak_follows_work_and_ends_with_its_process() -> None:
    lazy = Activity((Change(-10, 5, False), Change(0, 5, True), Change(1800, 5, False), Change(5000, None, False),
                     Change(5100, 6, False)))  # fmt: skip
    used = {t: device("leak", activity=lazy).at(t).used_bytes for t in (1800, 4900, 5050, 5200)}
    assert used[4900] == used[1800], "an idle server gives nothing back and takes nothing"
    assert used[5050] <= 2 * PAGE_BYTES
    assert used[5050] < used[5200] < used[1800]


def test_temperature_follows_power_with_a_delay() -> None:
    source = device("healthy")
    before, soon, late, later = (source.at(t).temperature_c for t in (-1, 20, 2400, 4800))
    assert 30 < before < 42
    assert before + 10 < soon < late - 5
    assert late == pytest.approx(later, abs=3.5), "what the load swings"
    assert 65 < late < 78


def test_a_drift_is_heat_without_power() -> None:
    healthy, drifting = readings(device("healthy")), readings(device("thermal-drift"))
    assert [r.power_w for r in healthy] == [r.power_w for r in drifting]
    assert drifting[-1].temperature_c - healthy[-1].temperature_c == pytest.approx(8.0)
    assert max(r.temperature_c for r in drifting) < 85
    assert readings(device("thermal-drift", 0)) == readings(device("healthy", 0))


def test_energy_is_what_power_adds_up_to() -> None:
    source = device("healthy")
    spent = source.at(3600).energy_j - source.at(0).energy_j
    assert spent == pytest.approx(sum(source.at(i * 5.0).power_w * 5 for i in range(720)), rel=0.01)


def test_counters_never_fall_and_start_above_zero() -> None:
    series = readings(device("ecc-burst"))
    for name in ("energy_j", "ecc_corrected", "ecc_uncorrected", "power_cap_s"):
        values = [getattr(r, name) for r in series]
        assert values == sorted(values), name
    assert series[0].ecc_corrected_before > 0
    assert (series[-1].ecc_corrected, series[-1].ecc_uncorrected) == (64, 1)
    assert all(r.ecc_corrected == 0 for r in readings(device("ecc-burst", 0)))


def test_byte_counters_wrap_as_the_32_bit_ones_do() -> None:
    values = [r.pcie_tx_bytes for r in readings(device("healthy"), 5.0)]
    assert all(0 <= v < 2**32 for v in values)
    assert any(b < a for a, b in itertools.pairwise(values))


def test_an_idle_card_says_so() -> None:
    off = device("healthy", activity=Activity(())).at(100)
    assert (off.gpu_percent, off.pid, off.pcie_generation) == (0, None, 1)
    assert off.power_w < 30
    assert off.throttle == 1


@pytest.mark.parametrize("tier", [FAST, SLOW])
def test_answers_have_every_key_of_the_tier(tier: str) -> None:
    answers = answers_of(device("healthy").at(100), tier)
    assert set(answers) == {q.key for q in calls(tier)} | set(fields(tier))
    assert {a.code for a in answers.values()} == {SUCCESS, NOT_SUPPORTED}
    assert all((a.value is None) == (a.code != SUCCESS) for a in answers.values())


def test_a_lost_card_answers_15_to_everything_and_its_sibling_goes_on() -> None:
    at = 0.6 * RUN
    assert {a.code for a in answers_of(device("gpu-lost").at(at), FAST).values()} == {GPU_IS_LOST}
    assert answers_of(device("gpu-lost").at(at - 1), FAST)["memory"].code == SUCCESS
    assert answers_of(device("gpu-lost", 0).at(at), FAST)["memory"].code == SUCCESS


def test_cards_are_told_apart() -> None:
    cards = [device("healthy", i) for i in range(4)]
    for part in ("uuid", "bdf", "serial"):
        assert len({getattr(c, part) for c in cards}) == 4
    assert len({c.at(3000).used_bytes for c in cards}) > 1
