"""When a rule judges at all: only under load, only while a soak runs, only outside its warm-up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from soakd.model import Event, Labels, Sample
from soakd.ports import Item
from soakd.rules.condition import NS, RUN_ENDED, RUN_STARTED, Interest

Gate = Literal["under_load", "during_soak", "outside_warmup"]
UTILISATION, IN_FLIGHT = "gpu_utilization_ratio", "load_concurrency"
BUSY_RATIO = 0.1
_FRESH_NS = 60 * NS
_MOST_CARDS = 256


@dataclass(slots=True)
class Gates:
    """What opens and closes them: which soak runs, until when it warms up, which cards were busy when."""

    run: str = ""
    warm_until_ns: int = 0
    busy_ns: dict[str, int] = field(default_factory=dict)
    any_busy_ns: int = 0

    def step(self, batch: Sequence[Item], now_ns: int) -> None:
        for item in batch:
            if isinstance(item, Event):
                self._event(item, now_ns)
            elif item.value is not None:
                self._sample(item, item.value, now_ns)

    def why_closed(self, gates: Sequence[Gate], labels: Labels, now_ns: int) -> str:
        """Empty where all of them are open for what the labels name."""
        if "during_soak" in gates and not self.run:
            return "no soak runs"
        if "outside_warmup" in gates and now_ns < self.warm_until_ns:
            return "the soak warms up"
        if "under_load" in gates:
            gpu = dict(labels).get("gpu")
            last = self.any_busy_ns if gpu is None else self.busy_ns.get(gpu, 0)
            if now_ns - last > _FRESH_NS:
                return "it is not under load"
        return ""

    def _event(self, event: Event, now_ns: int) -> None:
        if event.kind == RUN_STARTED:
            self.run = dict(event.labels).get("run", "")
            self.warm_until_ns = now_ns + int(float(dict(event.attrs).get("warmup_seconds", "0")) * NS)
        elif event.kind == RUN_ENDED:
            self.run, self.warm_until_ns = "", 0

    def _sample(self, sample: Sample, value: float, now_ns: int) -> None:
        tags = dict(sample.labels)
        if sample.metric.name == UTILISATION and tags.get("engine") == "gpu" and value >= BUSY_RATIO:
            gpu = tags.get("gpu", "")
            if gpu in self.busy_ns or len(self.busy_ns) < _MOST_CARDS:
                self.busy_ns[gpu] = now_ns
            self.any_busy_ns = now_ns
        elif sample.metric.name == IN_FLIGHT and value > 0:
            self.any_busy_ns = now_ns


def interest(gates: Sequence[Gate]) -> Interest:
    """What gates have to see. Every rule sees the soaks, whose id its alerts carry."""
    metrics = frozenset((UTILISATION, IN_FLIGHT)) if "under_load" in gates else frozenset[str]()
    return Interest(metrics, (RUN_STARTED, RUN_ENDED))
