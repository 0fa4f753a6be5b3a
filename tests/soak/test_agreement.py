from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from soakd.model import Outcome
from soakd.soak.agreement import Check, Counted, check, findings, results

GOOD = Counted(
    client_requests=1000, client_tokens=64_000, unsettled=0, loose_tokens=0, server_requests=1000,
    server_tokens=64_000, preemptions=0, asked=8, achieved=7.9, running_max=8, waiting_max=0, restarted=False,
)  # fmt: skip


def named(checks: tuple[Check, ...]) -> dict[str, str]:
    return {c.what: c.outcome for c in checks}


def test_equal_counts_agree_and_bear_on_nothing() -> None:
    checks = check(GOOD)
    assert set(named(checks).values()) == {"agree"}
    assert results(checks) == ()
    assert findings(GOOD, checks, 0) == ()


@pytest.mark.parametrize(
    ("change", "what", "says"),
    [
        ({"server_requests": 1100}, "requests", "something else uses the server"),
        ({"server_requests": 900}, "requests", "one of the two is wrong"),
        ({"server_tokens": 80_000}, "output tokens", "something else uses the server"),
        ({"server_tokens": 50_000}, "output tokens", "one of the two is wrong"),
    ],
)
def test_counts_that_differ_leave_the_run_inconclusive(change: dict[str, Any], what: str, says: str) -> None:
    checks = check(replace(GOOD, **change))
    assert named(checks)[what] == "disagree"
    (result,) = results(checks)
    assert result.outcome is Outcome.INCONCLUSIVE
    assert says in result.why


def test_requests_that_were_cut_off_may_or_may_not_be_in_the_servers_count() -> None:
    cut = replace(GOOD, unsettled=20, loose_tokens=20 * 128, server_requests=1018, server_tokens=66_000)
    assert named(check(cut))["requests"] == "agree"
    assert named(check(cut))["output tokens"] == "agree"


def test_a_count_that_is_missing_is_unknown_never_zero() -> None:
    checks = check(replace(GOOD, server_requests=None, client_tokens=None))
    assert named(checks)["requests"] == "unknown"
    assert named(checks)["output tokens"] == "unknown"
    assert results(checks) == ()


def test_a_restart_loses_counts_and_proves_nothing() -> None:
    assert named(check(replace(GOOD, restarted=True, server_tokens=10.0)))["output tokens"] == "unknown"


def test_a_server_that_never_ran_what_was_asked_is_said() -> None:
    few = replace(GOOD, asked=32, running_max=10, waiting_max=22)
    checks = check(few)
    assert named(checks)["concurrency"] == "disagree"
    assert results(checks) == ()
    (finding,) = findings(few, checks, 0)
    assert "never ran more than 10" in finding.detail


def test_preemptions_and_strangers_on_the_cards_are_said() -> None:
    shared = replace(GOOD, preemptions=12, strangers=("python (pid 7)",))
    titles = [f.title for f in findings(shared, check(shared), 0)]
    assert titles == ["preemptions", "the cards are shared"]
