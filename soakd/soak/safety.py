"""When a run ends by itself: a card too hot, an XID that asks for a reboot, most requests failing. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from soakd.model import Event, Sample
from soakd.ports import Item

TEMPERATURE = "gpu_temperature_celsius"
_HOT_READINGS = 2


@dataclass(frozen=True, slots=True)
class SafetyLimits:
    """None switches a limit off. ``error_rate`` is over ``window_s`` seconds of clock time."""

    temperature_celsius: float | None
    xid_reboot_class: bool
    error_rate: float | None
    window_s: float


@dataclass(frozen=True, slots=True)
class Stop:
    """Why the run must end now."""

    rule: str
    why: str
    at_ns: int


@dataclass(slots=True)
class SafetyWatch:
    """Steps through what is seen; says once that the run must end. Bounded by the number of cards and the window."""

    limits: SafetyLimits
    _hot: dict[str, int] = field(default_factory=dict)
    _ended: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=4096))

    def step(self, batch: Sequence[Item]) -> Stop | None:
        """One hot reading may be a glitch of the sensor; two in a row of one card end the run."""
        for item in batch:
            stop = self._event(item) if isinstance(item, Event) else self._sample(item)
            if stop:
                return stop
        return None

    def requests(self, now_ns: int, completed: int, failed: int) -> Stop | None:
        """``completed`` and ``failed`` are totals since the start."""
        if self.limits.error_rate is None:
            return None
        self._ended.append((now_ns, completed, failed))
        while len(self._ended) > 1 and self._ended[0][0] < now_ns - self.limits.window_s * 1e9:
            self._ended.popleft()
        first_ns, first_completed, first_failed = self._ended[0]
        failed_now, ended = failed - first_failed, completed - first_completed + failed - first_failed
        if now_ns - first_ns < self.limits.window_s * 0.9e9 or ended < 10:
            return None
        rate = failed_now / ended
        if rate <= self.limits.error_rate:
            return None
        why = f"{rate:.0%} of {ended:,} requests failed within {self.limits.window_s:g} s"
        return Stop("error_rate", f"{why}, the limit is {self.limits.error_rate:.0%}", now_ns)

    def _event(self, event: Event) -> Stop | None:
        if self.limits.xid_reboot_class and event.kind == "xid" and dict(event.attrs).get("class") == "reboot":
            return Stop("xid_reboot_class", event.what, event.at_ns)
        return None

    def _sample(self, sample: Sample) -> Stop | None:
        bound = self.limits.temperature_celsius
        if (
            bound is None
            or sample.metric.name != TEMPERATURE
            or ("sensor", "core") not in sample.labels
            or sample.value is None
        ):
            return None
        card = dict(sample.labels).get("gpu", "")
        self._hot[card] = self._hot.get(card, 0) + 1 if sample.value > bound else 0
        if self._hot[card] < _HOT_READINGS:
            return None
        why = f"{card} at {sample.value:g} C, the limit is {bound:g} C"
        return Stop("gpu_temperature", why, sample.at_ns)
