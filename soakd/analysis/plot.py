"""A chart of one analysis: HTML with inline SVG (no network), or PNG through matplotlib (extra ``plot``)."""

from __future__ import annotations

import html
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from soakd.analysis.analyze import Analysis
from soakd.analysis.series import Floats
from soakd.errors import ConfigError, Problem, SoakdError

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 960, 420, 90, 20, 20, 50
_MOST_POINTS = 2000
_TIMES = ((3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
_SCALES = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))


def write_plot(analysis: Analysis, path: Path) -> None:
    """PNG (needs the extra ``plot``) or HTML by the suffix. Raises ConfigError for another suffix, SoakdError where
    the file can't be written or matplotlib is missing."""
    suffix = path.suffix.lower()
    if suffix not in (".png", ".html", ".htm"):
        raise ConfigError([Problem(str(path), None, "--plot", f"suffix {suffix or 'missing'!r}", ".png or .html")])
    chart = _chart(analysis)
    try:
        if suffix == ".png":
            _write_png(chart, path)
        else:
            path.write_text(_page(analysis, chart), encoding="utf-8")
    except OSError as e:
        raise SoakdError(f"{path}: can't be written: {e.strerror or e}") from e


@dataclass(frozen=True, slots=True)
class _Chart:
    title: str
    x_label: str
    y_label: str
    x: Floats
    y: Floats
    line_x: Floats
    line_y: Floats
    jumps: Floats


def _chart(analysis: Analysis) -> _Chart:
    s, e = analysis.series, analysis.judgement.evidence
    known = np.isfinite(s.x) & np.isfinite(s.y)
    order = np.argsort(s.x[known], kind="stable")
    x, y = s.x[known][order], s.y[known][order]
    start = float(x[0]) if len(x) else 0.0
    span = float(x[-1] - start) if len(x) else 0.0
    x_scale, x_label = 1.0, f"{s.per}s"
    if s.per == "hour":
        x_scale, x_label = next((k, n) for k, n in _TIMES if span >= k or k == 1)
    y_scale, y_label = 1.0, s.unit or s.name
    if s.unit == "bytes":
        largest = float(np.abs(y).max()) if len(y) else 1.0
        y_scale, y_label = next((k, n) for k, n in _SCALES if largest >= k or k == 1)
    if s.per != "hour":
        start = 0.0
    keep = _thinned(y)
    verdict = analysis.judgement.verdict.value.replace("_", " ")
    return _Chart(
        title=f"{s.name}: {verdict} ({analysis.judgement.shape.value})",
        x_label=x_label,
        y_label=y_label,
        x=(x[keep] - start) / x_scale,
        y=y[keep] / y_scale,
        line_x=(np.array(e.line_x) - start) / x_scale,
        line_y=np.array(e.line_y) / y_scale,
        jumps=(np.array([j.x for j in e.jumps]) - start) / x_scale,
    )


def _thinned(y: Floats) -> list[int]:
    """Indices of at most about 2,000 readings, with the least and the most of each stretch."""
    if len(y) <= _MOST_POINTS:
        return list(range(len(y)))
    edges = np.linspace(0, len(y), _MOST_POINTS // 2 + 1).astype(int)
    kept: set[int] = set()
    for a, z in pairwise(edges):
        kept |= {int(a + np.argmin(y[a:z])), int(a + np.argmax(y[a:z]))}
    return sorted(kept)


def _page(analysis: Analysis, chart: _Chart) -> str:
    text = html.escape(analysis.to_text())
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        f"<title>{html.escape(chart.title)}</title>"
        "<style>body{font:15px system-ui,sans-serif;margin:2rem auto;max-width:60rem}svg{width:100%;height:auto}"
        "text{font-size:12px;fill:#444}</style>"
        f"<h1>{html.escape(chart.title)}</h1>{_svg(chart)}<pre>{text}</pre></html>\n"
    )


def _svg(chart: _Chart) -> str:
    if not len(chart.x):
        return "<p>no readings</p>"
    every_y = np.concatenate([chart.y, chart.line_y])
    x0, x1 = float(chart.x[0]), float(chart.x[-1])
    y0, y1 = float(every_y.min()), float(every_y.max())
    x1 = x1 if x1 > x0 else x0 + 1.0
    pad = 0.05 * (y1 - y0) or max(abs(y0) * 0.01, 1.0)
    y0, y1 = y0 - pad, y1 + pad

    def px(v: float) -> float:
        return _LEFT + (v - x0) / (x1 - x0) * (_WIDTH - _LEFT - _RIGHT)

    def py(v: float) -> float:
        return _HEIGHT - _BOTTOM - (v - y0) / (y1 - y0) * (_HEIGHT - _TOP - _BOTTOM)

    def path(x: Floats, y: Floats) -> str:
        return " ".join(f"{px(float(a)):.1f},{py(float(b)):.1f}" for a, b in zip(x, y, strict=True))

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{html.escape(chart.title)}">']
    for v in np.linspace(y0, y1, 6):
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{py(v):.1f}" y2="{py(v):.1f}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{py(v) + 4:.1f}" text-anchor="end">{v:.5g}</text>')
    for v in np.linspace(x0, x1, 7):
        parts.append(f'<text x="{px(v):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{v:.4g}</text>')
    for v in chart.jumps:
        if x0 <= v <= x1:
            parts.append(f'<line x1="{px(float(v)):.1f}" x2="{px(float(v)):.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" '
                         'stroke="#d08700" stroke-dasharray="3 4"><title>jump</title></line>')  # fmt: skip
    parts.append(f'<polyline fill="none" stroke="#2563a8" stroke-width="1.2" points="{path(chart.x, chart.y)}"/>')
    if len(chart.line_x):
        fitted = path(chart.line_x, chart.line_y)
        parts.append(f'<polyline fill="none" stroke="#c22" stroke-width="2" points="{fitted}"/>')
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 10}" text-anchor="middle">{html.escape(chart.x_label)}</text>')
    parts.append(f'<text x="14" y="{_HEIGHT / 2}" transform="rotate(-90 14 {_HEIGHT / 2})" '
                 f'text-anchor="middle">{html.escape(chart.y_label)}</text></svg>')  # fmt: skip
    return "".join(parts)


def _write_png(chart: _Chart, path: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError as e:
        raise SoakdError("a PNG needs matplotlib", hint="pip install 'soakd[plot]', or write .html") from e
    figure = Figure(figsize=(9.6, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.plot(chart.x, chart.y, linewidth=1.0, color="#2563a8")
    axes.plot(chart.line_x, chart.line_y, linewidth=1.8, color="#c22")
    for jump in chart.jumps:
        axes.axvline(jump, linestyle=":", linewidth=1.0, color="#d08700")
    axes.set(title=chart.title, xlabel=chart.x_label, ylabel=chart.y_label)
    axes.grid(visible=True, alpha=0.3)
    figure.savefig(path, dpi=110)
