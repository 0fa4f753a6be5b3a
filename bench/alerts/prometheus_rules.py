"""Writes alerts/prometheus from alerts/*.yaml: ``python bench/alerts/prometheus_rules.py``; a test keeps them so."""

from __future__ import annotations

from pathlib import Path

from soakd.alerting.prometheus import RULES, TESTS, rules_yaml, tests_yaml
from soakd.alerting.rule_files import kinds, load_rules, rule_files
from soakd.alerting.rule_tests import load_tests
from soakd.metrics import catalogue
from soakd.rules.options import RuleContext
from soakd.share import root


def generated() -> dict[Path, str]:
    """The files and what should stand in them."""
    metrics = catalogue().by_name
    context = RuleContext(metrics, kinds())
    folder = root() / "alerts"
    cases = [case for path in sorted(folder.glob("*_test.yaml")) for case in load_tests(path, context)]
    return {
        folder / "prometheus" / RULES: rules_yaml(load_rules(rule_files(()), metrics)),
        folder / "prometheus" / TESTS: tests_yaml(cases),
    }


if __name__ == "__main__":
    for path, text in generated().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
