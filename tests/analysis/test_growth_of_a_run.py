"""Growth of a run: by the work it did, what is left, what no limit is on."""

from __future__ import annotations

import numpy as np
import pytest

from soakd.analysis.evidence import Track
from soakd.analysis.limits_growth import Caps, Growth
from soakd.analysis.series import Leak
from soakd.analysis.verdict import Judged, judge_run
from soakd.model import Outcome
from tests.support.evidence_of_runs import a_run, limit, track

GIB = 2**30
PAGE = 2 * 2**20
SECONDS = np.arange(0.0, 7200.0, 5.0)
RATE = np.where((SECONDS // 600) % 2 == 0, 8.0, 2.0)
REQUESTS = np.cumsum(RATE * 5.0)
WORK = (
    ("request", Track("load_requests_completed_total", "requests", (), SECONDS, REQUESTS)),
    ("token", Track("server_generated_tokens_total", "tokens", (), SECONDS, REQUESTS * 150.0 + SECONDS * 300.0)),
)
VRAM = limit("vram_leak_max", 0.05, "%/h")


def a_leak(per_request: float) -> tuple[Track, ...]:
    used = 20 * GIB + np.floor(REQUESTS * per_request / PAGE) * PAGE
    return (track("gpu_memory_used_bytes", used), track("gpu_memory_total_bytes", np.full(len(used), 32 * GIB)))


def judged(*tracks: Track, work: tuple[tuple[str, Track], ...] = WORK, caps: Caps | None = None) -> Judged:
    return judge_run([VRAM], a_run(tracks=tracks, work=work), caps or Caps())


def only(found: Judged) -> Growth:
    (grown,) = found.growth
    return grown


def test_a_leak_is_told_per_thousand_requests_and_per_million_tokens() -> None:
    found = judged(*a_leak(20_000.0))
    rates = {w.per: w for w in only(found).work}
    assert set(rates) == {"hour", "request", "token"}
    assert rates["request"].slope == pytest.approx(20e6, rel=0.03)
    assert rates["request"].low <= 20e6 <= rates["request"].high
    assert only(found).work[0].per == "request"
    (line,) = found.verdict.limits
    assert line.outcome is Outcome.FAIL
    assert "per 1,000 requests" in line.why
    assert "per million tokens" in line.why
    assert "it follows requests rather than" in line.why
    assert line.why in [f.detail for f in found.verdict.findings]


def test_a_leak_says_what_is_left_and_for_how_long() -> None:
    found = judged(*a_leak(20_000.0))
    grown = only(found)
    hours = grown.judgement.time_to_exhaustion
    assert hours is not None
    left = 12 * GIB - REQUESTS[-1] * 20_000.0
    assert hours == pytest.approx(left / (20_000.0 * 5.0 * 3600), rel=0.1)
    assert "of headroom last" in found.verdict.limits[0].why


def test_without_a_count_of_work_nothing_is_said_of_it() -> None:
    found = judged(*a_leak(20_000.0), work=())
    assert only(found).work == ()
    assert "requests" not in found.verdict.limits[0].why


def test_growth_inside_a_cap_has_a_time_to_the_cap() -> None:
    found = judged(*a_leak(20_000.0), caps=Caps(vram=8 * GIB))
    grown = only(found)
    assert grown.judgement.verdict is Leak.INCONCLUSIVE
    assert grown.judgement.time_to_cap is not None
    assert "inside the declared cap" in found.verdict.limits[0].why
    assert found.verdict.outcome is Outcome.INCONCLUSIVE


def test_growth_of_shared_pages_is_told_and_fails_nothing() -> None:
    tree = (("role", "total"),)
    pss = track("server_process_pss_bytes", GIB + SECONDS * 50_000.0, labels=tree)
    private = track("server_process_anon_swap_bytes", np.full(len(SECONDS), float(GIB)), labels=tree)
    wanted = [limit("host_memory_leak_max", 64 * 2**20, "bytes/h")]
    found = judge_run(wanted, a_run(tracks=(pss, private)), Caps())
    assert found.verdict.outcome is Outcome.PASS
    (finding,) = found.verdict.findings
    assert (finding.source, finding.metric) == ("growth", "server_process_pss_bytes")
    assert "no limit is on it" in finding.detail


def test_one_leak_of_a_card_split_by_mig_is_one_finding() -> None:
    used = a_leak(20_000.0)[0]
    part = Track(used.metric, used.unit, (("bdf", "0000:00:06.0"), ("gpu", "MIG-1")), used.x, used.y, len(used.y))
    total = track("gpu_memory_total_bytes", np.full(len(SECONDS), 32 * GIB), labels=part.labels)
    found = judged(*a_leak(20_000.0), part, total)
    assert [dict(g.track.labels)["gpu"] for g in found.growth] == ["MIG-1"]
    assert len(found.verdict.findings) == 1
