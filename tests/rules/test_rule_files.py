"""What is wrong in a rule file is said with file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.alerting.rule_files import load_rules
from soakd.alerting.shorthand import expand
from soakd.errors import ConfigError
from soakd.metrics import catalogue
from soakd.model import State
from soakd.rules.options import parse_limit
from soakd.rules.wording import Template

GOOD = """rules:
  - name: HotCard
    kind: threshold
    metric: gpu_temperature_celsius
    where: {sensor: core}
    above: 85 celsius
    severity: warning
    summary: "{gpu} is at {value}"
"""


def problems(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "r.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_rules([file], catalogue().by_name)
    return [str(p).removeprefix(f"{file}:") for p in raised.value.problems]


@pytest.mark.parametrize(
    ("old", "new", "place", "said"),
    [
        ("metric: gpu_temperature_celsius", "metric: gpu_temperature_celcius", "4: rules[0].metric",
         "gpu_temperature_celsius?"),
        ("{sensor: core}", "{sensr: core}", "5: rules[0].where", "it has bdf, gpu, sensor"),
        ("85 celsius", "85", "6: rules[0].above", "write 85 celsius"),
        ("85 celsius", "85 watts", "6: rules[0].above", "in celsius"),
        ("above: 85 celsius", "abve: 85 celsius", "6: rules[0].abve", "unknown key"),
        ("kind: threshold", "kind: treshold", "3: rules[0].kind", "threshold"),
        ("severity: warning", "severity: page", "7: rules[0].severity", "critical"),
        ("{gpu} is at {value}", "{card} is at {value}", "8: rules[0].summary", "{gpu}"),
        ("{gpu} is at {value}", "{gpu.__class__}", "8: rules[0].summary", "no field"),
        ("{gpu} is at {value}", "{value!r}", "8: rules[0].summary", "no field"),
        ("name: HotCard", "name: hot card", "2: rules[0].name", "CamelCase"),
        ("    severity: warning\n", "", "2: rules[0].severity", "missing"),
        ("above: 85 celsius", "equals: hot", "6: rules[0].equals", "no named values"),
        ("severity: warning", "severity: warning\n    for: 10", "8: rules[0].for", "10m"),
        ("severity: warning", "severity: warning\n    labels: {host: x}", "8: rules[0].labels", "can't be a label"),
        ("severity: warning", "severity: warning\n    when: [busy]", "8: rules[0].when", "under_load"),
        ("severity: warning", "severity: warning\n    clear: 90 celsius", "2: rules[0]", "good side"),
    ],
)  # fmt: skip
def test_each_fault_is_named_where_it_is(tmp_path: Path, old: str, new: str, place: str, said: str) -> None:
    assert old in GOOD
    (found,) = problems(tmp_path, GOOD.replace(old, new))
    assert found.startswith(place), found
    assert said in found


def test_all_problems_are_told_not_just_the_first(tmp_path: Path) -> None:
    text = GOOD.replace("85 celsius", "85").replace("warning", "page") + GOOD.removeprefix("rules:\n")
    assert len(problems(tmp_path, text)) == 2


def test_a_name_stands_once(tmp_path: Path) -> None:
    assert "stands twice" in problems(tmp_path, GOOD + GOOD.removeprefix("rules:\n"))[0]


def test_a_fault_inside_a_composite_names_its_key(tmp_path: Path) -> None:
    text = """rules:
  - name: Both
    kind: composite
    severity: warning
    summary: both
    all:
      - {kind: threshold, metric: gpu_temperature_celsius, above: 85 celsius}
      - {kind: threshold, metric: gpu_power_watts, above: 85 celsius}
"""
    (found,) = problems(tmp_path, text)
    assert found.startswith("8: rules[0].all[1]"), found
    assert "above" in found
    assert "watts" in found


@pytest.mark.parametrize(
    ("text", "unit", "per", "value"),
    [("85 celsius", "celsius", "", 85), ("85°C", "celsius", "", 85), ("28 GiB", "bytes", "", 28 * 2**30),
     ("-2 celsius", "celsius", "", -2), ("10m", "seconds", "", 600), ("5 %", "ratio", "", 0.05),
     ("1.4 GHz", "hertz", "", 1.4e9), ("16 replays", "replays", "", 16), ("1 MiB/m", "bytes", "hour", 60 * 2**20),
     ("2 celsius/h", "celsius", "hour", 2)],
)  # fmt: skip
def test_limits_in_the_units_people_write(text: str, unit: str, per: str, value: float) -> None:
    assert parse_limit(text, unit, per) == pytest.approx(value)


@given(st.text(max_size=40), st.sampled_from(["celsius", "bytes", "seconds", "ratio", "replays", ""]))
def test_a_limit_is_read_or_refused(text: str, unit: str) -> None:
    try:
        found = parse_limit(text, unit)
    except ValueError:
        return
    assert isinstance(found, float)


def test_shorthand() -> None:
    assert expand("1x2 0+1x3 5-2x1 _ _x2 lost timeoutx2") == [
        1, 1, 1, 0, 1, 2, 3, 5, 3, None, None, None, State.LOST, State.TIMEOUT, State.TIMEOUT,
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["1+x3", "0+1", "okx3", "1x99999999", "a b", "x3"])
def test_shorthand_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=text.split()[0].replace("+", r"\+")):
        expand(text)


@given(st.text(max_size=60))
def test_a_template_shows_only_known_fields(text: str) -> None:
    try:
        template = Template.parse(text, ("value",))
    except ValueError:
        return
    assert set(template.names()) <= {"value"}
    assert len(template.render({"value": "1"})) <= 2000
