"""The geometry of a report's charts: series in, SVG coordinates out. Pure; text is left to the template to escape."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from soakd.model import Severity
from soakd.quantities import format_duration
from soakd.report.charts import PANELS, Charts, ChartSeries
from soakd.report.model import Report
from soakd.report.wording import clean, say, say_labels, say_offset, unit_word

WIDTH = 1000
LEFT = 92
RIGHT = 12
TOP = 8
PLOT_HEIGHT = 130
MAX_LINES = 8
MAX_MARKS = 120
TITLES = {
    "latency": "Latency", "rate": "Rate", "memory": "Memory", "temperature": "Temperature", "power": "Power",
    "errors": "Errors", "other": "Other",
}  # fmt: skip
_LEAST_BYTES = 16 * 2.0**20
"""Eight NVML pages: a narrower memory axis would make one page look like a cliff."""
_FROM_ZERO = frozenset({"latency", "rate", "power", "errors"})
_TIME_STEPS = (
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    14400,
    21600,
    43200,
    86400,
    172800,
    604800,
)


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart: SVG path data, and the readings for the crosshair."""

    label: str
    colour: int
    path: str
    band: str
    summary: str
    t_s: tuple[float, ...]
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class LimitMark:
    """``y`` is None when the limit lies far outside the readings and would flatten them; it is then only named."""

    label: str
    y: float | None


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    unit: str
    lines: tuple[Line, ...]
    ticks: tuple[Tick, ...]
    limits: tuple[LimitMark, ...]
    left_out: int
    from_zero: bool


@dataclass(frozen=True, slots=True)
class Band:
    """A stretch of the axis: a stage or an outage."""

    x: float
    width: float
    label: str


@dataclass(frozen=True, slots=True)
class Mark:
    """One or more events too near to tell apart."""

    x: float
    label: str
    severity: str
    count: int


@dataclass(frozen=True, slots=True)
class Page:
    """All charts on one axis of ``duration_s``. ``quiet`` names the counts of errors that stayed at zero."""

    duration_s: float
    ticks: tuple[Tick, ...]
    charts: tuple[Chart, ...]
    stages: tuple[Band, ...]
    outages: tuple[Band, ...]
    marks: tuple[Mark, ...]
    quiet: tuple[str, ...]


