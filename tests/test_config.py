from __future__ import annotations

from pathlib import Path

import pytest

from soakd import share
from soakd.config import load_config, read_secret
from soakd.errors import ConfigError
from soakd.limits_config import LimitsConfig
from soakd.soak.limits import UNITS, limits_of
from soakd.soak.plan import phases, stages


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "soakd.yaml"
    path.write_text(text)
    return path


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, text))
    return [str(p) for p in caught.value.problems]


def test_without_a_file_the_defaults_hold_and_every_collector_runs() -> None:
    loaded = load_config(None)
    assert loaded.config.load.duration == 7200
    assert loaded.config.load.profile == "customer-service"
    assert {"host", "soakd", "server_process"} <= set(loaded.collectors)
    assert all(entry.enabled for entry in loaded.collectors.values())


@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        ("target:\n  url: http://x\n  modle: y\n", 3, "target.modle", "unknown key"),
        ("load:\n  duration: 90\n", 2, "load.duration", "such as 90s"),
        ("limits:\n  e2e_p95: fast\n", 2, "limits.e2e_p95", "not a duration"),
        ("limits:\n  error_rate_max: 5\n", 2, "limits.error_rate_max", "between 0 and 1"),
        ("limits:\n  vram_used_max: 28 apples\n", 2, "limits.vram_used_max", "not a size"),
        ("collectors:\n  hots: {}\n", 2, "collectors.hots", "one of"),
        ("collectors:\n  host:\n    interval: soon\n", 3, "collectors.host.interval", "such as 90s"),
        ("target:\n  url: localhost:8000\n", 2, "target.url", "http://"),
        ("load:\n  profile: fastest\n", 2, "load.profile", "customer-service"),
        ("limits:\n  use: nothing\n", 2, "limits.use", "article-v100"),
        ("target: [1]\n", 1, "target", "valid"),
        ("load: 7\n", 1, "load", "mapping"),
    ],
)
def test_each_fault_names_line_and_key_and_what_would_be_right(
    tmp_path: Path, text: str, line: int, key: str, says: str
) -> None:
    found = problems(tmp_path, text)
    assert len(found) == 1
    assert found[0].startswith(f"{tmp_path / 'soakd.yaml'}:{line}: {key}:")
    assert says in found[0]


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    found = problems(tmp_path, "data_dri: x\nload:\n  seed: many\nlimits:\n  ttft_p95: 3\n")
    assert len(found) == 3


def test_a_secret_that_is_wrong_is_not_repeated(tmp_path: Path) -> None:
    found = problems(tmp_path, "target:\n  api_key_env: [sk-12345]\n")
    assert "sk-12345" not in "".join(found)


def test_the_users_keys_win_over_the_profile_and_the_command_line_over_both(tmp_path: Path) -> None:
    path = write(tmp_path, "load:\n  profile: smoke\n  arrivals: {kind: closed, concurrency: 9}\n  seed: 5\n")
    loaded = load_config(path, sets={"load.seed": 7})
    assert loaded.config.load.arrivals["concurrency"] == 9
    assert (loaded.config.load.seed, loaded.config.load.duration) == (7, 60)


def test_a_set_of_limits_counts_as_the_users_own(tmp_path: Path) -> None:
    loaded = load_config(write(tmp_path, "limits:\n  use: article-v100\n  e2e_p95: 1s\n"))
    named = {limit.name: limit for limit in limits_of(loaded.config.limits)}
    assert named["request_rate_min"].user_set
    assert named["request_rate_min"].value == 30
    assert named["e2e_p95"].value == 1
    assert not named["xid_max"].user_set


def test_every_limit_has_a_unit() -> None:
    assert set(UNITS) == set(LimitsConfig.model_fields) - {"use"}


def test_a_run_lasts_as_long_as_asked_with_idle_phases_around_it() -> None:
    loaded = load_config(None, sets={"load.duration": "2h"})
    planned = phases(loaded)
    assert (planned.warmup_s + planned.measured_s, planned.warmup_s) == (7200, 300)
    assert (planned.idle_before_s, planned.idle_after_s) == (30, 60)
    short = phases(load_config(None, sets={"load.duration": "60s"}))
    assert (short.warmup_s, short.measured_s, short.idle_after_s) == pytest.approx((9, 51, 3))


def test_a_warm_up_that_eats_the_run_is_refused(tmp_path: Path) -> None:
    loaded = load_config(write(tmp_path, "load:\n  duration: 60s\n  warmup: 2m\n"))
    with pytest.raises(ConfigError, match="nothing of a duration"):
        phases(loaded)


def test_stages_are_idle_warm_up_measured_idle() -> None:
    found = stages(load_config(None, sets={"load.duration": "10m"}))
    assert [s.measured for s in found] == [False, False, True, False]
    assert sum(s.duration_s for s in found) == pytest.approx(600 + 30 + 30)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("load:\n  arrivals: {kind: warp}\n", "load.arrivals.kind"),
        ("load:\n  arrivals: {kind: poisson, rate: fast}\n", "load.arrivals.rate"),
    ],
)
def test_arrivals_that_are_wrong_are_told_by_key(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        stages(load_config(write(tmp_path, text)))
    assert caught.value.problems[0].key == key
    assert caught.value.problems[0].line == 2


@pytest.mark.parametrize("name", share.names("configs/profiles"))
def test_every_shipped_profile_is_good(name: str) -> None:
    assert stages(load_config(None, profile=name))


def test_a_secret_that_is_named_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(ConfigError, match="SOME_KEY: not set"):
        read_secret("SOME_KEY", None, "API key")
    with pytest.raises(ConfigError, match="No such file"):
        read_secret(None, tmp_path / "key", "API key")
    (tmp_path / "key").write_text("abc\n")
    assert read_secret(None, tmp_path / "key", "API key") == "abc"
