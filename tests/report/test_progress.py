from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from soakd.model import Severity
from soakd.report.progress import (
    LineProgress,
    LiveProgress,
    Progress,
    ProgressFinding,
    ProgressGpu,
    due,
    open_progress,
    progress_line,
    progress_panel,
)
from tests.report import samples

NOW = Progress(
    "run-1", 720.0, 7200.0, "measure", False, 29.83, 16.0, 0.412, 0.104, 1812.0, 21_412, 3, 0.5,
    (ProgressGpu("V100", 78.0, 27.9 * 2**30, 32 * 2**30), ProgressGpu("V100", 81.0, 27.1 * 2**30, 32 * 2**30)),
    rss_bytes=4e9, findings=(ProgressFinding(Severity.WARNING, "P95 near its limit"),),
)  # fmt: skip
NOTHING = Progress("run-1", 0.0, None, "starting")


def console(width: int = 80, terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)


def written(out: Console) -> str:
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def test_the_line_has_every_figure_and_the_worst_card() -> None:
    assert progress_line(NOW) == (
        "12m of 2h | measure | rate 29.83 /s | P95 412 ms | TTFT P95 104 ms | tokens 1,812 /s | done 21,412 | "
        "errors 3 (0.5 /min now) | temp 81 °C | VRAM 27.9 GiB of 32 GiB | RSS 3.725 GiB | warning: P95 near its limit"
    )


def test_unknown_is_said() -> None:
    line = progress_line(NOTHING)
    assert "0s of no set end" in line
    assert "rate unknown" in line
    assert "GPU none found" in line
    assert "temp unknown" in progress_line(replace(NOW, gpus=(*NOW.gpus, ProgressGpu("lost"))))


def test_simulated_and_target_down_come_first() -> None:
    line = progress_line(replace(NOW, simulated=True, target_down_s=48.0))
    assert line.startswith("SIMULATED | 12m of 2h | measure | TARGET DOWN for 48s")


@pytest.mark.parametrize("width", [20, 30, 80, 200])
@pytest.mark.parametrize("progress", [NOW, NOTHING, replace(NOW, simulated=True, target_down_s=3.0)])
def test_the_panel_fits(width: int, progress: Progress) -> None:
    out = console(width)
    out.print(progress_panel(progress))
    lines = written(out).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) < 40


def test_the_panel_shows_every_figure_below_its_bar() -> None:
    out = console(80)
    out.print(progress_panel(NOW))
    text = written(out)
    for name in ("rate 29.83 /s", "P95 412 ms", "TTFT P95 104 ms", "tokens 1,812 /s", "temp 81 °C", "RSS 3.725 GiB"):
        assert name in text
    assert not any("━" in line and "rate" in line for line in text.splitlines())


def test_two_hundred_findings_do_not_fill_the_screen() -> None:
    findings = tuple(ProgressFinding(Severity.CRITICAL, f"finding {i}") for i in range(200))
    out = console()
    out.print(progress_panel(replace(NOW, findings=findings)))
    assert "195 more findings" in written(out)
    assert len(written(out).splitlines()) < 20
    assert "195 more findings" in progress_line(replace(NOW, findings=findings))


def test_a_line_is_due_each_minute_and_at_what_matters() -> None:
    assert due(None, NOW, 60.0)
    assert not due(NOW, replace(NOW, elapsed_s=779.0), 60.0)
    assert due(NOW, replace(NOW, elapsed_s=780.0), 60.0)
    assert due(NOW, replace(NOW, stage="idle"), 60.0)
    assert due(NOW, replace(NOW, target_down_s=1.0), 60.0)
    assert due(NOW, replace(NOW, findings=(*NOW.findings, ProgressFinding(Severity.INFO, "new"))), 60.0)
    assert not due(NOW, replace(NOW, findings=()), 60.0)


def test_not_a_terminal_gets_plain_lines() -> None:
    out = console(width=40)
    with open_progress(out, every_s=60.0) as view:
        assert isinstance(view, LineProgress)
        for second in range(130):
            view.show(replace(NOW, elapsed_s=float(second)))
    lines = written(out).splitlines()
    assert [line.split(" of")[0] for line in lines] == ["0s", "1m", "2m"]
    assert "\x1b" not in written(out)


def test_a_terminal_gets_the_live_panel() -> None:
    out = console(terminal=True)
    with open_progress(out) as view:
        assert isinstance(view, LiveProgress)
        view.show(NOW)
    assert "12m of 2h" in written(out)


def test_hostile_names_are_one_plain_line() -> None:
    bad = samples.HOSTILE
    finding = ProgressFinding(Severity.CRITICAL, bad)
    hostile = replace(NOW, run_id=bad, stage=bad, gpus=(), gpu_note=bad, findings=(finding,) * 9)
    line = progress_line(hostile)
    assert "\x1b" not in line
    assert "\n" not in line
    assert len(line) < 1500
    out = console()
    out.print(progress_panel(hostile))
    assert "\x1b" not in written(out)
