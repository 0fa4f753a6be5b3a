from __future__ import annotations

import numpy as np
import pytest

from soakd.analysis.evidence import CanaryEvidence, LoadEvidence, OutageEvidence
from soakd.analysis.limits import LOAD_JUDGES, Limit
from soakd.analysis.limits_hardware import HARDWARE_JUDGES
from soakd.model import Event, LimitResult, Outcome, Severity, State
from tests.support.evidence_of_runs import CARD, END_NS, a_load, a_run, gain, latency, limit, track

PASS, FAIL, OPEN, SKIPPED = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.NOT_JUDGED


def judged(wanted: Limit, **run: object) -> LimitResult:
    judge = {**LOAD_JUDGES, **HARDWARE_JUDGES}[wanted.name]
    (result,) = judge(wanted, a_run(**run))  # type: ignore[arg-type]
    return result


@pytest.mark.parametrize(
    ("count", "p95", "low", "outcome"),
    [
        (200, 0.79, None, PASS),
        (200, 0.81, None, FAIL),
        (199, 0.10, 0.05, OPEN),
        (50, 1.50, 0.90, FAIL),
        (50, 0.90, 0.70, OPEN),
    ],
)
def test_a_percentile_needs_enough_requests_unless_it_is_plainly_over(
    count: int, p95: float, low: float | None, outcome: Outcome
) -> None:
    result = judged(limit("e2e_p95", 0.8, "s"), load=a_load(e2e=latency(count, p95, low=low)))
    assert result.outcome is outcome
    assert result.value == p95


def test_ttft_is_judged_from_when_it_was_due() -> None:
    late = a_load(ttft=latency(1000, 0.1), ttft_from_due=latency(1000, 3.0))
    assert judged(limit("ttft_p95", 1.0, "s"), load=late).outcome is FAIL


@pytest.mark.parametrize(("user_set", "outcome"), [(True, OPEN), (False, SKIPPED)])
def test_only_a_default_limit_may_go_without_being_judged(user_set: bool, outcome: Outcome) -> None:
    assert judged(limit("e2e_p95", 0.8, user_set=user_set), load=LoadEvidence()).outcome is outcome


@pytest.mark.parametrize(
    ("completed", "failed", "outcome"), [(990, 10, PASS), (989, 11, FAIL), (0, 5, FAIL), (0, 0, OPEN)]
)
def test_error_rate(completed: int, failed: int, outcome: Outcome) -> None:
    result = judged(limit("error_rate_max", 0.01), load=a_load(completed=completed, failed=failed))
    assert result.outcome is outcome


def test_no_request_at_all_is_not_a_good_error_rate_even_by_default() -> None:
    result = judged(limit("error_rate_max", 0.01, user_set=False), load=LoadEvidence())
    assert result.outcome is OPEN
    assert result.value is None


@pytest.mark.parametrize(("completed", "outcome"), [(30 * 100, PASS), (30 * 100 - 1, FAIL)])
def test_request_rate_counts_what_was_completed(completed: int, outcome: Outcome) -> None:
    assert judged(limit("request_rate_min", 30), load=a_load(completed=completed, measured_s=100.0)).outcome is outcome


def test_unknown_tokens_are_not_a_rate_of_zero() -> None:
    result = judged(limit("output_token_rate_min", 5), load=a_load(output_tokens_per_s=None))
    assert (result.outcome, result.value) == (OPEN, None)


def test_a_target_that_took_no_connection_at_all_is_an_outage_although_nothing_was_sent() -> None:
    gone = OutageEvidence(END_NS - 20 * 10**9, None, None, 44)
    load = a_load(offered=28, started=0, completed=0, failed=28, outages=(gone,))
    assert judged(limit("outages_max", 0), load=load).outcome is FAIL
    assert judged(limit("outage_seconds_max", 5, "s"), load=load).outcome is FAIL


def test_where_nothing_was_due_nothing_is_known_of_outages() -> None:
    assert judged(limit("outages_max", 0), load=LoadEvidence()).outcome is OPEN


@pytest.mark.parametrize(
    ("outage", "allowed", "outcome"),
    [
        (None, 0, PASS),
        (OutageEvidence(END_NS - 20 * 10**9, END_NS - 8 * 10**9, None, 7, "killed"), 0, FAIL),
        (OutageEvidence(END_NS - 20 * 10**9, END_NS - 8 * 10**9, None, 7), 1, PASS),
    ],
)
def test_an_unplanned_outage_fails_unless_a_limit_allows_it(
    outage: OutageEvidence | None, allowed: int, outcome: Outcome
) -> None:
    result = judged(limit("outages_max", allowed), load=a_load(outages=(outage,) if outage else ()))
    assert result.outcome is outcome
    if outage:
        assert "back after 12.0 s, 7 requests lost" in result.why


def test_an_outage_that_never_ended_lasts_to_the_end_of_the_run() -> None:
    down = a_load(outages=(OutageEvidence(END_NS - 90 * 10**9, None, None, 3),))
    result = judged(limit("outage_seconds_max", 60), load=down)
    assert (result.outcome, result.value) == (FAIL, 90.0)


