"""JUnit XML for pipelines: each limit is a test case; what can't be judged is an error or a skip, never a pass."""

from __future__ import annotations

import math
from xml.etree import ElementTree as ET

from soakd.model import Outcome, Severity
from soakd.report.model import LimitLine, Report
from soakd.report.wording import clean, clean_lines, say, say_labels, say_share

MAX_FINDINGS = 200


def render_junit(report: Report) -> bytes:
    """One suite. FAIL is a failure, INCONCLUSIVE an error, NOT_JUDGED skipped.

    The verdict itself is the first case, so that a FAIL without a failed limit (a crash) still fails the pipeline.
    """
    results = [report.outcome, *(line.outcome for line in report.limits)]
    root = ET.Element("testsuites")
    suite = ET.SubElement(
        root,
        "testsuite",
        name=f"soakd{' SIMULATED' if report.simulated else ''} {clean(report.target.model, 120)}".strip(),
        tests=str(len(results)),
        failures=str(results.count(Outcome.FAIL)),
        errors=str(results.count(Outcome.INCONCLUSIVE)),
        skipped=str(results.count(Outcome.NOT_JUDGED)),
        time=_time(report.duration_s),
        timestamp=clean(report.started_at, 40),
    )
    properties = ET.SubElement(suite, "properties")
    facts = {
        "run_id": report.run_id,
        "profile": report.profile,
        "simulated": str(report.simulated).lower(),
        **report.versions,
    }
    for name, value in facts.items():
        ET.SubElement(properties, "property", name=clean(name, 80), value=clean(value, 200))
    verdict = ET.SubElement(suite, "testcase", classname="soakd", name="verdict", time=_time(report.duration_s))
    _result(verdict, report.outcome, clean(report.why, 600), _findings(report))
    for line in report.limits:
        labels = f" [{say_labels(line.labels)}]" if line.labels else ""
        case = ET.SubElement(
            suite, "testcase", classname="soakd.limits", name=f"{clean(line.name, 120)}{labels}", time="0"
        )
        _result(case, line.outcome, _figures(line), clean(line.why, 600))
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _result(case: ET.Element, outcome: Outcome, message: str, detail: str) -> None:
    tag = {Outcome.FAIL: "failure", Outcome.INCONCLUSIVE: "error", Outcome.NOT_JUDGED: "skipped"}.get(outcome)
    if tag:
        element = ET.SubElement(case, tag, message=message)
        if tag != "skipped":
            element.set("type", outcome.value)
        element.text = detail
    else:
        ET.SubElement(case, "system-out").text = f"{message}\n{detail}".strip()


def _figures(line: LimitLine) -> str:
    value, limit = say(line.value, line.unit), say(line.limit, line.unit)
    return f"{value} against a limit of {limit}, coverage {say_share(line.coverage)}"


def _findings(report: Report) -> str:
    lines = [
        f"{f.severity.value}: {clean(f.title, 200)}: {clean(f.detail, 400)}"
        for f in report.findings[:MAX_FINDINGS]
        if f.severity is not Severity.INFO
    ]
    return clean_lines("\n".join(lines), 40_000)


def _time(seconds: float | None) -> str:
    return f"{seconds:.3f}" if seconds is not None and math.isfinite(seconds) else "0"
