"""The page: complete, self-contained, and harmless whatever the strings."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from soakd.model import Outcome
from soakd.report.charts import Charts, ChartSeries
from soakd.report.compare import compare, subject_of
from soakd.report.html import render_comparison, render_html
from soakd.report.model import Report
from tests.report import samples

_VOID = {"meta", "br"}
_INLINE = {"span", "strong", "em", "code", "a", "output"}
_ALLOWED = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "p",
        "strong",
        "em",
        "span",
        "header",
        "h1",
        "h2",
        "h3",
        "main",
    ),
    *("section", "div", "dl", "dt", "dd", "nav", "a", "table", "caption", "thead", "tbody", "tr", "th", "td", "code"),
    *("br", "ul", "li", "details", "summary", "svg", "g", "rect", "path", "text", "figure", "figcaption", "output"),
    *("script", "pre"),
}


class Page(HTMLParser):
    """Tags, attributes and visible text of a page; fails on tags that do not nest."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        self.text += "" if tag in _INLINE else " "

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            self.scripts[-1] += data
        elif not self._open or self._open[-1] != "style":
            self.text += data

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


def page_of(report: Report, charts: Charts | None = None) -> Page:
    return Page(render_html(report, charts))


def hostile_charts() -> Charts:
    bad = samples.HOSTILE
    return Charts(100.0, (ChartSeries(bad, bad, bad, (0.0, 50.0), (1.0, 2.0), labels={bad: bad}, limit=1.5),))


@pytest.mark.parametrize("name", ["full", "empty", "interrupted", "many", "hostile"])
def test_every_report_is_whole_and_loads_nothing(name: str) -> None:
    report = getattr(samples, name)()
    html = render_html(report, samples.charts() if name != "hostile" else hostile_charts())
    page = Page(html)
    assert {tag for tag, _ in page.tags} <= _ALLOWED
    for tag, attrs in page.tags:
        assert not {"src", "style", "background", "srcset", "action"} & set(attrs)
        assert not [a for a in attrs if a.startswith("on")]
        if tag == "a":
            assert (attrs["href"] or "").startswith("#")
    assert not re.search(r"url\(|@import|https?:", re.search(r"<style>.*?</style>", html, re.DOTALL)[0])  # type: ignore[index]
    assert len(html) < 1_500_000


def test_hostile_strings_stay_text() -> None:
    html = render_html(samples.hostile(), hostile_charts())
    page = Page(html)
    kinds = [attrs.get("type") for tag, attrs in page.tags if tag == "script"]
    assert kinds == ["application/json", None]
    assert "<script>alert" not in html
    assert "<img" not in html
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e\ud800-\udfff]", html)
    assert "{{7*7}}" in page.text, "a template in a name is shown, not run"
    assert json.loads(page.scripts[0])["charts"]
    html.encode("utf-8")


def test_only_our_own_script_may_run() -> None:
    page = page_of(samples.full(), samples.charts())
    policy = next(
        a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    )
    digest = base64.b64encode(hashlib.sha256(page.scripts[-1].encode()).digest()).decode()
    assert policy is not None
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")


def test_what_a_person_looks_for_is_there() -> None:
    page = page_of(samples.full(), samples.charts())
    for wanted in (
        "FAIL", "The server was down for 48 s, and 28.4 requests/s were sustained where 30 were asked.",
        "request_rate", "28.4 requests/s", "30 requests/s", "the outage cost 10,920 requests", "> 99.9 %",
        "pid 4211", "listens on port 8000", "Tesla V100-PCIE-32GB", "compute processes of pid 4211",
        "XID 31: memory page fault", "The mix was cut to fit.", "742 ms", "13,046,400", "connect 10,920",
        "staircase", "3.9 MiB/h", "[1.1 MiB/h, 6.7 MiB/h]", "the server never ran more than 10",
        "after 1m 30s", "ERROR CUDA error: an illegal memory access", "no AER files", "queue full 2", "poisson",
    ):  # fmt: skip
        assert wanted in page.words, wanted


def test_outcomes_are_told_by_words_and_not_by_colour_alone() -> None:
    for outcome in (Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE):
        page = page_of(replace(samples.full(), outcome=outcome))
        assert f"{outcome.value} {samples.full().why}" in page.words


def test_simulated_is_said_at_the_top_and_in_the_title() -> None:
    html = render_html(replace(samples.full(), simulated=True, scenario="leak", speed=60.0), samples.charts())
    assert "SIMULATED" in html.split("<header")[0]
    assert "scenario leak, clock 60 times faster" in Page(html).words
    assert "SIMULATED" not in render_html(samples.full(), samples.charts())


def test_unknown_is_the_word_and_never_zero() -> None:
    page = page_of(samples.empty())
    assert page.words.count("unknown") > 30
    assert not re.search(r"\b0(\.0)? (ms|s|B|%|requests/s|°C)\b", page.words)
    assert "No GPU was found." in page.words
    assert "No series was recorded" in page.words


def test_an_interrupted_run_says_how_far_it_came() -> None:
    page = page_of(samples.interrupted(), Charts(660.0))
    assert "Interrupted (killed) after 11m of 2h" in page.words
    assert "never" in page.words


def test_two_hundred_findings_are_all_there_the_worst_open() -> None:
    page = page_of(samples.many())
    assert len([1 for t, a in page.tags if t == "li" and "finding" in (a.get("class") or "")]) == 200
    assert "188 more findings" in page.words
    assert "56 further findings are not shown" in page.words
    assert "1,234 further events are not shown" in page.words
    assert page.words.index("Finding number 2 ") < page.words.index("188 more findings")


def test_of_many_limits_the_passed_ones_are_folded() -> None:
    page = page_of(samples.many())
    passed = sum(line.outcome is Outcome.PASS for line in samples.many().limits)
    assert f"{passed} limits passed" in page.words
    assert page.words.index("limit_1 ") < page.words.index("limits passed")
    assert page.words.index("limits passed") < page.words.index("limit_0 ")
    assert "limits passed" not in page_of(samples.full()).words


def test_charts_are_named_for_those_who_do_not_see_them() -> None:
    page = page_of(samples.full(), samples.charts())
    charts = [a for t, a in page.tags if t == "svg" and a.get("role") == "img"]
    assert len(charts) == 8
    assert all(a.get("aria-label") or a.get("aria-labelledby") for a in charts)
    assert re.search(r"P95 E2E: \d+ ms to \d+ ms, last \d+ ms; P50 E2E", page.words)
    headers = [a for t, a in page.tags if t == "th"]
    assert all(a.get("scope") in ("col", "row") for a in headers)


def test_a_comparison_page() -> None:
    other = replace(samples.full(), run_id="second", duration_s=100.0)
    page = Page(render_comparison(compare([subject_of(samples.full()), subject_of(other)])))
    assert "Not comparable" in page.words
    assert "Differs or is unknown: duration." in page.words
    hostile = Page(render_comparison(compare([subject_of(samples.hostile()), subject_of(samples.full())])))
    assert {tag for tag, _ in hostile.tags} <= _ALLOWED


def test_growth_by_work_and_the_heat_of_a_card_are_shown() -> None:
    page = render_html(samples.full())
    assert "per 1,000 requests" in page
    assert "97 % of the evidence" in page
    assert "found during the run at +00:33:53" in page
    assert "4.1 GiB left" in page
    assert "0.21 °C/W" in page
    assert "1.5 °C above the other 1" in page
