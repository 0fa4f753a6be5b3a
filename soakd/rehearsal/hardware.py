"""Simulated cards of the V100 kind: SIMULATED numbers with the habits of measured ones.

Memory moves in pages of 2 MiB, is a staircase of pool jumps that thins out over the first minutes of work and stands
still afterwards; temperature follows power with a fast and a slow pole; counters start above zero. The state at a time
is a pure function of scenario, seed and activity: ``SimulatedDevice(...).at(t)`` needs no process and keeps nothing.
"""

from __future__ import annotations

import functools
import math
import random
from dataclasses import dataclass, field

from soakd.rehearsal.activity import Activity
from soakd.rehearsal.scenarios import CARD_BYTES, PAGE_BYTES, EccBurst, Leak, Scenario, Staircase, ThermalDrift
from soakd.rehearsal.waves import Waves, uniform

RESERVED_BYTES = 264 * 2**20
CARD_NAME = "SIMULATED Tesla V100-SXM2-32GB"
POWER_LIMIT_W = 300.0
SLOWDOWN_C, SHUTDOWN_C, MEMORY_MAX_C = 87, 90, 85
THROTTLE_IDLE, THROTTLE_POWER_CAP = 0x1, 0x4

_POWER_OFF_W, _POWER_IDLE_W, _POWER_BUSY_W = 24.0, 43.0, 228.0
_AMBIENT_C = 27.0
_POLES = ((10.0, 0.170), (200.0, 0.020))
"""(time constant in seconds, C per W): a fast pole and a weak slow one, as measured cards have them, but slower than a
water-cooled card's."""
_MEMORY_ABOVE_CORE_C = 6.0
_BASE_PAGES = 12_700
_CONTEXT_PAGES = 5
"""What NVML counts beyond the process's own memory."""
_POOL_JUMPS = ((3.0, 350), (9.0, 180), (24.0, 120), (46.0, 64), (80.0, 48), (130.0, 32), (205.0, 16), (282.0, 8))
"""(seconds of work, pages): the course measured on a serving process, 99 % after 282 s."""
_POOL_FULL_S = 3600.0
"""A run shorter than this warms up in proportion, so that it has a settled part to be judged."""
_POWER_WANDER_W, _WANDER_PERIODS_S = 6.0, (45.0, 600.0)
_BYTES_PER_S = (38e6, 21e6)
_WRAP = 2**32


@dataclass(frozen=True, slots=True)
class Reading:
    """One card at one time. ``lost`` means that nothing else can be asked. Counters count from the driver's load.

    ``at_s`` is simulated seconds; ``xid`` the numbers seen up to then with their times; ``throttle`` NVML's bit mask.
    """

    at_s: float
    lost: bool
    pid: int | None
    used_bytes: int
    process_bytes: int
    power_w: float
    temperature_c: float
    memory_temperature_c: float
    gpu_percent: int
    memory_percent: int
    clock_sm_mhz: int
    throttle: int
    energy_j: float
    power_cap_s: float
    ecc_corrected: int
    ecc_uncorrected: int
    ecc_corrected_before: int
    pcie_tx_bytes: int
    pcie_rx_bytes: int
    pcie_generation: int
    xids: tuple[tuple[float, int], ...]

    @property
    def free_bytes(self) -> int:
        return CARD_BYTES - RESERVED_BYTES - self.used_bytes


