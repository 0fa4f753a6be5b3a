"""XIDs from NVML events and from the kernel log, each counted once, with class and advice; and what befalls the cards.

Some XIDs (79, 119, 120) reach the kernel log only. Each XID is an event and a step of a counter, never a gauge that
stays: the last XID of yesterday says nothing about today, and a second one of the same number must be seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from soakd.fields import ConfigModel, Seconds
from soakd.model import Event, Kind, Labels, Metric, Sample, Severity, State, labels
from soakd.nvml.kmsg import KernelXid, KmsgBatch, KmsgReader, parse_xid
from soakd.nvml.readings import CardReading, no_gpu, readings, why_of
from soakd.nvml.xid_events import Sighting, XidPairs
from soakd.nvml.xid_table import XidClass, describe
from soakd.ports import Collector, CollectorContext, Item

KIND = "xid"
INTERVAL_S = 1.0
DEADLINE_S = 8.0

_GPU = ("bdf", "gpu")
CLASSES = Metric(
    "gpu_xid_errors_total", "errors", Kind.COUNTER, "XIDs since soakd started, by what they ask for.",
    "NVML events and /dev/kmsg, each XID once", (*_GPU, "class"),
)  # fmt: skip
CODES = Metric(
    "gpu_xid_code_errors_total", "errors", Kind.COUNTER, "XIDs since soakd started, by number; from the first one on.",
    "NVML events and /dev/kmsg, each XID once", (*_GPU, "class", "xid"),
)  # fmt: skip
SOURCE = Metric(
    "gpu_xid_source", "", Kind.STATE, "Whether this source of XIDs can be read; without both, XIDs may be missed.",
    "soakd", (*_GPU, "source"), (("readable", 1),),
)  # fmt: skip
MISSED = Metric(
    "gpu_xid_kmsg_missed_total", "messages", Kind.COUNTER,
    "Kernel messages that were overwritten before soakd read them; an XID may have been among them.", "/dev/kmsg",
)  # fmt: skip
METRICS = (CLASSES, CODES, SOURCE, MISSED)

GRANT_KMSG = (
    "grant just this with AmbientCapabilities=CAP_SYSLOG in soakd's unit (or `setcap cap_syslog+ep` on its "
    "interpreter); `sysctl kernel.dmesg_restrict=0` grants it to everybody"
)
_MAX_SERIES = 256


class Config(ConfigModel):
    """``pair_window``: tellings of one XID by both sources within this time are one XID. ``kmsg`` off for a host whose
    kernel log is read elsewhere."""

    kmsg: bool = True
    pair_window: Seconds = Field(default=10.0)


class XidCollector:
    """Takes the pool's events (losses and returns of cards pass through) and reads the kernel log without blocking."""

    def __init__(self, config: Config, context: CollectorContext, kmsg: KmsgReader) -> None:
        self._context = context
        self._pairs = XidPairs(config.pair_window)
        self._counts: dict[tuple[Labels, int], int] = {}
        self._missed = 0
        self._kmsg: KmsgReader | None = None
        self._kmsg_state, self._kmsg_why = State.ABSENT, "not read, as configured"
        if config.kmsg:
            self._open(kmsg)

    async def collect(self) -> Sequence[Item]:
        cards = [c for c in await readings(self._context.gpus, "fast") if not c.mig]
        by_bdf = {c.reply.gpu.bdf: c.reply.gpu.labels for c in cards}
        at_ns = self._context.clock.wall_ns()
        items: list[Item] = []
        if self._context.gpus is not None:
            for event in await self._context.gpus.take_events():
                items += self._from_nvml(event)
        for xid in self._from_kmsg():
            tags = by_bdf.get(xid.bdf, labels(bdf=xid.bdf))
            if self._pairs.is_new(Sighting(xid.bdf, xid.code, "kmsg", at_ns)):
                self._count(tags, xid.code)
                items.append(kernel_event(xid, tags, at_ns))
        if not cards:
            items += no_gpu(CLASSES, at_ns, self._context.gpus)
        items += self._samples(cards, at_ns)
        return items

    async def close(self) -> None:
        if self._kmsg is not None:
            self._kmsg.close()

    def _open(self, reader: KmsgReader) -> None:
        try:
            reader.open()
        except PermissionError:
            self._kmsg_state, self._kmsg_why = State.NO_PERMISSION, f"/dev/kmsg may not be read: {GRANT_KMSG}"
        except OSError as error:
            self._kmsg_state, self._kmsg_why = State.ABSENT, f"/dev/kmsg: {error.strerror}"
        else:
            self._kmsg, self._kmsg_state, self._kmsg_why = reader, State.OK, ""

    def _from_nvml(self, event: Event) -> list[Item]:
        attrs = dict(event.attrs)
        if event.kind != "xid":
            return [event]
        tags = dict(event.labels)
        code = int(attrs["xid"])
        if not self._pairs.is_new(Sighting(tags.get("bdf", ""), code, "nvml", event.at_ns)):
            return []
        self._count(event.labels, code)
        return [event]

    def _from_kmsg(self) -> list[KernelXid]:
        if self._kmsg is None:
            return []
        try:
            batch = self._kmsg.read()
        except OSError as error:
            self._kmsg.close()
            denied = isinstance(error, PermissionError)
            self._kmsg_state = State.NO_PERMISSION if denied else State.ABSENT
            self._kmsg_why = f"/dev/kmsg: {error.strerror}" + (f": {GRANT_KMSG}" if denied else "")
            self._kmsg, batch = None, KmsgBatch((), 0)
        self._missed += batch.missed
        return [xid for record in batch.records if (xid := parse_xid(record)) is not None]

    def _count(self, tags: Labels, code: int) -> None:
        key = (tags, code)
        if key in self._counts or len(self._counts) < _MAX_SERIES:
            self._counts[key] = self._counts.get(key, 0) + 1

    def _samples(self, cards: Sequence[CardReading], at_ns: int) -> list[Sample]:
        samples: list[Sample] = []
        nvml_ok = {c.reply.gpu.labels: c.known and (a := c.answer("events")) is not None and a.code == 0 for c in cards}
        known = {*nvml_ok, *(tags for tags, _ in self._counts)}
        for tags in sorted(known):
            heard = nvml_ok.get(tags, False) or self._kmsg_state is State.OK
            for kind in XidClass:
                own = tuple(sorted((*tags, ("class", kind.value))))
                count = sum(n for (t, code), n in self._counts.items() if t == tags and describe(code).kind is kind)
                if heard or count:
                    samples.append(Sample.ok(CLASSES, count, at_ns, own))
                else:
                    why = "neither NVML events nor the kernel log can be read"
                    samples.append(Sample.unknown(CLASSES, State.ABSENT, at_ns, own, why))
        for (tags, code), count in self._counts.items():
            own = tuple(sorted((*tags, ("class", describe(code).kind.value), ("xid", str(code)))))
            samples.append(Sample.ok(CODES, count, at_ns, own))
        return samples + self._sources(cards, at_ns)

    def _sources(self, cards: Sequence[CardReading], at_ns: int) -> list[Sample]:
        samples = [_source_sample(card) for card in cards]
        kmsg = labels(source="kmsg")
        if self._kmsg_state is State.OK:
            samples.append(Sample.ok(SOURCE, 1, at_ns, kmsg))
            samples.append(Sample.ok(MISSED, self._missed, at_ns))
        else:
            samples.append(Sample.unknown(SOURCE, self._kmsg_state, at_ns, kmsg, self._kmsg_why))
            samples.append(Sample.unknown(MISSED, self._kmsg_state, at_ns, (), self._kmsg_why))
        return samples


def _source_sample(card: CardReading) -> Sample:
    tags = (("source", "nvml"),)
    answer = card.answer("events")
    if card.known and answer is not None and answer.code == 0:
        return card.value(SOURCE, 1, tags)
    why = why_of(answer.code) if answer is not None else card.reply.why
    return card.unknown(SOURCE, card.state("events"), why, tags)


def kernel_event(found: KernelXid, tags: Labels, at_ns: int) -> Event:
    """An XID of the kernel log as an event, in the form of the pool's own."""
    xid = describe(found.code)
    what = f"XID {xid.code} ({xid.name}) at {found.bdf}: {xid.advice}"
    severity: Severity = xid.severity
    return Event(
        "xid", at_ns, what, severity, tags,
        labels(xid=xid.code, name=xid.name, advice=xid.advice, source="kmsg", detail=found.detail,
               **{"class": xid.kind.value}),
    )  # fmt: skip


def build(config: Config, context: CollectorContext) -> Collector:
    return XidCollector(config, context, KmsgReader(context.roots.dev / "kmsg"))