def lay_out(report: Report, charts: Charts) -> Page:
    """Place every series, stage, outage and event of a report on one axis."""
    known = [s for s in charts.series if any(v is not None and math.isfinite(v) for v in s.mean)]
    ends = [charts.duration_s, report.duration_s or 0.0, *(max(s.t_s) for s in known)]
    duration = max((e for e in ends if math.isfinite(e)), default=0.0) or 1.0
    x = _Axis(0.0, duration, LEFT, WIDTH - RIGHT)
    groups: dict[tuple[int, str, str], list[ChartSeries]] = {}
    quiet = Counter(_spoken(s.name, s.unit) for s in known if _is_quiet(s))
    known = [s for s in known if not _is_quiet(s)]
    crowded = Counter((s.panel, s.unit) for s in known)
    for series in known:
        panel = series.panel if series.panel in PANELS else "other"
        # memory series differ by orders of magnitude: one chart for each name, one line for each card or process
        name = series.name if panel in ("memory", "other") or crowded[(series.panel, series.unit)] > MAX_LINES else ""
        groups.setdefault((PANELS.index(panel), name, series.unit), []).append(series)
    drawn = tuple(_chart(PANELS[key[0]], key[1], key[2], group, x) for key, group in sorted(groups.items()))
    step = next((s for s in _TIME_STEPS if duration / s <= 9), _TIME_STEPS[-1])
    ticks = tuple(Tick(x(i * step), format_duration(i * step)) for i in range(min(int(duration // step) + 1, 60)))
    stages = tuple(_band(x, s.start_s, s.start_s + s.duration_s, clean(s.name, 40)) for s in report.stages[:40])
    return Page(
        duration,
        ticks,
        drawn,
        stages,
        tuple(_outages(report, x, duration)),
        tuple(_marks(report, x)),
        tuple(f"{name} ({n} series)" if n > 1 else name for name, n in quiet.items()),
    )


@dataclass(frozen=True, slots=True)
class _Axis:
    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)


def _chart(panel: str, name: str, unit: str, group: Sequence[ChartSeries], x: _Axis) -> Chart:
    shown = group[:MAX_LINES]
    values = [v for s in shown for column in (s.mean, s.low, s.high) for v in column if v is not None]
    finite = [v for v in values if math.isfinite(v)]
    low, high = min(finite), max(finite)
    limits = sorted({s.limit for s in shown if s.limit is not None and math.isfinite(s.limit)})
    in_view = [
        v for v in limits if (panel in _FROM_ZERO and v <= 2.5 * max(high, 1e-12)) or low <= v <= high + (high - low)
    ]
    bottom, top = _span(panel, unit, min([low, *in_view]), max([high, *in_view]))
    ticks, bottom, top = _ticks(bottom, top, unit)
    y = _Axis(bottom, top, TOP + PLOT_HEIGHT, TOP)
    lines = tuple(_line(s, i, x, y, _telling(s, group)) for i, s in enumerate(shown))
    marks = tuple(LimitMark(say(v, unit), y(v) if v in in_view else None) for v in limits[:4])
    title = _spoken(name, unit) if name else TITLES[panel]
    labels = tuple(Tick(y(value), label) for value, label in ticks)
    return Chart(title, unit_word(unit) or unit, lines, labels, marks, len(group) - len(shown), bottom == 0.0)


def _is_quiet(series: ChartSeries) -> bool:
    """Errors that never were need a word, not a chart."""
    return series.panel == "errors" and all(v == 0 for c in (series.mean, series.high) for v in c if v is not None)


def _spoken(name: str, unit: str) -> str:
    """``gpu memory used`` of ``gpu_memory_used_bytes``: the unit stands beside it."""
    return clean(name.removesuffix(f"_{unit}").replace("_", " "), 60)


def _span(panel: str, unit: str, low: float, high: float) -> tuple[float, float]:
    if panel in _FROM_ZERO and low >= 0:
        return 0.0, high or 1.0
    least = 10.0 if panel == "temperature" else max(abs(high) * 5e-4, _LEAST_BYTES if "byte" in unit else 1e-9)
    middle, half = (low + high) / 2, max(high - low, least) * 0.55
    bottom = middle - half
    return (0.0 if low >= 0 > bottom else bottom), middle + half


def _ticks(bottom: float, top: float, unit: str) -> tuple[list[tuple[float, str]], float, float]:
    base = 1.0
    if unit.split("/")[0] in ("bytes", "B", "byte"):
        base = 1024.0 ** max(0, min(4, int(math.log((top - bottom) / 2 + 1, 1024))))
    raw = (top - bottom) / 3 / base
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(m for m in (1, 2, 2.5, 5, 10) if raw <= m * scale * (1 + 1e-9)) * scale * base
    first, last = math.floor(bottom / step), math.ceil(top / step - 1e-9)
    label = _tick_label(unit, base, step)
    return [(i * step, label(i * step)) for i in range(first, last + 1)], first * step, last * step


def _tick_label(unit: str, base: float, step: float) -> Callable[[float], str]:
    head, _, per = unit.partition("/")
    if head in ("bytes", "B", "byte"):
        word = ("B", "KiB", "MiB", "GiB", "TiB")[round(math.log(base, 1024))] + (f"/{per[0]}" if per else "")
        return lambda value: f"{value / base:,.{_decimals(step / base)}f} {word}"
    if unit in ("s", "seconds"):
        factor, word = (1e3, "ms") if step < 0.5 else (1.0, "s")
    elif unit == "ratio":
        factor, word = 100.0, "%"
    else:
        factor, word = 1.0, unit_word(unit)
        word = word if len(word) <= 2 else ""  # longer ones stand in the title only
    return lambda value: f"{value * factor:,.{_decimals(step * factor)}f} {word}".rstrip()


def _decimals(step: float) -> int:
    return next((d for d in range(9) if abs(step * 10**d - round(step * 10**d)) < 1e-6 * step * 10**d), 9)


def _telling(series: ChartSeries, group: Sequence[ChartSeries]) -> Mapping[str, str]:
    """The labels that tell a line from the others of its name."""
    others = [s.labels for s in group if s.name == series.name]
    return {k: v for k, v in series.labels.items() if any(o.get(k) != v for o in others)}


def _line(series: ChartSeries, index: int, x: _Axis, y: _Axis, telling: Mapping[str, str]) -> Line:
    values = tuple(v if v is not None and math.isfinite(v) else None for v in series.mean)
    runs = list(_runs(series.t_s, values))
    path = "".join(_stroke([(x(t), y(v)) for t, v in run]) for run in runs)
    known = [v for v in values if v is not None]
    lows = [v for v in (*series.low, *known) if v is not None and math.isfinite(v)]
    highs = [v for v in (*series.high, *known) if v is not None and math.isfinite(v)]
    labels = say_labels(telling)
    name = _spoken(series.name, series.unit)
    text = f"{name} ({labels})" if labels else name
    summary = (
        f"{text}: {say(min(lows), series.unit)} to {say(max(highs), series.unit)}, last {say(known[-1], series.unit)}"
    )
    rounded = tuple(None if v is None else float(f"{v:.7g}") for v in values)
    return Line(text, index, path, _shade(series, x, y), summary, tuple(round(t, 2) for t in series.t_s), rounded)


def _shade(series: ChartSeries, x: _Axis, y: _Axis) -> str:
    """The band from low to high, closed at every gap."""
    if not series.low or not series.high:
        return ""
    pairs = list(zip(series.low, series.high, strict=True))
    whole = [low is not None and high is not None and math.isfinite(low + high) for low, high in pairs]
    path = ""
    for run in _runs(range(len(pairs)), [float(i) if ok else None for i, ok in enumerate(whole)]):
        at = [int(i) for i, _ in run]
        upper = [(x(series.t_s[i]), y(pairs[i][1] or 0.0)) for i in at]
        lower = [(x(series.t_s[i]), y(pairs[i][0] or 0.0)) for i in reversed(at)]
        path += _stroke([*upper, *lower]) + "Z"
    return path


def _runs(times: Sequence[float], values: Sequence[float | None]) -> Iterable[list[tuple[float, float]]]:
    run: list[tuple[float, float]] = []
    for t, value in zip(times, values, strict=True):
        if value is not None:
            run.append((t, value))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _stroke(points: Sequence[tuple[float, float]]) -> str:
    if len(points) == 1:  # a lone reading is a dot: a zero-length line with round ends
        return f"M{points[0][0]:g} {points[0][1]:g}h0"
    return "M" + "L".join(f"{px:g} {py:g}" for px, py in points)


def _band(x: _Axis, start: float, end: float, label: str) -> Band:
    return Band(x(start), round(max(x(end) - x(start), 1.0), 1), label)


def _outages(report: Report, x: _Axis, duration: float) -> Iterable[Band]:
    for outage in report.outages[:100]:
        if outage.start_s is None:
            continue
        end = outage.recovered_s if outage.recovered_s is not None else outage.first_success_s
        until = f"to {say_offset(end)}" if end is not None else "and not back at the end"
        yield _band(
            x, outage.start_s, duration if end is None else end, f"Outage from {say_offset(outage.start_s)} {until}"
        )


def _marks(report: Report, x: _Axis) -> Iterable[Mark]:
    order = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}
    taken: dict[int, list[tuple[int, float, str]]] = {}
    for event in report.events:
        if event.t_s is None or not math.isfinite(event.t_s):
            continue
        at = x(event.t_s)
        label = f"{say_offset(event.t_s)} {clean(event.kind, 60)}: {clean(event.what, 160)}"
        taken.setdefault(int(at // 6), []).append((order[event.severity], at, label))
    slots = sorted(taken.values(), key=lambda events: (min(events)[0], min(events)[1]))[:MAX_MARKS]
    names = {code: severity.value for severity, code in order.items()}
    for events in sorted(slots, key=lambda events: events[0][1]):
        code, at, label = min(events)
        more = f" (and {len(events) - 1} more here)" if len(events) > 1 else ""
        yield Mark(at, label + more, names[code], len(events))
