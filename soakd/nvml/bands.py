"""Time in temperature bands, and the swing within a window. Pure: readings and their monotonic times in."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Band:
    """``name`` labels the band; ``low`` and ``high`` (both inside it) are degrees Celsius."""

    name: str
    low: float
    high: float

    @classmethod
    def around(cls, name: str, centre: float, plus_minus: float) -> Band:
        """78 +/- 2 C as the band from 76 to 80."""
        return cls(name, centre - plus_minus, centre + plus_minus)

    def side(self, value: float) -> str:
        """``below``, ``in`` or ``above``."""
        return "below" if value < self.low else "above" if value > self.high else "in"


SIDES = ("below", "in", "above", "unknown")


@dataclass(slots=True)
class BandClock:
    """Adds up the seconds spent on each side of one band.

    The time between two readings belongs to the side of the later one; a longer pause than ``max_gap_s``, or a
    reading that is not known, is time in ``unknown``, so that the sides always add up to the time that passed.
    """

    band: Band
    max_gap_s: float
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SIDES, 0.0))
    last_ns: int | None = None

    def add(self, value: float | None, now_ns: int) -> None:
        """``now_ns`` is monotonic."""
        if self.last_ns is not None:
            passed = (now_ns - self.last_ns) / 1e9
            side = "unknown" if value is None or passed > self.max_gap_s else self.band.side(value)
            self.seconds[side] += passed
        self.last_ns = now_ns


@dataclass(frozen=True, slots=True)
class Swing:
    """Smallest and largest value of a window and how many readings that rests on."""

    low: float
    high: float
    count: int

    @property
    def amplitude(self) -> float:
        return self.high - self.low


class SwingWindow:
    """Minimum and maximum over the last ``window_s`` seconds, in bounded memory: the window is kept as ten blocks.

    The oldest block leaves as a whole, so that the window covers between 90 % and 100 % of ``window_s``.
    """

    __slots__ = ("_block_ns", "_blocks")
    _COUNT = 10

    def __init__(self, window_s: float) -> None:
        self._block_ns = max(1, int(window_s * 1e9 / self._COUNT))
        self._blocks: list[tuple[int, Swing]] = []

    def add(self, value: float, now_ns: int) -> Swing:
        """Take a reading (monotonic time) and return the swing of the window that ends now."""
        number = now_ns // self._block_ns
        if self._blocks and self._blocks[-1][0] == number:
            last = self._blocks[-1][1]
            merged = Swing(min(last.low, value), max(last.high, value), last.count + 1)
            self._blocks[-1] = (number, merged)
        else:
            self._blocks.append((number, Swing(value, value, 1)))
        self._blocks = [block for block in self._blocks if block[0] > number - self._COUNT]
        swings = [swing for _, swing in self._blocks]
        return Swing(min(s.low for s in swings), max(s.high for s in swings), sum(s.count for s in swings))
