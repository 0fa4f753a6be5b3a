from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from soakd.analysis.evidence import RunEvidence, Track, without_sums
from soakd.analysis.given_back import kept_findings
from soakd.model import Event, Finding, Labels, Severity
from tests.support.evidence_of_runs import CARD, a_run, track

GIB = 2**30
N = 1440
AFTER = 1428
"""Readings of 5 s: twelve of idle time before the load, twelve after it."""


def over_the_run(before: float, under_load: float, after: float) -> list[float]:
    return [before] * 12 + [under_load] * (AFTER - 12) + [after] * (N - AFTER)


def a_quiet_run(*tracks: Track) -> RunEvidence:
    return replace(a_run(tracks=tracks), idle_before_s=60.0)


def found(*tracks: Track) -> tuple[Finding, ...]:
    return kept_findings(a_quiet_run(*tracks))


def kv(before: float, after: float) -> Track:
    return track("server_kv_cache_usage_ratio", over_the_run(before, 0.6, after), labels=(), unit="ratio")


@pytest.mark.parametrize(("before", "after"), [(0.0, 0.0), (0.02, 0.02), (0.02, 0.0)])
def test_kv_blocks_given_back_are_no_finding(before: float, after: float) -> None:
    assert found(kv(before, after)) == ()


def test_kv_blocks_that_idle_requests_hold_are_a_finding_with_the_figures() -> None:
    (finding,) = found(kv(0.0, 0.031))
    assert (finding.source, finding.severity) == ("idle.kv_cache", Severity.WARNING)
    assert "3.10%" in finding.detail
    assert finding.value == pytest.approx(0.031)


def test_a_server_that_somebody_still_uses_says_nothing_of_what_it_keeps() -> None:
    busy = track("server_requests_running", over_the_run(0.0, 8.0, 1.0), labels=(), unit="requests")
    assert found(kv(0.0, 0.031), busy) == ()


def test_a_straggler_that_ends_within_the_idle_time_is_not_kept() -> None:
    values = [0.0] * 12 + [0.6] * (AFTER - 12) + [0.1] * 8 + [0.0] * 4
    assert found(track("server_kv_cache_usage_ratio", values, labels=(), unit="ratio")) == ()


def test_without_idle_time_nothing_is_said() -> None:
    leaking = kv(0.0, 0.031)
    assert kept_findings(a_run(tracks=(leaking,))) == ()
    no_end = replace(a_quiet_run(leaking), measured_to_s=7200.0)
    assert kept_findings(no_end) == ()


def test_memory_that_is_kept_is_told_and_is_no_warning() -> None:
    vram = track("gpu_memory_used_bytes", over_the_run(20 * GIB, 24 * GIB, 23 * GIB))
    host = track("server_process_anon_swap_bytes", over_the_run(GIB, 3 * GIB, GIB), labels=(("role", "total"),))
    (finding,) = found(vram, host)
    assert (finding.source, finding.severity, finding.labels) == ("idle.memory", Severity.INFO, CARD)
    assert "3 GiB not given back" in finding.title
    assert "75%" in finding.detail


def test_memory_of_a_server_that_was_started_anew_is_not_compared() -> None:
    vram = track("gpu_memory_used_bytes", over_the_run(20 * GIB, 24 * GIB, 23 * GIB))
    run = a_quiet_run(vram)
    restart = Event("server.restart", run.end_ns - 10**12, "the server runs again")
    assert kept_findings(replace(run, events=(restart,))) == ()


def card(uuid: str, bdf: str = "0000:00:06.0") -> Track:
    tags: Labels = (("bdf", bdf), ("gpu", uuid))
    return track("gpu_memory_used_bytes", np.zeros(3), labels=tags)


def test_a_card_split_by_mig_does_not_count_beside_its_instances() -> None:
    split, parts, whole = card("GPU-1"), [card("MIG-1"), card("MIG-2")], card("GPU-2", "0000:00:07.0")
    assert without_sums([split, *parts, whole]) == (*parts, whole)
    assert without_sums([split, whole]) == (split, whole)