@dataclass(frozen=True, slots=True)
class SimulatedDevice:
    """One card of a rehearsal. ``index`` counts from 0; without an activity it works steadily from second 0 on."""

    scenario: Scenario
    duration_s: float
    index: int = 0
    seed: int = 1
    activity: Activity = field(default_factory=Activity.steady)

    @property
    def uuid(self) -> str:
        return f"GPU-51a01a7e-d000-4000-8000-{self.seed % 16**8:08x}{self.index:04x}"

    @property
    def bdf(self) -> str:
        return f"0000:{0x1A + self.index:02x}:00.0"

    @property
    def serial(self) -> str:
        return f"SIM{self.seed % 10**6:06d}{self.index}"

    def at(self, at_s: float) -> Reading:
        """The card at a simulated second (before 0: what was before the run)."""
        traits = _traits(self.seed, self.index)
        state = self.activity.at(at_s)
        fraction = at_s / self.duration_s
        busy_s = self.activity.busy_s(at_s)
        process_pages = 0 if state.pid is None else self._process_pages(traits, busy_s, fraction)
        used = process_pages * PAGE_BYTES + (_CONTEXT_PAGES * PAGE_BYTES if state.pid else PAGE_BYTES)
        power = _level(state.pid, state.busy) + (traits.ripple.at(at_s) if state.busy else 0.0)
        power = min(power, POWER_LIMIT_W) + 0.6 * (uniform(self.seed, self.index, at_s, "w") - 0.5)
        temperature = self._temperature(traits, at_s, fraction)
        work_s = sum(end - start for start, end, change in self.activity.spans(at_s) if change.busy)
        moved = max(at_s, 0.0) * 2e4 + work_s * _BYTES_PER_S[0], max(at_s, 0.0) * 2e4 + work_s * _BYTES_PER_S[1]
        corrected, uncorrected = self._ecc(fraction)
        busy_percent = 88 + int(11 * uniform(self.seed, self.index, at_s, "u")) if state.busy else 0
        return Reading(
            at_s=at_s,
            lost=self.scenario.lost(self.index, fraction),
            pid=state.pid,
            used_bytes=used,
            process_bytes=process_pages * PAGE_BYTES,
            power_w=power,
            temperature_c=temperature,
            memory_temperature_c=temperature + (_MEMORY_ABOVE_CORE_C if state.busy else 2.0),
            gpu_percent=busy_percent,
            memory_percent=busy_percent * 6 // 10,
            clock_sm_mhz=1530 - 15 * int(3 * uniform(self.seed, self.index, at_s, "c")) if state.busy else 135,
            throttle=0 if state.busy else THROTTLE_IDLE,
            energy_j=traits.energy_before_j + self._energy(at_s),
            power_cap_s=traits.power_cap_s,
            ecc_corrected=corrected,
            ecc_uncorrected=uncorrected,
            ecc_corrected_before=traits.corrected_before,
            pcie_tx_bytes=int(traits.moved_before + moved[0]) % _WRAP,
            pcie_rx_bytes=int(traits.moved_before + moved[1]) % _WRAP,
            pcie_generation=3 if state.pid else 1,
            xids=tuple(x for x in self.scenario.xids(self.index, self.duration_s) if x[0] <= at_s),
        )

    def _process_pages(self, traits: _Traits, busy_s: float, fraction: float) -> int:
        scale = min(1.0, self.duration_s / _POOL_FULL_S)
        pages = traits.base_pages + sum(size for after, size in traits.jumps if busy_s >= after * scale)
        match self.scenario.fault:
            case Leak(card=card) as leak if card == self.index:
                pages += int(leak.bytes_per_hour(self.duration_s) * busy_s / 3600 / PAGE_BYTES)
            case Staircase(card=card) as stairs if card == self.index:
                pages += stairs.bytes_at(fraction) // PAGE_BYTES
            case _:
                pass
        return min(pages, (CARD_BYTES - RESERVED_BYTES) // PAGE_BYTES - _CONTEXT_PAGES)

    def _temperature(self, traits: _Traits, at_s: float, fraction: float) -> float:
        total = _AMBIENT_C + traits.warmer_c + 0.5 * (uniform(self.seed, self.index, at_s, "t") - 0.5)
        for tau, celsius_per_watt in _POLES:
            power = _POWER_OFF_W
            before = _POWER_OFF_W
            for change in self.activity.changes:
                if change.at_s > at_s:
                    break
                level = _level(change.pid, change.busy)
                power += (level - before) * -math.expm1(-(at_s - change.at_s) / tau)
                before = level
            share = (power - _POWER_IDLE_W) / (_POWER_BUSY_W - _POWER_IDLE_W)
            power += traits.ripple.filtered(at_s, tau) * min(max(share, 0.0), 1.0)
            total += celsius_per_watt * power
        if isinstance(self.scenario.fault, ThermalDrift) and self.scenario.fault.card == self.index:
            total += self.scenario.fault.celsius_at(fraction, self.duration_s)
        return total

    def _energy(self, at_s: float) -> float:
        return sum((end - start) * _level(c.pid, c.busy) for start, end, c in self.activity.spans(at_s))

    def _ecc(self, fraction: float) -> tuple[int, int]:
        burst = self.scenario.fault
        if isinstance(burst, EccBurst) and burst.card == self.index:
            return burst.corrected_at(fraction), burst.uncorrected_at(fraction)
        return 0, 0


@dataclass(frozen=True, slots=True)
class _Traits:
    """How one card differs from its siblings."""

    base_pages: int
    jumps: tuple[tuple[float, int], ...]
    warmer_c: float
    ripple: Waves
    energy_before_j: float
    power_cap_s: float
    corrected_before: int
    moved_before: int


@functools.lru_cache(maxsize=64)
def _traits(seed: int, index: int) -> _Traits:
    rng = random.Random(f"{seed}/{index}")
    return _Traits(
        base_pages=_BASE_PAGES + (96 if index == 0 else 0) + rng.randrange(24),
        jumps=tuple((at * rng.uniform(0.9, 1.1), int(size * rng.uniform(0.8, 1.25))) for at, size in _POOL_JUMPS),
        warmer_c=rng.uniform(-1.0, 1.5),
        ripple=Waves.random(f"{seed}/{index}/power", _POWER_WANDER_W, *_WANDER_PERIODS_S),
        energy_before_j=rng.uniform(1e8, 9e8),
        power_cap_s=rng.uniform(2.0, 40.0),
        corrected_before=rng.randrange(2, 30),
        moved_before=rng.randrange(_WRAP),
    )


def _level(pid: int | None, busy: bool) -> float:
    return _POWER_OFF_W if pid is None else _POWER_BUSY_W if busy else _POWER_IDLE_W
