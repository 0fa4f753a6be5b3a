from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from soakd.clock import FastClock
from soakd.errors import ConfigError
from soakd.load.arrivals import Closed, Idle, Open, Trace, due_times, expected_requests, flat
from soakd.load.canary import CanaryPrompt, CanarySpec
from soakd.load.driver import worker_count
from soakd.load.profiles import diurnal, spike, staged, step
from soakd.load.spec import Job, LoadSpec, Stage, TargetSpec, job_from_json, job_to_json
from soakd.load.transport import endpoints, pick, request_headers
from soakd.registry import plugins
from tests.support.fake_load import PROMPTS, a_spec, a_stage

TARGET = TargetSpec(("http://127.0.0.1:8000",), api_key="sk-secret", headers=(("X-Team", "secret-too"),))


def test_a_job_travels_as_json_and_comes_back_the_same() -> None:
    stages = (
        Stage("a", Closed(3, 0.5), 10.0, False), Stage("b", Open(flat(3.0), "gamma", 2.0), 20.0),
        Stage("c", Trace("/t", repeat=True), 5.0), Stage("d", Idle(), 1.0, False),
    )  # fmt: skip
    spec = LoadSpec(
        TARGET, stages, PROMPTS, CanarySpec((CanaryPrompt("a", "b"),)), clock=FastClock(1, 2, 60.0), workers=2
    )
    assert job_from_json(job_to_json(Job(spec, 1, 2))) == Job(spec, 1, 2)


def test_secrets_are_not_shown() -> None:
    assert "secret" not in repr(TARGET)
    assert "secret" not in repr(a_spec(a_stage(Closed(1), 1)))
    assert request_headers(TARGET)["authorization"] == "Bearer sk-secret"


def test_endpoints_join_base_and_path_once() -> None:
    urls = ("http://h:8000", "http://h:8000/", "http://h:8000/v1", "https://h/proxy", "http://[::1]:9")
    found = [e.url for e in endpoints(TargetSpec(urls), "/v1/chat/completions")]
    assert found == [
        "http://h:8000/v1/chat/completions", "http://h:8000/v1/chat/completions", "http://h:8000/v1/chat/completions",
        "https://h/proxy/v1/chat/completions", "http://[::1]:9/v1/chat/completions",
    ]  # fmt: skip


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://h", "http://h:port", "http://"])
def test_what_is_no_url_is_a_clear_error(url: str) -> None:
    with pytest.raises(ConfigError, match="target: url"):
        endpoints(TargetSpec((url,)), "/x")


def test_the_transport_is_picked_by_what_the_target_needs() -> None:
    assert pick(TargetSpec(("http://h",)), "auto") == "raw"
    assert pick(TargetSpec(("https://h",)), "auto") == "aiohttp"
    assert pick(TargetSpec(("http://h",), unix_socket="/s"), "auto") == "aiohttp"
    assert pick(TargetSpec(("http://h",), proxy="http://p"), "auto") == "aiohttp"
    with pytest.raises(ConfigError, match="transport"):
        pick(TargetSpec(("https://h",)), "raw")


def test_workers_auto_follows_the_load_and_leaves_a_core() -> None:
    assert worker_count(a_spec(a_stage(Closed(64), 1)), cores=8) == 1
    assert worker_count(a_spec(a_stage(Closed(1000), 1)), cores=8) == 4
    assert worker_count(a_spec(a_stage(Closed(100_000), 1)), cores=8) == 7
    assert worker_count(a_spec(a_stage(Open(flat(700.0)), 1)), cores=8) == 3
    assert worker_count(a_spec(a_stage(Closed(1000), 1)), cores=1) == 1
    assert worker_count(a_spec(a_stage(Closed(1), 1), workers=5), cores=2) == 5


def test_every_profile_builds_stages_that_last_as_long_as_asked(tmp_path: Path) -> None:
    needed = {
        "step": {"rates": [1, 2, 4]},
        "trace": {"file": str(tmp_path / "t")},
        "staged": {"stages": [{"kind": "rate", "duration": "5m", "rate": 3}, {"kind": "idle", "duration": "1m"}]},
    }
    found = plugins("load.profiles")
    assert set(found) >= {
        "closed", "constant", "poisson", "gamma", "ramp", "step", "spike", "diurnal", "trace", "staged",
    }  # fmt: skip
    for kind, plugin in found.items():
        stages = plugin.build(plugin.config.model_validate(needed.get(kind, {})), 720.0)
        assert sum(stage.duration_s for stage in stages) == pytest.approx(720.0)


def test_a_profile_refuses_keys_it_does_not_know() -> None:
    for plugin in plugins("load.profiles").values():
        with pytest.raises(ValidationError):
            plugin.config.model_validate({"no_such_key": 1})


def test_steps_and_spikes_are_stages_of_their_own() -> None:
    assert [s.name for s in step.build(step.Config(rates=(1, 2.5)), 10)] == ["step 1 at 1/s", "step 2 at 2.5/s"]
    assert [(s.name, s.duration_s) for s in spike.build(spike.Config(at=0.5, width=0.1), 100)] == [
        ("before the spike", 50.0), ("spike", pytest.approx(10.0)), ("after the spike", pytest.approx(40.0)),
    ]  # fmt: skip


def test_a_diurnal_rate_goes_up_and_down_once_a_period() -> None:
    (stage,) = diurnal.build(diurnal.Config.model_validate({"low": 1, "high": 9, "period": "1h"}), 7200.0)
    assert isinstance(stage.arrivals, Open)
    assert expected_requests(stage.arrivals.curve, 7200.0) == pytest.approx(5 * 7200, rel=0.01)
    found = list(due_times(stage.arrivals, 7200.0, "s"))
    quarter = [sum(1 for t in found if n * 900 <= t < (n + 1) * 900) for n in range(8)]
    assert quarter[1] > 2 * quarter[0]
    assert quarter[4] == pytest.approx(quarter[0], rel=0.1)


def test_staged_names_what_is_wrong() -> None:
    with pytest.raises(ValidationError, match="union_tag_invalid"):
        staged.Config.model_validate({"stages": [{"kind": "jump", "duration": "5m"}]})
