"""The shipped rules: each is tested for firing and for silence, holds its tests, and stands in Prometheus' words."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from bench.alerts.prometheus_rules import generated
from soakd import share
from soakd.alerting.rule_files import LoadedRule, kinds, load_rules, rule_files
from soakd.alerting.rule_tests import Case, load_tests, run_test
from soakd.metrics import catalogue
from soakd.model import AlertState
from soakd.rules.options import RuleContext
from tests.support.alertmanagers import needs

FOLDER = share.root() / "alerts"


@cache
def rules() -> tuple[LoadedRule, ...]:
    return load_rules(rule_files(()), catalogue().by_name)


@cache
def cases() -> tuple[Case, ...]:
    context = RuleContext(catalogue().by_name, kinds())
    return tuple(case for path in sorted(FOLDER.glob("*_test.yaml")) for case in load_tests(path, context))


def test_every_rule_has_a_test_that_fires_and_one_that_is_silent() -> None:
    fires = {a.name for c in cases() for e in c.config.expect for a in e.alerts if a.state is AlertState.FIRING}
    silent = {name for c in cases() if c.config.silent for name in c.config.rule}
    names = {r.config.name for r in rules()}
    assert names - fires == set()
    assert names - silent == set()


def test_every_silent_test_gives_the_rule_something_to_see() -> None:
    """A silent test without the rule's data would hold for any rule."""
    for case in cases():
        seen = {s.metric.name for s in case.config.series}
        for loaded in case.rules:
            wanted = loaded.rule.condition.interest
            assert not wanted.metrics or wanted.metrics & seen or not case.config.silent, case.place


@pytest.mark.parametrize("case", cases(), ids=lambda c: f"{'+'.join(c.config.rule)}: {c.config.name}"[:90])
def test_the_shipped_tests_hold(case: Case) -> None:
    assert run_test(case).failures == ()


def test_every_rule_says_what_to_do() -> None:
    runbook = (FOLDER / "RUNBOOK.md").read_text()
    sections = {re.sub(r"[^a-z0-9 -]", "", line[3:].lower()).strip().replace(" ", "-")
                for line in runbook.splitlines() if line.startswith("## ")}  # fmt: skip
    for loaded in rules():
        file, _, section = loaded.config.runbook.partition("#")
        assert file == "RUNBOOK.md", loaded.config.name
        assert section in sections, loaded.config.name


@pytest.mark.parametrize("path", sorted(generated()), ids=lambda p: p.name)
def test_prometheus_files_are_in_step(path: Path) -> None:
    assert path.read_text() == generated()[path], "run bench/alerts/prometheus_rules.py"


@pytest.mark.integration
@pytest.mark.parametrize("arguments", [("check", "rules", "soakd.rules.yml"), ("test", "rules", "soakd.tests.yml")])
def test_promtool(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [needs("promtool"), *arguments], cwd=FOLDER / "prometheus", capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
