from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from soakd.analysis.analyze import AnalyzeOptions, analyze_file
from soakd.analysis.plot import write_plot
from soakd.analysis.work import growth_by_work
from soakd.errors import ConfigError

FIXTURES = Path(__file__).parent.parent / "fixtures"
CONTRACT = {
    "verdict", "shape", "slope", "slope_low", "slope_high", "per", "percent_per_hour", "smallest_detectable", "why",
    "points", "used_points",
}  # fmt: skip


def test_the_json_holds_the_contract_and_is_plain(tmp_path: Path) -> None:
    found = analyze_file(FIXTURES / "cases" / "club_665_desktop-noise.csv", AnalyzeOptions(total=24 * 2**30)).to_json()
    assert set(found) >= CONTRACT
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_the_worst_of_several_memory_columns_decides(tmp_path: Path) -> None:
    rows = "\n".join(f"{i},4000,{900 + i // 2},{i * 0.5}" for i in range(400))
    path = tmp_path / "two.csv"
    path.write_text(f"time_s,vram_mib,rss_mib,gpu_temp_c\n{rows}\n")
    found = analyze_file(path, AnalyzeOptions())
    assert (found.series.name, found.exit_code) == ("rss_mib", 1)
    assert [o.name for o in found.others] == ["vram_mib"]
    assert "vram_mib: no leak (flat)" in found.to_text()


def test_growth_that_follows_requests_is_told_from_growth_with_time() -> None:
    x = np.arange(3600.0)
    rate = np.where((x // 300) % 2 == 0, 8.0, 2.0)
    requests = np.cumsum(rate)
    tokens = np.cumsum(rate * np.random.default_rng(1).uniform(20, 200, 3600))
    y = 1e9 + 5000.0 * requests + 3e4 * np.random.default_rng(2).standard_normal(3600)
    best = growth_by_work(x, y, {"request": requests, "token": tokens})[0]
    assert (best.per, best.amount) == ("request", 1000.0)
    assert best.low <= 5e6 <= best.high
    assert best.share > 0.9


def test_a_file_with_counts_of_work_reports_growth_by_them() -> None:
    found = analyze_file(FIXTURES / "h200-serving" / "leak_torch.csv.gz", AnalyzeOptions("allocated_bytes_small_pool"))
    assert {w.per for w in found.by_work} == {"hour", "request", "token"}
    # the injected leak follows the clock, whatever the load
    assert found.by_work[0].per == "hour"


def test_charts_need_no_network_and_show_the_verdict(tmp_path: Path) -> None:
    found = analyze_file(FIXTURES / "h200-serving" / "leak_nvml.csv.gz", AnalyzeOptions("nvml_used"))
    write_plot(found, tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    assert "<svg" in page
    assert "http" not in page
    assert found.judgement.verdict.value in page
    with pytest.raises(ConfigError, match=r"\.png or \.html"):
        write_plot(found, tmp_path / "a.gif")


def test_a_png_is_one(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = analyze_file(FIXTURES / "cases" / "llamacpp_27894_rss.csv", AnalyzeOptions())
    write_plot(found, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
