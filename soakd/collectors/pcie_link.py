"""PCIe link speed and width, replays and every PCIe error field of NVML, and bytes over the link.

The link of an idle card runs slow on purpose: it is judged only under load, held for a while, against the most that
the card and the port above it can both do. A machine without NVML gets what sysfs tells.

The byte counters are 32 bits wide and wrap every 4 GiB: traffic faster than ``pcie_bytes_ceiling_bytes_per_second``
(4 GiB for each interval between two readings) is counted too low, and can't be told from slower traffic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from soakd.blocking import BlockingReader
from soakd.fields import ConfigModel, Ratio, Seconds
from soakd.model import Event, Kind, Labels, Metric, Sample, Severity, State, labels
from soakd.nvml.link import (
    Link,
    LinkState,
    LinkWatch,
    expected_link,
    judge_link,
    parse_link_speed,
    replay_limit_per_minute,
    speed_of,
)  # fmt: skip
from soakd.nvml.pci import PciDevice, PciTree, awake, read_attribute
from soakd.nvml.readings import CardReading, Fresh, no_gpu, readings
from soakd.ports import Collector, CollectorContext, Item

KIND = "pcie_link"
INTERVAL_S = 1.0
DEADLINE_S = 8.0
WRAPS_AT = 2**32

_GPU = ("bdf", "gpu")
_DEVICE = ("bdf", "device", "gpu", "role")
SPEED = Metric(
    "pcie_link_speed_transfers_per_second", "transfers/s", Kind.GAUGE,
    "Link speed per lane, now and the most the device can do (8e9 is gen3).",
    "sysfs current_link_speed, max_link_speed", (*_DEVICE, "which"),
)  # fmt: skip
WIDTH = Metric(
    "pcie_link_width_lanes", "lanes", Kind.GAUGE, "Lanes in use, and the most the device can do.",
    "sysfs current_link_width, max_link_width", (*_DEVICE, "which"),
)  # fmt: skip
GENERATION = Metric(
    "gpu_pcie_generation", "", Kind.GAUGE,
    "PCIe generation: current, the most of card and path together, and of the card alone.",
    "nvmlDeviceGet{Curr,Max,GpuMax}PcieLinkGeneration", (*_GPU, "which"),
)  # fmt: skip
GPU_WIDTH = Metric(
    "gpu_pcie_width_lanes", "lanes", Kind.GAUGE, "Lanes: current, and the most of card and path together.",
    "nvmlDeviceGet{Curr,Max}PcieLinkWidth", (*_GPU, "which"),
)  # fmt: skip
LINK = Metric(
    "pcie_link_state", "", Kind.STATE,
    "Whether the link is what it can be under load. Idle: not judged; settling: below, but not yet held; absent where "
    "load, speed or width is not known.",
    "judged by soakd from speed, width and load", _GPU,
    (("full", 0), ("degraded", 1), ("settling", 2), ("idle", 3)),
)  # fmt: skip
REPLAYS = Metric(
    "pcie_replays_total", "replays", Kind.COUNTER, "Packets that the card had to send again.",
    "field NVML_FI_DEV_PCIE_REPLAY_COUNTER", _GPU,
)  # fmt: skip
ROLLOVERS = Metric(
    "pcie_replay_rollovers_total", "rollovers", Kind.COUNTER, "Four replays of one packet in a row: the link retrains.",
    "field NVML_FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER", _GPU,
)  # fmt: skip
REPLAY_LIMIT = Metric(
    "pcie_replay_limit_per_minute", "replays", Kind.GAUGE,
    "Replays a minute above which the link is bad: ceil(GT/s x 0.06 x lanes) of the most that card and path can do.",
    "soakd", _GPU,
)  # fmt: skip
RECOVERIES = Metric(
    "pcie_l0_recoveries_total", "recoveries", Kind.COUNTER, "Times the link left L0 for recovery.",
    "field NVML_FI_DEV_PCIE_L0_TO_RECOVERY_COUNTER", _GPU,
)  # fmt: skip
ERRORS = Metric(
    "pcie_nvml_errors_total", "errors", Kind.COUNTER,
    "PCIe errors as the card counts them; starts above zero, so that only the change tells.",
    "fields NVML_FI_DEV_PCIE_COUNT_*", (*_GPU, "error"),
)  # fmt: skip
BYTES = Metric(
    "pcie_bytes_total", "bytes", Kind.COUNTER, "Bytes sent (tx) and received (rx) by the card; wraps every 4 GiB.",
    "fields NVML_FI_DEV_PCIE_COUNT_TX_BYTES, NVML_FI_DEV_PCIE_COUNT_RX_BYTES", (*_GPU, "direction"),
    wraps_at=WRAPS_AT,
)  # fmt: skip
CEILING = Metric(
    "pcie_bytes_ceiling_bytes_per_second", "bytes/s", Kind.GAUGE,
    "Fastest traffic that the byte counters can tell at the interval they are read at: 4 GiB for each reading.",
    "soakd", _GPU,
)  # fmt: skip
METRICS = (
    SPEED, WIDTH, GENERATION, GPU_WIDTH, LINK, REPLAYS, ROLLOVERS, REPLAY_LIMIT, RECOVERIES, ERRORS, BYTES, CEILING,
)  # fmt: skip

_ERRORS = (
    "correctable_errors", "naks_received", "receiver_error", "bad_tlp", "naks_sent", "bad_dllp", "non_fatal_error",
    "fatal_error", "unsupported_req", "lcrc_error", "lane_error",
)  # fmt: skip
_LINK_CODES = dict(LINK.codes)


class Config(ConfigModel):
    """The link is judged while the card is busier than ``busy`` and after ``hold`` below what it can do."""

    busy: Ratio = 0.2
    hold: Seconds = 10.0


@dataclass(frozen=True, slots=True)
class PortReading:
    """The link attributes of one device, each in its state."""

    device: PciDevice
    samples: tuple[tuple[Metric, str, float | None, State, str], ...]

    def link(self, which: str) -> Link:
        values = {metric.name: value for metric, w, value, _, _ in self.samples if w == which}
        speed, lanes = values.get(SPEED.name), values.get(WIDTH.name)
        return Link(speed / 1e9 if speed else None, int(lanes) if lanes else None)


class PcieLink:
    """Reads sysfs off the loop; keeps, per GPU, since when its link is below what it can do."""

    def __init__(self, config: Config, context: CollectorContext) -> None:
        self._config = config
        self._context = context
        self._tree = PciTree(context.roots.sys)
        self._reader = BlockingReader("pcie_link")
        self._fresh = Fresh()
        self._watches: dict[str, LinkWatch] = {}
        self._states: dict[str, LinkState] = {}
        self._read_at_ns: int | None = None

    async def collect(self) -> Sequence[Item]:
        fast = {c.reply.gpu.bdf: c for c in await readings(self._context.gpus, "fast") if not c.mig}
        slow = {c.reply.gpu.bdf: c for c in await readings(self._context.gpus, "slow") if not c.mig}
        ports = await self._reader.call(self._read_ports)
        now_ns = self._context.clock.monotonic_ns()
        interval_s = (now_ns - self._read_at_ns) / 1e9 if self._read_at_ns is not None else None
        self._read_at_ns = now_ns
        at_ns = self._context.clock.wall_ns()
        items: list[Item] = []
        for bdf in sorted({*fast, *ports}):
            card, path = fast.get(bdf), ports.get(bdf, ())
            tags = labels(bdf=bdf, gpu=card.reply.gpu.uuid if card else None)
            for port in path:
                items += _port_samples(port, tags, at_ns)
            if card is not None:
                items += fast_samples(card, interval_s)
                if bdf in slow and self._fresh(slow[bdf].reply):
                    items += slow_samples(slow[bdf], _most(slow[bdf], path))
            items += self._judge(bdf, card, slow.get(bdf), path, tags, now_ns, at_ns)
        return items or no_gpu(LINK, at_ns, self._context.gpus)

    async def close(self) -> None:
        self._reader.close()

    def _read_ports(self) -> Mapping[str, tuple[PortReading, ...]]:
        self._tree.scan()
        # the link of the card itself and the port right above it; bridges further up have links of their own
        return {bdf: tuple(read_port(d, self._tree) for d in self._tree.path(bdf)[:2]) for bdf in self._tree.gpus}

    def _judge(
        self, bdf: str, card: CardReading | None, slow: CardReading | None, path: Sequence[PortReading],
        tags: Labels, now_ns: int, at_ns: int,
    ) -> list[Item]:  # fmt: skip
        if card is not None and not card.known:
            return [Sample.unknown(LINK, card.reply.state, at_ns, tags, card.reply.why)]
        busy = card.number("utilization", "gpu") if card is not None else None
        if busy is None:
            return [Sample.unknown(LINK, State.ABSENT, at_ns, tags, "the load of the card is not known")]
        current = _current(card, path)
        expected = _most(slow, path)
        watch, state = judge_link(
            self._watches.get(bdf, LinkWatch()), current, expected, busy / 100 >= self._config.busy, now_ns,
            self._config.hold,
        )  # fmt: skip
        self._watches[bdf] = watch
        before = self._states.get(bdf)
        if state is LinkState.UNKNOWN:
            return [Sample.unknown(LINK, State.ABSENT, at_ns, tags, "speed or width, now or at most, is not known")]
        items: list[Item] = [Sample.ok(LINK, _LINK_CODES[state.value], at_ns, tags)]
        if state is LinkState.DEGRADED and before is not LinkState.DEGRADED:
            what = f"PCIe link of {bdf} runs at {_text(current)} under load, {_text(expected)} is possible"
            items.append(Event("pcie.link_degraded", at_ns, what, Severity.WARNING, tags))
        elif state is LinkState.FULL and before is LinkState.DEGRADED:
            items.append(Event("pcie.link_restored", at_ns, f"PCIe link of {bdf} is back at {_text(current)}",
                               Severity.INFO, tags))  # fmt: skip
        if state in (LinkState.FULL, LinkState.DEGRADED):
            self._states[bdf] = state
        return items


def read_port(device: PciDevice, tree: PciTree) -> PortReading:
    """Link attributes of a device, unless reading them would wake it."""
    ready, why = awake(device.path)
    gone = device.role == "gpu" and tree.lost(device.bdf)
    found: list[tuple[Metric, str, float | None, State, str]] = []
    for which, prefix in (("current", "current_link"), ("max", "max_link")):
        for metric, name in ((SPEED, f"{prefix}_speed"), (WIDTH, f"{prefix}_width")):
            if gone:
                found.append((metric, which, None, State.LOST, "the device has left the bus"))
            elif not ready:
                found.append((metric, which, None, State.ABSENT, why))
            else:
                found.append((metric, which, *_link_number(device, name)))
    return PortReading(device, tuple(found))


def _link_number(device: PciDevice, name: str) -> tuple[float | None, State, str]:
    attribute = read_attribute(device.path / name)
    if attribute.text is None:
        return None, attribute.state, attribute.why
    if name.endswith("speed"):
        speed = parse_link_speed(attribute.text)
        return (speed * 1e9, State.OK, "") if speed else (None, State.ABSENT, f"{name} is {attribute.text[:40]!r}")
    # a port without a link shows width 0, and a device that fell off the bus 63 or 255
    lanes = int(attribute.text) if attribute.text.isascii() and attribute.text.isdigit() else 0
    return (float(lanes), State.OK, "") if 1 <= lanes <= 32 else (None, State.ABSENT, f"{name} is {attribute.text!r}")


def _port_samples(port: PortReading, tags: Labels, at_ns: int) -> list[Item]:
    base = {**dict(tags), "device": port.device.bdf, "role": port.device.role}
    return [
        Sample.ok(metric, value, at_ns, labels(**base, which=which))
        if value is not None
        else Sample.unknown(metric, state, at_ns, labels(**base, which=which), why)
        for metric, which, value, state, why in port.samples
    ]


def fast_samples(card: CardReading, interval_s: float | None) -> list[Sample]:
    """Generation, width, replays and bytes. ``interval_s`` is the time since the reading before."""
    samples = [
        card.sample(GENERATION, "pcie_generation", extra=(("which", "current"),)),
        card.sample(GPU_WIDTH, "pcie_width", extra=(("which", "current"),)),
        card.sample(REPLAYS, "DEV_PCIE_REPLAY_COUNTER"),
        card.sample(BYTES, "DEV_PCIE_COUNT_TX_BYTES", extra=(("direction", "tx"),)),
        card.sample(BYTES, "DEV_PCIE_COUNT_RX_BYTES", extra=(("direction", "rx"),)),
    ]
    if not interval_s:
        return [*samples, card.unknown(CEILING, State.ABSENT, "known from the second reading on")]
    return [*samples, card.value(CEILING, WRAPS_AT / interval_s)]


def slow_samples(card: CardReading, most: Link) -> list[Sample]:
    """Maxima, rollovers, recoveries, every error field, and the replay limit of the link at its best."""
    samples = [
        card.sample(GENERATION, "pcie_generation_max", extra=(("which", "max"),)),
        card.sample(GENERATION, "pcie_generation_max_card", extra=(("which", "max_card"),)),
        card.sample(GPU_WIDTH, "pcie_width_max", extra=(("which", "max"),)),
        card.sample(ROLLOVERS, "DEV_PCIE_REPLAY_ROLLOVER_COUNTER"),
        card.sample(RECOVERIES, "DEV_PCIE_L0_TO_RECOVERY_COUNTER"),
    ]
    samples += [card.sample(ERRORS, f"DEV_PCIE_COUNT_{name.upper()}", extra=(("error", name),)) for name in _ERRORS]
    if most.speed_gts is None or most.lanes is None:
        state = State.ABSENT if card.known else card.reply.state
        return [*samples, card.unknown(REPLAY_LIMIT, state, "the most that card and path can do is not known")]
    return [*samples, card.value(REPLAY_LIMIT, replay_limit_per_minute(most.speed_gts, most.lanes))]


def _current(card: CardReading | None, path: Sequence[PortReading]) -> Link:
    """NVML's own reading of the link first, then sysfs."""
    generation = card.number("pcie_generation") if card is not None else None
    lanes = card.number("pcie_width") if card is not None else None
    own = path[0].link("current") if path else Link(None, None)
    speed = speed_of(int(generation)) if generation else None
    return Link(speed or own.speed_gts, int(lanes) if lanes else own.lanes)


def _most(slow: CardReading | None, path: Sequence[PortReading]) -> Link:
    """min(card, port above): NVML's maximum covers both, and sysfs tells each."""
    generation = slow.number("pcie_generation_max") if slow is not None else None
    lanes = slow.number("pcie_width_max") if slow is not None else None
    from_nvml = Link(speed_of(int(generation)) if generation else None, int(lanes) if lanes else None)
    for port in path:
        from_nvml = expected_link(from_nvml, port.link("max"))
    return from_nvml


def _text(link: Link) -> str:
    speed = f"{link.speed_gts:g} GT/s" if link.speed_gts else "unknown speed"
    return f"{speed} x{link.lanes}" if link.lanes else speed


def build(config: Config, context: CollectorContext) -> Collector:
    return PcieLink(config, context)
