from __future__ import annotations

from pathlib import Path

import pytest

from soakd.config import Loaded, load_config
from soakd.errors import ConfigError
from soakd.load.arrivals import Open
from soakd.soak.plan import phases, stages

STAGES = """    stages:
      - {name: warm-up, kind: rate, duration: 5m, rate: 5, measured: false}
      - {name: ramp, kind: rate, duration: 10m, from_rate: 5, rate: 30}
      - {name: hold, kind: rate, duration: 2h, rate: 30}
      - {name: spike, kind: rate, duration: 5m, rate: 90}
      - {name: rest, kind: idle, duration: 2m}
"""


def loaded(tmp_path: Path, more: str = "", stretch: str = "", **sets: object) -> Loaded:
    path = tmp_path / "soakd.yaml"
    path.write_text(f"load:\n{more}  arrivals:\n    kind: staged\n{stretch}{STAGES}")
    return load_config(path, sets=sets)


def test_stages_bring_their_own_length_and_warm_up(tmp_path: Path) -> None:
    config = loaded(tmp_path)
    planned = phases(config)
    assert (planned.warmup_s, planned.measured_s, planned.cooldown_s) == (300, 600 + 7200 + 300, 120)
    assert (planned.idle_before_s, planned.idle_after_s) == (30, 60)
    found = stages(config)
    assert [(s.name, s.measured) for s in found] == [
        ("idle before", False), ("warm-up", False), ("ramp", True), ("hold", True), ("spike", True), ("rest", False),
        ("idle after", False),
    ]  # fmt: skip
    assert sum(s.duration_s for s in found) == planned.total_s == 30 + 8520 + 60
    ramp = found[2].arrivals
    assert isinstance(ramp, Open)
    assert ramp.curve == ((0.0, 5.0), (1.0, 30.0))


def test_a_duration_that_says_the_same_is_fine_and_another_is_an_error(tmp_path: Path) -> None:
    assert phases(loaded(tmp_path, "  duration: 2h22m\n")).total_s == 30 + 8520 + 60
    with pytest.raises(ConfigError, match="1h contradicts the stages, which last 2h 22m in all") as caught:
        phases(loaded(tmp_path, "  duration: 1h\n"))
    assert (caught.value.problems[0].key, caught.value.problems[0].line) == ("load.duration", 2)
    with pytest.raises(ConfigError, match="stretch: true"):
        phases(loaded(tmp_path, **{"load.duration": "60s"}))


def test_stretched_stages_last_as_long_as_asked(tmp_path: Path) -> None:
    config = loaded(tmp_path, stretch="    stretch: true\n", **{"load.duration": "142s"})
    planned = phases(config)
    assert (planned.warmup_s, planned.measured_s, planned.cooldown_s) == pytest.approx((5, 135, 2))
    assert [s.duration_s for s in stages(config)][1:-1] == pytest.approx([5, 10, 120, 5, 2])


def test_a_warm_up_beside_stages_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="bring their own warm-up"):
        phases(loaded(tmp_path, "  warmup: 5m\n"))


def test_stages_of_which_none_is_measured_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("load: {arrivals: {kind: staged, stages: [{kind: idle, duration: 1m}]}}\n")
    with pytest.raises(ConfigError, match="no stage is measured"):
        phases(load_config(path))


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ("{kind: rate, duration: 5m}", "rate"), ("{kind: jump, duration: 5m}", "jump"),
        ("{kind: rate, duration: 5, rate: 1}", "such as 90s"),
    ],
)  # fmt: skip
def test_a_stage_that_is_wrong_is_told_with_its_place(tmp_path: Path, part: str, says: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"load:\n  arrivals:\n    kind: staged\n    stages:\n      - {part}\n")
    with pytest.raises(ConfigError, match=says) as caught:
        phases(load_config(path))
    assert caught.value.problems[0].key.startswith("load.arrivals.stages[0]")
    assert caught.value.problems[0].line == 5


def test_a_shipped_profile_of_stages_needs_no_duration() -> None:
    config = load_config(None, profile="staged-spike")
    assert [s.name for s in stages(config)][1:-1] == ["warm-up", "ramp", "hold", "spike", "after the spike"]
    assert phases(config).load_s == 2.5 * 3600
