"""A short markdown to paste into an issue: host names, users, paths, addresses, ids and keys taken out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from soakd.model import Outcome, Severity
from soakd.report.figures import latency_rows
from soakd.report.model import Report
from soakd.report.redact import Redactor
from soakd.report.wording import (
    UNKNOWN,
    clean,
    say,
    say_count,
    say_duration,
    say_labels,
    say_offset,
    say_outcome,
    say_share,
)

MAX_LIMITS = 40
MAX_FINDINGS = 15
MAX_LOG_LINES = 15
# what GitHub reads as markup, a table cell's end, a mention, an issue link or an HTML tag
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~#!&$])")
_MENTION = re.compile(r"@(?=\w)")
_AUTOLINK = re.compile(r"\b(https?|ftp|www)(://|\.)", re.IGNORECASE)
_ICONS = {Outcome.PASS: "✅", Outcome.FAIL: "❌", Outcome.INCONCLUSIVE: "❔", Outcome.NOT_JUDGED: "➖"}


def render_markdown(report: Report) -> str:
    """About a screen of text, safe to paste: nothing in it identifies a machine or acts on the page."""
    return "\n".join(_Writer(report).lines()) + "\n"


class _Writer:
    def __init__(self, report: Report) -> None:
        self._report = report
        self._redact = Redactor.of(report)

    def lines(self) -> Iterable[str]:
        report = self._report
        simulated = " (SIMULATED)" if report.simulated else ""
        yield f"### soakd: {_ICONS[report.outcome]} {report.outcome.value}{simulated}"
        yield ""
        yield self.say(report.why, 600)
        yield ""
        yield from self._facts()
        yield from self._limits()
        yield from self._latencies()
        yield from self._findings()
        yield from self._log()

    def say(self, text: str, limit: int = 200) -> str:
        """Redacted first (while the text is still as it was), then made inert."""
        redacted = self._redact(clean(text, limit * 2))
        inert = _SPECIAL.sub(r"\\\1", clean(redacted, limit))
        return _AUTOLINK.sub("\\1\u200b\\2", _MENTION.sub("@\u200b", inert))

    def _facts(self) -> Iterable[str]:
        report, load, target = self._report, self._report.load, self._report.target
        model = (
            target.model.rstrip("/").rsplit("/", 1)[-1] if target.model.startswith(("/", "~", ".")) else target.model
        )
        cards = sorted(g.name for g in report.cards)
        gpus = ", ".join(f"{cards.count(name)} x {self.say(name, 80)}" for name in dict.fromkeys(cards))
        wanted = f" of {say_duration(report.wanted_duration_s)}" if report.wanted_duration_s is not None else ""
        cut = f" (interrupted: {self.say(report.interrupted_by, 60) or UNKNOWN})" if report.interrupted else ""
        server = " ".join(x for x in (target.server or target.kind, target.version) if x)
        rate = say(load.rate_per_s, "requests/s")
        if load.rate_asked_per_s is not None:
            rate += f" of {say(load.rate_asked_per_s, 'requests/s')} asked"
        errors = ", ".join(f"{self.say(k, 40)} {n:,}" for k, n in list(load.errors.items())[:10])
        yield f"- **Model** {self.say(model, 120) or UNKNOWN} on {self.say(server, 80) or UNKNOWN}"
        yield f"- **GPU** {gpus or self.say(report.gpu_note or 'no GPU found', 120)}"
        profile = self.say(report.profile, 60) or UNKNOWN
        yield f"- **Run** {say_duration(report.duration_s)}{wanted}{cut}, profile {profile}"
        yield (
            f"- **Load** {rate}, {say_count(load.completed)} completed, {say_count(load.failed)} failed"
            f"{f' ({errors})' if errors else ''}, {say(load.output_tokens_per_s, 'tokens/s')}"
        )
        versions = ", ".join(f"{self.say(k, 40)} {self.say(v, 60)}" for k, v in sorted(report.versions.items())[:8])
        yield f"- **Versions** {versions or UNKNOWN}"
        yield ""

    def _limits(self) -> Iterable[str]:
        limits = self._report.limits[:MAX_LIMITS]
        if limits:
            yield from _table(
                ("", "Limit", "Measured", "Allowed", "Coverage", "Why"),
                [
                    (
                        f"{_ICONS[x.outcome]} {say_outcome(x.outcome)}",
                        self.say(x.name + (f" ({say_labels(x.labels)})" if x.labels else ""), 100),
                        self.say(say(x.value, x.unit)),
                        self.say(say(x.limit, x.unit)),
                        self.say(say_share(x.coverage)),
                        self.say(x.why, 160),
                    )
                    for x in limits
                ],
            )
            yield from _more(len(self._report.limits) - len(limits), "limits")

    def _latencies(self) -> Iterable[str]:
        yield from _table(
            ("Latency", "P50", "P95", "P99", "Max", "Count"),
            [
                (name, *(say(v, "s") for v in (x.p50, x.p95, x.p99, x.max)), f"{x.count:,}")
                for name, _, x in latency_rows(self._report.load)
            ],
        )

    def _findings(self) -> Iterable[str]:
        order = list(Severity)[::-1]
        ranked = sorted(self._report.findings, key=lambda f: order.index(f.severity))
        for f in ranked[:MAX_FINDINGS]:
            detail = f": {self.say(f.detail, 300)}" if f.detail else ""
            yield f"- **{f.severity.value}** {say_offset(f.t_s)} {self.say(f.title, 160)}{detail}"
        yield from _more(len(ranked) - MAX_FINDINGS + self._report.findings_left_out, "findings")

    def _log(self) -> Iterable[str]:
        for tail in self._report.log_tails[:1]:
            yield ""
            yield "<details><summary>Last lines of the server's log</summary>"
            yield ""
            for line in tail.lines[-MAX_LOG_LINES:]:
                # indented code takes no fence that the text itself could close
                yield "    " + self._redact(clean(line, 400))[:200]
            yield ""
            yield "</details>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + " --- |" * len(head)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def _more(count: int, what: str) -> Iterable[str]:
    if count > 0:
        yield f"- … {count:,} more {what}"
        yield ""
