"""Small series from public bug reports must get the answers that their threads ended with."""

from __future__ import annotations

from pathlib import Path

import pytest

from soakd.analysis.analyze import AnalyzeOptions, analyze_file
from soakd.quantities import parse_size

CASES = Path(__file__).parent.parent / "fixtures" / "cases"


@pytest.mark.parametrize(
    ("name", "cap", "verdicts", "shapes"),
    [
        ("llamacpp_27894_rss", None, {"leak"}, {"linear"}),
        ("llamacpp_27894_rss", "8192MiB", {"inconclusive"}, {"linear"}),
        ("llamacpp_25953_rss", None, {"leak"}, {"linear"}),
        ("llamacpp_25953_rss", "48GiB", {"inconclusive"}, {"linear"}),
        ("llamacpp_25835_vram_nospec", None, {"no_leak"}, {"flat"}),
        ("llamacpp_23446_vram_q4", None, {"inconclusive"}, {"unknown"}),
        ("shodh_90_rss", None, {"no_leak"}, {"warm-up"}),
        ("vllm_44175_rss", None, {"inconclusive"}, {"unknown"}),
        ("ollama_18344_fd", None, {"inconclusive"}, {"unknown"}),
        ("hindsight_3858_rss", None, {"inconclusive"}, {"unknown"}),
        ("club_137_cold-warmup", None, {"inconclusive", "no_leak"}, {"warm-up"}),
        ("club_665_desktop-noise", None, {"no_leak"}, {"flat"}),
        ("club_1133_step-down", None, {"no_leak"}, {"step", "flat"}),
        ("club_827_engine-death", None, {"no_leak"}, {"restart"}),
    ],
)
def test_public_reports_get_their_answer(name: str, cap: str | None, verdicts: set[str], shapes: set[str]) -> None:
    options = AnalyzeOptions(cap=parse_size(cap) if cap else None)
    found = analyze_file(CASES / f"{name}.csv", options).to_json()
    assert found["verdict"] in verdicts
    assert found["shape"] in shapes


def test_llama_cpp_cache_leak_is_reported_per_request_in_bytes() -> None:
    found = analyze_file(CASES / "llamacpp_27894_rss.csv", AnalyzeOptions(total=64 * 2**30))
    assert found.judgement.per == "request"
    assert found.judgement.slope == pytest.approx(126 * 2**20, rel=0.01)
    assert found.judgement.time_to_exhaustion == pytest.approx((64 * 1024 - 6379) / 126, rel=0.02)


def test_growth_inside_a_cap_says_when_it_would_be_reached() -> None:
    found = analyze_file(CASES / "llamacpp_27894_rss.csv", AnalyzeOptions(cap=8192 * 2**20))
    assert found.judgement.time_to_cap == pytest.approx((8192 - 5039) / 126, rel=0.02)
    assert "25 requests" in found.judgement.why


def test_growth_past_its_cap_is_a_leak() -> None:
    found = analyze_file(CASES / "llamacpp_27894_rss.csv", AnalyzeOptions(cap=4 * 2**30))
    assert found.exit_code == 1
    assert "past its declared cap" in found.judgement.why
