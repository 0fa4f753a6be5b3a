"""Noise as a pure function of time: many sine waves of random phase, whose low-pass filtering is exact.

A sum of waves with log-spaced periods has the look of the load of a server (fast ripple on slow swell), needs no
history, and a thermal pole acts on each wave by a factor and a delay that are known in closed form.
"""

from __future__ import annotations

import hashlib
import math
import random
import struct
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Waves:
    """``parts`` are (amplitude, radians per second, phase)."""

    parts: tuple[tuple[float, float, float], ...]

    @classmethod
    def random(cls, seed: str, deviation: float, shortest_s: float, longest_s: float, count: int = 16) -> Waves:
        """Waves of the standard deviation given, equal power per octave of period."""
        rng = random.Random(seed)
        amplitude = deviation * math.sqrt(2 / count)
        ratio = (longest_s / shortest_s) ** (1 / count)
        periods = (shortest_s * ratio ** (i + rng.random()) for i in range(count))
        return cls(tuple((amplitude, math.tau / p, rng.random() * math.tau) for p in periods))

    def at(self, at_s: float) -> float:
        return sum(a * math.sin(w * at_s + phase) for a, w, phase in self.parts)

    def filtered(self, at_s: float, tau_s: float) -> float:
        """The waves behind a first-order low pass of time constant ``tau_s``."""
        total = 0.0
        for amplitude, w, phase in self.parts:
            lag = w * tau_s
            total += amplitude / math.sqrt(1 + lag * lag) * math.sin(w * at_s + phase - math.atan(lag))
        return total


def uniform(*key: int | float | str) -> float:
    """A number in [0, 1) that belongs to the key: noise without memory."""
    digest = hashlib.blake2b("|".join(map(repr, key)).encode(), digest_size=8).digest()
    return float(struct.unpack("<Q", digest)[0] / 2**64)
