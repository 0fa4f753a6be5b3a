from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.errors import ConfigError
from soakd.yaml_source import load_yaml, parse_yaml


def test_every_key_knows_its_line() -> None:
    source = parse_yaml("a: 1\nb:\n  - x: 2\n  - y: {z: 3}\n", "f.yaml")
    assert source.data == {"a": 1, "b": [{"x": 2}, {"y": {"z": 3}}]}
    assert source.line_of(("b", 1, "y", "z")) == 4
    assert source.line_of(("b", 0, "x", "not there")) == 3


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "the key stands twice"),
        ("a: [1, 2\n", 2, "expected"),
        ("a: 1\n\tb: 2\n", 2, "found character"),
        ("? [1, 2]\n: x\n", 1, "not text"),
        ("a: !!python/object:os.system {}\n", 1, "could not determine a constructor"),
    ],
)
def test_a_fault_names_file_and_line(text: str, line: int, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "f.yaml")
    problem = caught.value.problems[0]
    assert (problem.file, problem.line) == ("f.yaml", line)
    assert says in str(problem)


def test_words_that_yaml_takes_for_other_things_stay_text() -> None:
    source = parse_yaml("on: 2026-12-01\nno: yes\n", "f.yaml")
    assert source.data == {"on": "2026-12-01", "no": True}


def test_aliases_that_explode_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 8)]
    with pytest.raises(ConfigError, match="too large"):
        parse_yaml("\n".join(lines), "f.yaml")


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_yaml(tmp_path / "none.yaml")
    bad = tmp_path / "bad.yaml"
    bad.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(ConfigError) as caught:
        load_yaml(bad)
    assert caught.value.problems[0].line == 2


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_with_a_message(text: str) -> None:
    said = "f.yaml"
    try:
        parse_yaml(text, "f.yaml")
    except ConfigError as error:
        said = str(error)
    assert said.startswith("f.yaml")
