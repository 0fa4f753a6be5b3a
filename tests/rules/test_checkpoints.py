"""A rule that is put by and taken up again, at any time, judges as if nothing had been."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import orjson
import pytest

from soakd import share
from soakd.alerting.rule_files import kinds
from soakd.alerting.rule_tests import Case, load_tests, run_test
from soakd.metrics import catalogue
from soakd.model import Alert
from soakd.ports import Item
from soakd.rules.alert_rule import AlertRule, RuleState
from soakd.rules.options import RuleContext


class Forgetful(AlertRule):
    """Everything it knows goes through JSON every few steps."""

    steps = 0

    def step(self, state: RuleState, batch: Sequence[Item], now_ns: int) -> tuple[RuleState, Sequence[Alert]]:
        self.steps += 1
        if self.steps % 17 == 0:
            state = self.load(orjson.loads(orjson.dumps(self.dump(state))))
        return super().step(state, batch, now_ns)


def cases() -> list[Case]:
    context = RuleContext(catalogue().by_name, kinds())
    files = sorted((share.root() / "alerts").glob("*_test.yaml"))
    slow = ("GpuMemoryLeak", "ServerMemoryLeak", "HostSharedMemoryLeak")  # one leak rule is enough here
    found = [case for file in files for case in load_tests(file, context)]
    return [case for case in found if case.config.rule[0] not in slow and case.config.steps < 500]


@pytest.mark.parametrize("case", cases(), ids=lambda c: f"{'+'.join(c.config.rule)}: {c.config.name}"[:80])
def test_every_shipped_test_holds_through_checkpoints(case: Case) -> None:
    forgetful = tuple(replace(r, rule=Forgetful(r.rule.definition, r.rule.condition)) for r in case.rules)
    assert run_test(replace(case, rules=forgetful)).failures == ()


@pytest.mark.parametrize("kind", sorted(kinds()))
def test_what_another_version_left_is_refused_not_misread(kind: str) -> None:
    options = {
        "threshold": {"metric": "host_open_files", "above": "1 files"},
        "increase": {"metric": "host_oom_kills_total", "above": "0 processes"},
        "absence": {"metric": "host_open_files"},
        "event": {"event": "xid"},
        "burn_rate": {"bad": [{"metric": "load_requests_failed_total"}],
                      "total": [{"metric": "load_requests_completed_total"}], "budget": "1%", "factor": 2},
        "leak_slope": {"metric": "host_shm_used_bytes"},
        "thermal_drift": {"temperature": {"metric": "gpu_temperature_celsius"}, "power": {"metric": "gpu_power_watts"},
                          "above": "1 celsius/h"},
        "temperature_band": {"metric": "gpu_temperature_celsius", "center": "78 celsius", "width": "2 celsius"},
        "composite": {"all": [{"kind": "event", "event": "xid"}, {"kind": "event", "event": "gpu.lost"}]},
    }[kind]  # fmt: skip
    context = RuleContext(catalogue().by_name, kinds())
    found = context.kinds[kind]
    condition = found.build(found.config.model_validate(options, context=context))
    leavings: tuple[object, ...] = (None, 3, [], {}, {"seen": 4}, {"children": [1]})
    for garbage in leavings:
        with pytest.raises((ValueError, TypeError, LookupError)):
            condition.load(garbage)
