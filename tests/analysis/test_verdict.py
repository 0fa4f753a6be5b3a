from __future__ import annotations

import numpy as np
import pytest

from soakd.analysis.evidence import LoadEvidence
from soakd.analysis.limits_growth import Caps
from soakd.analysis.verdict import judge_run, overall
from soakd.model import LimitResult, Outcome, Severity
from tests.support.evidence_of_runs import CARD, a_load, a_run, limit, track

PASS, FAIL, OPEN, SKIPPED = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.NOT_JUDGED
PAGE = 2 * 2**20
GIB = 2**30


def result(outcome: Outcome) -> LimitResult:
    return LimitResult("x", outcome, None, None, "", 1.0, "")


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ([PASS, PASS], PASS),
        ([PASS, SKIPPED], PASS),
        ([PASS, OPEN], OPEN),
        ([PASS, OPEN, FAIL], FAIL),
        ([SKIPPED, SKIPPED], OPEN),
        ([], OPEN),
    ],
)
def test_the_worst_limit_decides_and_nothing_judged_is_never_pass(outcomes: list[Outcome], verdict: Outcome) -> None:
    assert overall([result(o) for o in outcomes]) is verdict


def vram(grows_bytes_per_hour: float, hours: float = 2.0, card_gib: int = 32) -> tuple[object, ...]:
    seconds = np.arange(0, hours * 3600, 5.0)
    used = 20 * GIB + np.floor(grows_bytes_per_hour * seconds / 3600 / PAGE) * PAGE
    total = np.full(len(seconds), card_gib * GIB)
    return (track("gpu_memory_used_bytes", used), track("gpu_memory_total_bytes", total))


@pytest.mark.parametrize(("percent_per_hour", "outcome"), [(0.0, PASS), (0.5, FAIL)])
def test_growth_of_vram_is_judged_as_a_share_of_the_card(percent_per_hour: float, outcome: Outcome) -> None:
    tracks = vram(percent_per_hour / 100 * 32 * GIB)
    judged = judge_run([limit("vram_leak_max", 0.05, "%/h")], a_run(tracks=tracks), Caps())  # type: ignore[arg-type]
    assert judged.verdict.outcome is outcome
    (line,) = judged.verdict.limits
    assert line.value == pytest.approx(percent_per_hour, rel=0.1, abs=0.003)
    assert ("series", "gpu_memory_used_bytes") in line.labels
    assert set(CARD) <= set(line.labels)


def test_a_short_run_does_not_judge_a_default_leak_limit_and_says_what_it_needs() -> None:
    tracks = vram(0.0, hours=1 / 60)
    wanted = limit("vram_leak_max", 0.05, "%/h", user_set=False)
    judged = judge_run([wanted, limit("error_rate_max", 0.01)], a_run(tracks=tracks, duration_s=60.0), Caps())  # type: ignore[arg-type]
    by_name = {line.name: line for line in judged.verdict.limits}
    assert by_name["vram_leak_max"].outcome is SKIPPED
    assert judged.verdict.outcome is PASS
    asked = judge_run([limit("vram_leak_max", 0.05, "%/h")], a_run(tracks=tracks, duration_s=60.0), Caps())  # type: ignore[arg-type]
    assert asked.verdict.outcome is OPEN


@pytest.mark.parametrize(("user_set", "outcome"), [(True, OPEN), (False, SKIPPED)])
def test_four_flat_readings_do_not_prove_that_nothing_leaks(user_set: bool, outcome: Outcome) -> None:
    memory = track("server_process_anon_swap_bytes", [GIB] * 4, labels=(("role", "total"),), every_s=1.0)
    wanted = limit("host_memory_leak_max", 64 * 2**20, "bytes/h", user_set=user_set)
    (found,) = judge_run([wanted], a_run(tracks=(memory,), duration_s=5.0), Caps()).verdict.limits
    assert found.outcome is outcome


def test_growth_inside_a_declared_cap_is_inconclusive() -> None:
    seconds = np.arange(0, 7200, 5.0)
    memory = track("server_process_anon_swap_bytes", 1 * GIB + seconds * 2e5, labels=(("role", "total"),))
    wanted = [limit("host_memory_leak_max", 64 * 2**20, "bytes/h", user_set=False)]
    assert judge_run(wanted, a_run(tracks=(memory,)), Caps()).verdict.outcome is FAIL
    assert judge_run(wanted, a_run(tracks=(memory,)), Caps(host_memory=8 * GIB)).verdict.outcome is OPEN


def test_a_client_that_was_the_bottleneck_leaves_the_run_open() -> None:
    busy = a_load(bottleneck="the load generator was the bottleneck: 98 % of its core")
    judged = judge_run([limit("error_rate_max", 0.01)], a_run(load=busy), Caps())
    assert judged.verdict.outcome is OPEN
    assert "bottleneck" in judged.why
    assert "run soakd on cores that the server does not use" in judged.why


def test_a_run_that_was_cut_short_says_that_before_what_it_therefore_lacks() -> None:
    cut = LimitResult("run.complete", OPEN, 0.1, 1.0, "ratio", 0.1, "ended by Ctrl-C", user_set=True)
    judged = judge_run([limit("error_rate_max", 0.01)], a_run(load=LoadEvidence()), Caps(), [cut])
    assert judged.why == "run.complete: ended by Ctrl-C (and 1 more)"


def test_lost_readings_and_a_dead_load_process_leave_the_run_open() -> None:
    wanted = [limit("error_rate_max", 0.01)]
    assert judge_run(wanted, a_run(journal_dropped=3), Caps()).verdict.outcome is OPEN
    assert judge_run(wanted, a_run(load=a_load(complete=False)), Caps()).verdict.outcome is OPEN


def test_what_failed_is_a_finding_with_its_figure_and_the_reason_of_the_verdict() -> None:
    failing = a_load(failed=50_000, completed=150_000)
    judged = judge_run([limit("error_rate_max", 0.01, "ratio")], a_run(load=failing), Caps())
    (finding,) = judged.verdict.findings
    assert finding.source == "limit.error_rate_max"
    assert finding.severity is Severity.CRITICAL
    assert finding.value == 0.25
    assert judged.why.startswith("error_rate_max: 50,000 of 200,000 requests failed")
