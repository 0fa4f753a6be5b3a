"""A sweep for people: its table, its summary in words, and its plot as one SVG."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence

from soakd.load.knee import Interval
from soakd.load.sweep import StepResult, SweepState

HEADER = ("load", "requests", "failed", "rate /s", "tokens/s", "TTFT P50", "TTFT P95", "E2E P50", "E2E P95",
          "95 % interval", "in flight", "goodput /s", "within limits")  # fmt: skip
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 760, 360, 64, 64, 24, 44


def rows(state: SweepState) -> tuple[tuple[str, ...], ...]:
    """One row a step, by load; cells in the order of HEADER."""
    return tuple(_row(s) for s in sorted(state.steps, key=lambda s: s.load))


def markdown(state: SweepState) -> str:
    """Table and summary, to paste."""
    lines = [HEADER, tuple("---:" for _ in HEADER), *rows(state)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table}\n\n" + "\n".join(f"- {line}" for line in summary(state)) + "\n"


def summary(state: SweepState) -> tuple[str, ...]:
    """The knee with its interval, the best load within the limits, and what could not be judged."""
    knee, axis = state.knee, state.plan.axis
    if knee.level is not None:
        upper = f"{knee.high:g}" if knee.high is not None else f"beyond {max(s.load for s in state.steps):g}"
        found = [f"knee: {axis} {knee.level:g} (95 % interval {knee.low:g} to {upper}): {knee.why}"]
    else:
        found = [f"no knee: {knee.why}"]
    best = state.best
    if best is not None:
        found.append(f"highest rate within the limits: {best.rate_per_s:.3g}/s at {axis} {best.load:g}")
    else:
        found.append("no load was shown to meet the limits")
    found += [f"{axis} {s.load:g}: {s.why}" for s in sorted(state.steps, key=lambda s: s.load) if s.why]
    if state.stopped:
        found.append(f"the sweep ended early: {state.stopped}")
    return tuple(found)


def svg(state: SweepState) -> str:
    """P95 of E2E with its interval, and the rate, over the load (logarithmic); the knee is marked."""
    steps = [s for s in sorted(state.steps, key=lambda s: s.load) if s.e2e_p95 is not None]
    if not steps:
        return ""
    loads = [s.load for s in steps]
    tops = [_high(s.e2e_p95) for s in steps if s.e2e_p95 is not None]
    x = _scale(math.log(loads[0]), math.log(loads[-1]), _LEFT, _WIDTH - _RIGHT)
    y = _scale(0.0, max(tops) * 1.05, _HEIGHT - _BOTTOM, _TOP)
    rate = _scale(0.0, max(s.rate_per_s for s in steps) * 1.05 or 1.0, _HEIGHT - _BOTTOM, _TOP)
    view = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" font-family="sans-serif" font-size="12"'
    axes = f"M{_LEFT} {_TOP}V{_HEIGHT - _BOTTOM}H{_WIDTH - _RIGHT}V{_TOP}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {view}><title>P95 latency and rate over the load</title>',
        f'<path d="{axes}" fill="none" stroke="#888"/>',
    ]
    if state.knee.level is not None:
        at = x(math.log(state.knee.level))
        parts.append(f'<path d="M{at:.1f} {_TOP}V{_HEIGHT - _BOTTOM}" stroke="#c33" stroke-dasharray="4 3"/>')
        parts.append(f'<text x="{at + 4:.1f}" y="{_TOP + 12}" fill="#c33">knee {state.knee.level:g}</text>')
    parts.append(_line([(x(math.log(s.load)), rate(s.rate_per_s)) for s in steps], "#2a7"))
    parts.append(_line([(x(math.log(s.load)), y(s.e2e_p95.value)) for s in steps if s.e2e_p95 is not None], "#25c"))
    for s in steps:
        if s.e2e_p95 is None:
            continue
        at = x(math.log(s.load))
        parts.append(f'<path d="M{at:.1f} {y(s.e2e_p95.low):.1f}V{y(_high(s.e2e_p95)):.1f}" stroke="#25c"/>')
        parts.append(f'<circle cx="{at:.1f}" cy="{y(s.e2e_p95.value):.1f}" r="3" fill="#25c"/>')
        parts.append(f'<text x="{at:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{s.load:g}</text>')
    middle, foot = _WIDTH / 2, _HEIGHT - 8
    parts.append(f'<text x="{middle:g}" y="{foot}" text-anchor="middle">{html.escape(state.plan.axis)}</text>')
    parts.append(f'<text x="{_LEFT}" y="{_TOP - 8}" fill="#25c">P95 of E2E, to {max(tops) * 1.05:.3g} s</text>')
    parts.append(f'<text x="{_WIDTH - _RIGHT}" y="{_TOP - 8}" fill="#2a7" text-anchor="end">'
                 f"rate, to {max(s.rate_per_s for s in steps) * 1.05:.3g}/s</text></svg>")  # fmt: skip
    return "\n".join(parts)


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """A linear map of a range to pixels."""
    factor = (end - start) / (high - low) if high > low else 0.0
    return lambda value: start + (value - low) * factor


def _line(points: Sequence[tuple[float, float]], colour: str) -> str:
    joined = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
    return f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _high(p95: Interval | None) -> float:
    if p95 is None:
        return 0.0
    return p95.value if p95.high is None else p95.high


def _row(step: StepResult) -> tuple[str, ...]:
    p95 = step.e2e_p95
    upper = "?" if p95 is None or p95.high is None else _ms(p95.high)
    judged = {True: "yes", False: "no", None: "not judged"}[step.meets_limits]
    return (
        f"{step.load:g}", str(step.requests), str(step.failed), f"{step.rate_per_s:.3g}",
        f"{step.output_tokens_per_s:.4g}", _ms(step.ttft_p50_s), _ms(step.ttft_p95.value if step.ttft_p95 else None),
        _ms(step.e2e_p50_s), _ms(p95.value if p95 else None), f"{_ms(p95.low)} to {upper}" if p95 else "?",
        f"{step.concurrency:.1f}", "?" if step.goodput_per_s is None else f"{step.goodput_per_s:.3g}", judged,
    )  # fmt: skip


def _ms(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
