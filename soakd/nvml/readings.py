"""From NVML answers to samples: the one place that says which return code is which state. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from soakd.model import Labels, Metric, Sample, State
from soakd.nvml.device import LOST, NOT_THERE, RESET_REQUIRED, SUCCESS, TIMEOUT
from soakd.ports import GpuReply, GpuSource, NvmlAnswer

_STATES: Mapping[int, State] = {
    SUCCESS: State.OK,
    2: State.UNSUPPORTED,
    3: State.UNSUPPORTED,
    4: State.NO_PERMISSION,
    TIMEOUT: State.TIMEOUT,
    13: State.UNSUPPORTED,
    RESET_REQUIRED: State.LOST,
    25: State.UNSUPPORTED,
    **dict.fromkeys(LOST, State.LOST),
}
_WORDS: Mapping[int, str] = {
    NOT_THERE: "NVML says success, but nothing is there on this card",
    1: "NVML is not initialised (handles released)",
    2: "not known to this driver",
    3: "not supported by this card",
    4: "no permission: run soakd as root or in the group that may read it",
    6: "not found",
    9: "the NVIDIA driver is not loaded",
    10: "NVML timed out",
    12: "the NVML library is not installed",
    13: "not in this NVML library",
    15: "the GPU is lost",
    16: "the GPU needs a reset",
    18: "driver and library versions differ: restart after the driver update",
    21: "no data yet",
    25: "field number of the library does not fit the driver",
    28: "the GPU is not there",
    999: "unknown NVML error",
}


def state_of(code: int) -> State:
    """State of a return code. A code that says neither of the known states is ABSENT: there is no reading."""
    return _STATES.get(code, State.ABSENT)


def why_of(code: int) -> str:
    """What a return code means to a person; empty for success."""
    return "" if code == SUCCESS else _WORDS.get(code, f"NVML error {code}")


class CardReading:
    """The answers of one card to one tier, as samples. A card that is lost or hangs gives its state for all of them."""

    __slots__ = ("_labels", "reply")

    def __init__(self, reply: GpuReply) -> None:
        self.reply = reply
        self._labels = reply.gpu.labels

    @property
    def mig(self) -> bool:
        return bool(self.reply.gpu.mig)

    @property
    def known(self) -> bool:
        """Whether the card answered at all."""
        return self.reply.state is State.OK

    def answer(self, key: str) -> NvmlAnswer | None:
        return self.reply.answers.get(key)

    def state(self, key: str) -> State:
        if not self.known:
            return self.reply.state
        answer = self.reply.answers.get(key)
        return State.ABSENT if answer is None else state_of(answer.code)

    def number(self, key: str, part: str = "") -> float | None:
        """The value (or its named part), None unless it was read."""
        answer = self.reply.answers.get(key)
        if not self.known or answer is None or answer.code != SUCCESS:
            return None
        value = answer.value
        if part:
            value = value.get(part) if isinstance(value, Mapping) else None
        return float(value) if isinstance(value, int | float) else None

    def sample(
        self, metric: Metric, key: str, part: str = "", scale: float = 1.0, extra: tuple[tuple[str, str], ...] = ()
    ) -> Sample:
        """``value * scale`` of an answer, or its state."""
        tags = tuple(sorted((*self._labels, *extra))) if extra else self._labels
        value = self.number(key, part)
        if value is not None:
            # dividing by 1000 is exact where multiplying by 0.001 is not
            scaled = value * scale if scale >= 1 else value / round(1 / scale)
            return Sample(metric, scaled, State.OK, self.reply.at_ns, tags)
        state, why = self._unknown(key)
        return Sample(metric, None, state, self.reply.at_ns, tags, why)

    def value(self, metric: Metric, value: float, extra: tuple[tuple[str, str], ...] = ()) -> Sample:
        """A number that was derived from the answers."""
        tags = tuple(sorted((*self._labels, *extra))) if extra else self._labels
        return Sample(metric, float(value), State.OK, self.reply.at_ns, tags)

    def unknown(self, metric: Metric, state: State, why: str = "", extra: tuple[tuple[str, str], ...] = ()) -> Sample:
        tags = tuple(sorted((*self._labels, *extra))) if extra else self._labels
        return Sample(metric, None, state, self.reply.at_ns, tags, why)

    def _unknown(self, key: str) -> tuple[State, str]:
        if not self.known:
            return self.reply.state, self.reply.why
        answer = self.reply.answers.get(key)
        if answer is None:
            return State.ABSENT, "not asked of this card"
        state = state_of(answer.code)
        if state is State.OK:
            return State.ABSENT, "NVML gives no such part"
        return state, why_of(answer.code)


class Fresh:
    """Tells a new reply from one that was handed out before, so that a shared slow reading is not stored twice."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[Labels, int] = {}

    def __call__(self, reply: GpuReply) -> bool:
        key = reply.gpu.labels
        if self._seen.get(key) == reply.at_ns:
            return False
        self._seen[key] = reply.at_ns
        return True


async def readings(source: GpuSource | None, tier: str) -> tuple[CardReading, ...]:
    """Every card and MIG instance, one tier; empty where there is no GPU."""
    return () if source is None else tuple(CardReading(reply) for reply in await source.ask(tier))


def no_gpu(metric: Metric, at_ns: int, source: GpuSource | None) -> tuple[Sample]:
    """The one sample of a machine without a GPU."""
    why = source.why_none if source is not None and source.why_none else "no GPU found"
    return (Sample.unknown(metric, State.ABSENT, at_ns, (), why),)
