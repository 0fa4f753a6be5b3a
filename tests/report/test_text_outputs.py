"""Terminal, markdown and JUnit: golden files, and strings that would like to be more than text."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console, RenderableType

from soakd.model import Outcome
from soakd.report.compare import compare, subject_of
from soakd.report.facts import LogTail
from soakd.report.junit import render_junit
from soakd.report.markdown import render_markdown
from soakd.report.model import Report
from soakd.report.terminal import comparison_view, render_terminal
from tests.report import golden, samples

ALL = ["full", "empty", "interrupted", "many", "hostile"]


def terminal(report: Report, width: int = 120, color: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=color, color_system="standard" if color else None)
    render_terminal(report, console)
    return written(console)


def written(console: Console, view: RenderableType | None = None) -> str:
    if view is not None:
        console.print(view)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().split("\n"))


@pytest.mark.parametrize("name", ["full", "empty", "interrupted"])
def test_golden_terminal(name: str) -> None:
    golden.check(f"{name}.txt", terminal(getattr(samples, name)()))


@pytest.mark.parametrize("name", ["full", "empty", "interrupted"])
def test_golden_markdown(name: str) -> None:
    golden.check(f"{name}.md", render_markdown(getattr(samples, name)()))


def test_golden_junit() -> None:
    golden.check("full.junit.xml", render_junit(samples.full()).decode())


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("width", [30, 80, 200])
def test_any_report_fits_any_terminal(name: str, width: int) -> None:
    text = terminal(getattr(samples, name)(), width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert getattr(samples, name)().outcome.value in text


def test_the_terminal_obeys_no_escape_and_no_markup_of_others() -> None:
    markup = "[bold]x[/bold] [link=http://evil]y[/link] [/]"
    report = samples.hostile()
    limits = (replace(report.limits[0], name=markup, why=markup),)
    findings = (replace(report.findings[0], title=markup, detail=markup),)
    text = terminal(replace(report, why=markup, limits=(*report.limits, *limits), findings=findings), 200, color=True)
    assert set(re.findall(r"\x1b\[[\d;]*(.)", text)) <= {"m"}
    assert "\x1b]" not in text
    assert not re.search("[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u202e\ud800-\udfff]", text)
    assert text.count("[bold]x[/bold]") == 5


def test_limits_that_were_not_judged_for_one_reason_are_one_line() -> None:
    report = samples.full()
    line = report.limits[0]
    why = "no GPU found: NVML Shared Library Not Found"
    skipped = [
        replace(line, name=f"gpu_{n}_max", outcome=Outcome.NOT_JUDGED, why=why, labels={}, value=None) for n in range(8)
    ]
    other = replace(
        line, name="threads_leak_max", outcome=Outcome.NOT_JUDGED, why="too short", labels={"role": "total"}
    )
    text = terminal(replace(report, limits=(line, *skipped, other), findings=()), 80)
    assert text.count(why) == 1
    assert f"8 limits: {why}" in text
    assert "threads_leak_max: too short" in text
    assert "gpu_0_max" in text
    assert text.index(line.name) < text.index("8 limits")


def test_the_process_is_named_once() -> None:
    target = replace(samples.full().target, pid=7180, picked_by="pid 7180 (llama-server): it listens on port 8080")
    text = terminal(replace(samples.full(), target=target), 120)
    assert text.count("pid 7180") == 1


def test_simulated_is_said_in_every_output() -> None:
    report = replace(samples.full(), simulated=True)
    assert "SIMULATED" in terminal(report)
    assert "SIMULATED" in render_markdown(report).splitlines()[0]
    assert b"SIMULATED" in render_junit(report)


def test_markdown_names_no_machine_and_no_person() -> None:
    report = samples.full()
    lines = ("loading /home/alice/x.gguf from 10.1.2.3", "key sk-abcdef123456")
    noisy = replace(
        report,
        log_tails=(LogTail("", "file /var/log/alice/vllm.log", lines),),
        target=replace(report.target, model="/home/alice/m/qwen.gguf"),
        why="gpu07.corp.example.com lost GPU-0f0c2d1e-1111-2222-3333-444455556660",
    )
    text = render_markdown(noisy)
    for secret in (
        "alice",
        "gpu07",
        "example.com",
        "444455556660",
        "1654022100",
        "10.1.2.3",
        "sk-abc",
        "/home",
        "/var",
    ):
        assert secret not in text
    assert "qwen.gguf" in text
    assert "\\[host\\] lost \\[id\\]" in text


def test_markdown_is_inert() -> None:
    text = render_markdown(samples.hostile())
    prose = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
    for tag in re.findall(r"(?<!\\)<[^>]*>", prose):
        assert tag in ("<details>", "<summary>", "</summary>", "</details>")
    assert not re.search(r"(?<!\\)\]\(|@everyone|(?<!\\)`", prose)
    rows = [line for line in prose.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {7}
    assert all(
        line.startswith(("#", "-", "|", "<", "    ")) or "script" in line or not line for line in text.splitlines()
    )


@pytest.mark.parametrize("name", ALL)
def test_markdown_stays_short(name: str) -> None:
    assert len(render_markdown(getattr(samples, name)())) < 20_000


@pytest.mark.parametrize("name", ALL)
def test_junit_counts_what_it_holds(name: str) -> None:
    report = getattr(samples, name)()
    root = ET.fromstring(render_junit(report))
    suite = root[0]
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"), ("tests", None)):
        found = suite.findall(f"testcase/{tag}") if tag else suite.findall("testcase")
        assert int(suite.get(attribute, "")) == len(found)
    verdict = suite.find("testcase[@name='verdict']")
    assert verdict is not None
    assert (verdict.find("failure") is not None) == (report.outcome is Outcome.FAIL)
    assert (verdict.find("error") is not None) == (report.outcome is Outcome.INCONCLUSIVE)


def test_a_crash_without_a_failed_limit_still_fails_the_pipeline() -> None:
    root = ET.fromstring(render_junit(replace(samples.full(), limits=())))
    assert root[0].get("failures") == "1"


def test_golden_comparison() -> None:
    other = replace(samples.full(), run_id="second", profile="other", measures=())
    console = Console(file=io.StringIO(), width=140, color_system=None)
    view = comparison_view(compare([subject_of(samples.full()), subject_of(other)]))
    golden.check("compare.txt", written(console, view))
