"""`soakd analyze` on the series of public bug reports: the right answer of each, by the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from soakd.cli import _run

CASES = Path(__file__).parent.parent / "fixtures" / "cases"
LEAK, NO_LEAK, OPEN = "leak", "no_leak", "inconclusive"
EXIT = {NO_LEAK: 0, LEAK: 1, OPEN: 3}


@pytest.mark.parametrize(
    ("name", "options", "verdict", "shape"),
    [
        ("llamacpp_27894_rss", (), LEAK, "linear"),
        ("llamacpp_27894_rss", ("--cap", "8192MiB"), OPEN, None),
        ("llamacpp_25953_rss", (), LEAK, "linear"),
        ("llamacpp_25953_rss", ("--cap", "48GiB"), OPEN, None),
        ("llamacpp_25835_vram_nospec", (), NO_LEAK, "flat"),
        ("llamacpp_23446_vram_q4", (), OPEN, None),
        ("shodh_90_rss", (), NO_LEAK, "warm-up"),
        ("vllm_44175_rss", (), OPEN, None),
        ("ollama_18344_fd", (), OPEN, None),
        ("hindsight_3858_rss", (), OPEN, None),
        ("club_665_desktop-noise", (), NO_LEAK, "flat"),
        ("club_1133_step-down", (), NO_LEAK, None),
        ("club_827_engine-death", (), NO_LEAK, "restart"),
    ],
)
def test_the_cases(
    name: str, options: tuple[str, ...], verdict: str, shape: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    code = _run(["analyze", str(CASES / f"{name}.csv"), *options, "--json"])
    found = json.loads(capfd.readouterr().out)
    assert (found["verdict"], code) == (verdict, EXIT[verdict]), found["why"]
    if shape:
        assert found["shape"] == shape


def test_a_cold_start_is_never_a_leak(capfd: pytest.CaptureFixture[str]) -> None:
    assert _run(["analyze", str(CASES / "club_137_cold-warmup.csv")]) in (0, 3)
    assert "LEAK (" not in capfd.readouterr().out.replace("NO LEAK", "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("time_s,rss_mib\n1,apples\n", "2"),
        ("only_one_column\n1\n", ""),
        ("time_s,a,b\n0,1,2\n1,2,3\n2,3,4\n", "--column"),
    ],
)
def test_what_cannot_be_judged_is_refused_by_file_and_line(
    text: str, says: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text)
    assert _run(["analyze", str(path)]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert str(path) in err
    assert says in err
    assert "Traceback" not in err


def test_a_plot_is_one_page_without_network(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "plot.html"
    assert _run(["analyze", str(CASES / "llamacpp_27894_rss.csv"), "--plot", str(page)]) == 1
    text = page.read_text()
    assert "<svg" in text
    assert "src=" not in text
    assert "https://" not in text
    assert "LEAK" in capfd.readouterr().out
