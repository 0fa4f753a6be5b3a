"""The latest readings in Prometheus' text format, from the same catalogue as everything else.

A reading that is not known has no line of its own (a scrape can't carry *unknown*); ``soakd_reading_state`` says why.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from soakd.model import Kind, Labels, Metric, Sample, State

_FRESH_S = 1.0
_STATE_NAME = "soakd_reading_state"
_STATE_HELP = "State of each reading: 0 ok, 1 unsupported, 2 absent, 3 no_permission, 4 timeout, 5 lost."


class _Families(Collector):
    def __init__(self, samples: Iterable[Sample], constant: Labels) -> None:
        self._samples = tuple(samples)
        self._constant = dict(constant)

    def collect(self) -> Iterator[Family]:
        groups: dict[Metric, list[Sample]] = defaultdict(list)
        for sample in self._samples:
            groups[sample.metric].append(sample)
        for metric, found in sorted(groups.items(), key=lambda g: g[0].name):
            yield self._family(metric, found)
        yield self._states()

    def _family(self, metric: Metric, samples: Sequence[Sample]) -> Family:
        names = (*self._constant, *metric.label_names)
        family: CounterMetricFamily | GaugeMetricFamily
        if metric.kind is Kind.COUNTER:
            family = CounterMetricFamily(metric.name.removesuffix("_total"), metric.help, labels=names)
        else:
            family = GaugeMetricFamily(metric.name, metric.help, labels=names)
        for sample in samples:
            if sample.value is not None:
                family.add_metric(self._values(names, sample.labels), sample.value)
        return family

    def _states(self) -> Family:
        names = (*self._constant, "metric", "gpu", "bdf", "state")
        family = GaugeMetricFamily(_STATE_NAME, _STATE_HELP, labels=names)
        unknown = {
            (s.metric.name, dict(s.labels).get("gpu", ""), dict(s.labels).get("bdf", "")): s.state
            for s in self._samples
            if s.state is not State.OK
        }
        for (name, gpu, bdf), state in sorted(unknown.items(), key=lambda u: u[0]):
            family.add_metric([*self._constant.values(), name, gpu, bdf, state.value], state.code)
        return family

    def _values(self, names: Sequence[str], labels: Labels) -> list[str]:
        found = {**dict(labels), **self._constant}
        return [found.get(name, "") for name in names]


def expose(samples: Iterable[Sample], constant: Labels) -> bytes:
    """``constant`` labels (host) stand on every line."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(samples, constant))
    text: bytes = generate_latest(registry)
    return text


class Scrape:
    """Makes the text in a thread, once for all who ask within a second: a full house of series takes a while."""

    def __init__(self, read: Callable[[], Sequence[Sample]], make: Callable[[Sequence[Sample]], bytes]) -> None:
        self._read = read
        self._make = make
        self._making: asyncio.Future[bytes] | None = None
        self._made_s = 0.0

    async def body(self) -> bytes:
        now = time.monotonic()
        if self._making is None or (self._making.done() and now - self._made_s > _FRESH_S):
            self._made_s = now
            self._making = asyncio.ensure_future(asyncio.to_thread(self._make, self._read()))
        return await asyncio.shield(self._making)
