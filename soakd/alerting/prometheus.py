"""The same alerts for Prometheus, over ``/metrics``: generated, so that they are in step with the rules.

What PromQL can't say (a leak with its interval, thermal drift, an event, a rule that judges only while a soak runs) is
asked of soakd itself: ``soakd_alerts_firing``. Differences that remain: Prometheus has no hysteresis, ``increase``
extrapolates, and a series that is not scraped resolves its alerts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from soakd.alerting.rule_files import LoadedRule
from soakd.alerting.rule_tests import Case, SeriesConfig
from soakd.model import State
from soakd.rules.gates import BUSY_RATIO

_HEAD = "# Generated from alerts/*.yaml by bench/alerts/prometheus_rules.py; do not edit.\n"
_HUMANIZED = {
    "bytes": "{{ $value | humanize1024 }}B",
    "seconds": "{{ $value | humanizeDuration }}",
    "ratio": "{{ $value | humanizePercentage }}",
    "celsius": "{{ $value | humanize }} °C",
}
RULES, TESTS = "soakd.rules.yml", "soakd.tests.yml"


def native(rule: LoadedRule) -> bool:
    """Whether PromQL says it itself."""
    return rule.rule.condition.promql() is not None and "during_soak" not in rule.config.when


def expression(rule: LoadedRule) -> str:
    config = rule.config
    if config.prometheus is not None:
        return config.prometheus
    found = rule.rule.condition.promql()
    if found is None or "during_soak" in config.when:
        return f'soakd_alerts_firing{{alertname="{config.name}"}} > 0'
    if "under_load" in config.when:
        busy = f'max_over_time(gpu_utilization_ratio{{engine="gpu"}}[1m]) >= {BUSY_RATIO:g}'
        return f"({found}) and on (host, gpu) ({busy})"
    return found


def rules_yaml(rules: Sequence[LoadedRule]) -> str:
    """A rule file of Prometheus 2.42 or later (``keep_firing_for``), one group a file of rules."""
    groups: dict[str, list[dict[str, object]]] = {}
    for loaded in rules:
        file = Path(loaded.rule.definition.place.rpartition(":")[0]).stem
        groups.setdefault(f"soakd-{file}", []).append(_rule(loaded))
    data = {"groups": [{"name": name, "rules": found} for name, found in sorted(groups.items())]}
    return _HEAD + yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=1000)


def _rule(loaded: LoadedRule) -> dict[str, object]:
    config, own = loaded.config, loaded.rule.definition
    found: dict[str, object] = {"alert": config.name, "expr": expression(loaded)}
    if native(loaded):
        if config.for_:
            found["for"] = f"{config.for_:.0f}s"
        if config.keep_firing_for:
            found["keep_firing_for"] = f"{config.keep_firing_for:.0f}s"
    found["labels"] = {"severity": config.severity.value, **config.labels}
    found["annotations"] = _annotations(loaded) | ({"runbook_url": own.runbook} if own.runbook else {})
    return found


def _annotations(loaded: LoadedRule) -> dict[str, str]:
    config, shape = loaded.config, loaded.rule.condition.shape
    if not native(loaded):
        return {"summary": f"{config.name} fires in soakd on {{{{ $labels.host }}}} {{{{ $labels.gpu }}}}"}
    within = getattr(loaded.options, "within", None)
    spelled = {name: f"{{{{ $labels.{name} }}}}" for name in shape.label_names} | {
        "value": _HUMANIZED.get(shape.unit, f"{{{{ $value | humanize }}}} {shape.unit}".strip()),
        "limit": "its limit",
        "what": "value {{ $value }}",
        "duration": f"{config.for_:.0f}s or more",
        "within": f"{within:.0f}s" if within else "",
        "run": "",
    }
    return {"summary": loaded.rule.definition.summary.with_names(spelled)}


def tests_yaml(cases: Sequence[Case]) -> str:
    """Promtool's unit tests from soakd's own, of the rules that PromQL says itself.

    Asked is how many alerts fire: in the middle of what soakd expects, and at the end of what is silent.
    """
    found = [test for case in cases for test in _test(case)]
    return _HEAD + yaml.safe_dump(
        {"rule_files": [RULES], "evaluation_interval": "10s", "tests": found},
        sort_keys=False,
        allow_unicode=True,
        width=1000,
    )


def _test(case: Case) -> list[dict[str, object]]:
    (rule, *others) = case.rules
    config = case.config
    if others or not native(rule) or not config.series or not config.prometheus:
        return []
    step = f"{config.interval:.0f}s"
    times = [(f"{config.interval * (config.steps - 1):.0f}s", 0)] if config.silent else []
    times += [(f"{e.at:.0f}s", len(e.alerts)) for e in config.expect]
    alerts = f'count(ALERTS{{alertname="{rule.config.name}",alertstate="firing"}}) or vector(0)'
    return [
        {
            "name": f"{rule.config.name}: {config.name}",
            "interval": step,
            "input_series": [{"series": _series(s), "values": _values(s)} for s in config.series],
            "promql_expr_test": [
                {"expr": alerts, "eval_time": at, "exp_samples": [{"labels": "{}", "value": count}]}
                for at, count in times
            ],
        }
    ]


def _series(series: SeriesConfig) -> str:
    tags = ",".join(f'{name}="{value}"' for name, value in sorted({"host": "h1", **series.labels}.items()))
    return f"{series.metric.name}{{{tags}}}"


def _values(series: SeriesConfig) -> str:
    """A reading that is not known has no line on ``/metrics``: to Prometheus it is stale."""
    return " ".join("stale" if v is None or isinstance(v, State) else f"{v:.15g}" for v in series.values)