@pytest.mark.parametrize(
    ("canary", "outcome"),
    [
        (CanaryEvidence("exact", 40, 0, 0), PASS),
        (CanaryEvidence("exact", 40, 1, 0, first="canary c1 differs"), FAIL),
        (CanaryEvidence("garbage_only", 40, 12, 0), PASS),
        (CanaryEvidence("garbage_only", 40, 12, 1), FAIL),
        (CanaryEvidence("off", why="too few"), OPEN),
        (CanaryEvidence("exact", 0), OPEN),
    ],
)
def test_canaries(canary: CanaryEvidence, outcome: Outcome) -> None:
    assert judged(limit("canary_identical_min", 1.0), load=a_load(canary=canary)).outcome is outcome


@pytest.mark.parametrize(
    ("values", "unknown", "state", "outcome"),
    [
        ([27e9] * 100, 0, State.TIMEOUT, PASS),
        ([27e9] * 99 + [29e9], 0, State.TIMEOUT, FAIL),
        ([27e9] * 70, 30, State.TIMEOUT, OPEN),
        ([29e9] * 10, 90, State.TIMEOUT, FAIL),
        ([], 100, State.LOST, OPEN),
    ],
)
def test_a_gauge_that_was_seen_too_seldom_proves_nothing_good(
    values: list[float], unknown: int, state: State, outcome: Outcome
) -> None:
    seen = track("gpu_memory_used_bytes", values, unknown=unknown, state=state)
    result = judged(limit("vram_used_max", 28e9, "bytes"), tracks=(seen,))
    assert result.outcome is outcome
    assert result.labels == CARD


def test_a_sensor_that_a_card_does_not_have_is_no_fault_of_a_default_limit() -> None:
    sensor = (*CARD, ("sensor", "memory"))
    none = track("gpu_temperature_celsius", [], labels=sensor, unknown=50, state=State.UNSUPPORTED)
    assert judged(limit("memory_temperature_max", 95, user_set=False), tracks=(none,)).outcome is SKIPPED
    assert judged(limit("memory_temperature_max", 95, user_set=True), tracks=(none,)).outcome is OPEN


def test_a_lost_card_leaves_a_default_limit_open_not_skipped() -> None:
    lost = gain("gpu_ecc_errors_total", None, 0.2, State.LOST, counter="aggregate", error="uncorrected")
    assert judged(limit("ecc_uncorrected_max", 0, user_set=False), gains=(lost,)).outcome is OPEN


@pytest.mark.parametrize(
    ("increase", "coverage", "outcome"), [(0, 1.0, PASS), (1, 1.0, FAIL), (1, 0.3, FAIL), (0, 0.5, OPEN)]
)
def test_error_counters_are_judged_by_their_increase(increase: float, coverage: float, outcome: Outcome) -> None:
    counted = gain("gpu_ecc_errors_total", increase, coverage, counter="aggregate", error="uncorrected")
    assert judged(limit("ecc_uncorrected_max", 0), gains=(counted,)).outcome is outcome


def test_the_other_counters_of_a_metric_do_not_count() -> None:
    corrected = gain("gpu_ecc_errors_total", 99, counter="aggregate", error="corrected")
    wanted = gain("gpu_ecc_errors_total", 0, counter="aggregate", error="uncorrected")
    assert judged(limit("ecc_uncorrected_max", 0), gains=(corrected, wanted)).outcome is PASS


def test_a_machine_without_a_card_skips_what_is_about_cards_and_says_why() -> None:
    for name in HARDWARE_JUDGES:
        result = judged(limit(name, 1, user_set=False, width=2.0, share=0.9), gpu_note="no GPU found")
        assert result.outcome is SKIPPED, name
        assert "no GPU found" in result.why


@pytest.mark.parametrize(
    ("kind", "outcome"), [("ignore", PASS), ("reset", FAIL), ("application", FAIL), ("workflow", FAIL)]
)
def test_xids_fail_a_run_unless_they_are_of_the_kind_to_ignore(kind: str, outcome: Outcome) -> None:
    xid = Event("xid", END_NS, "XID 48 on card", Severity.CRITICAL, CARD, (("class", kind),))
    assert judged(limit("xid_max", 0), events=(xid,)).outcome is outcome


def test_a_temperature_band_is_judged_under_load_only() -> None:
    cold = [40.0] * 60
    seen = track("gpu_temperature_celsius", cold + [78.0] * 1320 + cold, labels=(*CARD, ("sensor", "core")))
    band = limit("temperature_band", 78, "celsius", width=2.0, share=0.95)
    assert judged(band, tracks=(seen,)).outcome is PASS
    hot = track("gpu_temperature_celsius", cold + [85.0] * 1380, labels=(*CARD, ("sensor", "core")))
    result = judged(band, tracks=(hot,))
    assert result.outcome is FAIL
    assert result.value == pytest.approx(85.0, abs=0.1)


def test_replays_are_a_rate_per_minute() -> None:
    counted = gain("pcie_replays_total", 240.0)
    assert judged(limit("pcie_replay_per_minute_max", 2), gains=(counted,)).outcome is PASS
    assert judged(limit("pcie_replay_per_minute_max", 1.9), gains=(counted,)).outcome is FAIL


def test_restarts_need_a_process_to_watch() -> None:
    assert judged(limit("restarts_max", 0, user_set=False)).outcome is SKIPPED
    seen = track("server_process_rss_bytes", np.full(10, 1e9))
    assert judged(limit("restarts_max", 0), tracks=(seen,)).outcome is PASS
    event = Event("server.restart", END_NS, "the server was restarted", Severity.CRITICAL)
    assert judged(limit("restarts_max", 0), tracks=(seen,), events=(event,)).outcome is FAIL
