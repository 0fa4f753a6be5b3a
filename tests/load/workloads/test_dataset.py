from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.errors import ConfigError
from soakd.load.dataset_file import open_dataset, parse_record
from soakd.load.prompts import TokenTable, build_source, make_spec

TABLE = TokenTable("endpoint", 0.25, 9.0, 5.0, 16.0, error_ratio=0.01, why="counted")


def write(folder: Path, *lines: object, name: str = "set.jsonl") -> Path:
    path = folder / name
    path.write_bytes(b"\n".join(x if isinstance(x, bytes) else orjson.dumps(x) for x in lines) + b"\n")
    return path


def test_three_forms_of_a_record(tmp_path: Path) -> None:
    chat = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    shared = [{"from": "human", "value": "Hello?"}, {"from": "gpt", "value": "Hello!"}, {"from": "human", "value": "x"}]
    path = write(
        tmp_path, {"prompt": "p", "max_tokens": 7}, b"", {"messages": chat}, {"id": 1, "conversations": shared}
    )
    records = open_dataset(path)
    assert len(records) == 3
    assert (records[0].messages[0].content, records[0].max_tokens) == ("p", 7)
    assert [m.role for m in records[1].messages] == ["system", "user"]
    assert [m.content for m in records[2].messages] == ["Hello?"]
    assert records[2].answer == "Hello!"


def test_sharegpt_as_one_array(tmp_path: Path) -> None:
    path = tmp_path / "sharegpt.json"
    path.write_bytes(orjson.dumps([{"conversations": [{"from": "human", "value": f"q{i}"}]} for i in range(4)]))
    assert [open_dataset(path)[i].messages[0].content for i in range(4)] == ["q0", "q1", "q2", "q3"]


def test_every_bad_line_is_named_with_its_number(tmp_path: Path) -> None:
    path = write(
        tmp_path, {"prompt": "good"}, b'{"prompt": ', {"text": "x"}, b"",
        {"messages": [{"role": "boss", "content": "x"}]},
        {"prompt": ""}, {"prompt": "p", "max_tokens": -1}, b"\xff\xfe",
    )  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        make_spec("dataset", {"file": str(path)})
    problems = caught.value.problems
    assert [p.line for p in problems] == [2, 3, 5, 6, 7, 8]
    assert all(p.file == str(path) for p in problems)
    assert "not JSON" in problems[0].found
    assert "message 1 has no known role" in problems[2].found
    assert "max_tokens is -1" in problems[4].found


def test_an_array_with_a_bad_entry_names_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'[{"prompt": "x"}, 3]')
    with pytest.raises(ConfigError, match=r"\[1\]: not a JSON object"):
        open_dataset(path)
    path.write_bytes(b'[\n{"prompt": "x"},\n{"prompt" "y"}]')
    with pytest.raises(ConfigError, match=r"a\.json:3: not JSON"):
        open_dataset(path)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"[]"])
def test_a_file_without_records_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_bytes(content)
    with pytest.raises(ConfigError):
        open_dataset(path)
    with pytest.raises(ConfigError, match="No such file"):
        open_dataset(tmp_path / "none.jsonl")


def test_each_record_comes_once_over_all_shards_before_any_comes_again(tmp_path: Path) -> None:
    path = write(tmp_path, *({"prompt": f"question {i}"} for i in range(97)))
    spec = make_spec("dataset", {"file": str(path)}, TABLE)
    sources = [build_source(spec, 5, shard, 3) for shard in range(3)]
    texts = [sources[i % 3].take().messages[0].content for i in range(97)]
    assert len(set(texts)) == 97
    assert texts != sorted(texts, key=lambda t: int(t.split()[1]))


def test_repeats_are_marked_so_that_caches_do_not_know_them(tmp_path: Path) -> None:
    path = write(tmp_path, {"prompt": "one"}, {"prompt": "two"})
    marked = build_source(make_spec("dataset", {"file": str(path)}, TABLE), 1)
    prompts = [marked.take() for _ in range(6)]
    assert len({p.messages for p in prompts}) == 6
    assert all(p.cold for p in prompts)
    plain = build_source(make_spec("dataset", {"file": str(path), "mark_repeats": False}, TABLE), 1)
    repeated = [plain.take() for _ in range(6)]
    assert len({p.messages for p in repeated}) == 2
    assert [p.cold for p in repeated] == [True, True, False, False, False, False]


def test_long_records_are_skipped_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path, {"prompt": "short"}, {"prompt": "long " * 4000})
    spec = make_spec("dataset", {"file": str(path)}, TABLE, 1024)
    assert "2 records in set.jsonl, 1 of them skipped" in spec.notes[0]
    source = build_source(spec, 1)
    assert all(source.take().messages[0].content.endswith("short") for _ in range(5))
    only = write(tmp_path, {"prompt": "long " * 4000}, name="long.jsonl")
    with pytest.raises(ConfigError, match="each of the 1 records"):
        make_spec("dataset", {"file": str(only)}, TABLE, 1024)


def test_the_answers_cap_is_the_records_then_its_answer_then_the_default(tmp_path: Path) -> None:
    path = write(tmp_path, {"prompt": "a", "max_tokens": 5}, {"prompt": "b", "answer": "x" * 40}, {"prompt": "c"})
    source = build_source(make_spec("dataset", {"file": str(path), "max_tokens": 100}, TABLE), 1)
    caps = {p.messages[0].content: p.max_tokens for p in (source.take() for _ in range(3))}
    assert caps == {"a": 5, "b": 10, "c": 100}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["prompt", "messages", "role", "content", "from", "value", "conversations"]), inner),  # noqa: E501
    max_leaves=12,
)  # fmt: skip


@given(JSON)
def test_any_json_is_a_record_or_a_value_error(value: object) -> None:
    try:
        record = parse_record(value)
    except ValueError:
        return
    assert record.messages
