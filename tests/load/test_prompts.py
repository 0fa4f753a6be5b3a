from __future__ import annotations

import importlib

import pytest

from soakd.errors import ConfigError
from soakd.load.prompts import ASSUMED, PromptSpec, TokenTable, build_source, make_spec, workload_kinds

TABLE = TokenTable("endpoint", 0.25, 9.0, 5.0, 16.0, error_ratio=0.01, why="counted")


@pytest.fixture
def options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    file = tmp_path_factory.mktemp("data") / "set.jsonl"
    file.write_text("".join(f'{{"prompt": "question number {i}"}}\n' for i in range(50)))
    return {"dataset": {"file": str(file)}}


def test_every_workload_is_found_by_the_name_of_its_file() -> None:
    kinds = workload_kinds()
    assert {"mixture", "agentic", "multi_turn", "shared_prefix", "dataset", "long_documents", "tool_calls"} <= set(
        kinds
    )
    for kind in kinds:
        module = importlib.import_module(f"soakd.load.workloads.{kind}")
        assert kind == module.KIND
        assert callable(module.fit)
        assert callable(module.build)


@pytest.mark.parametrize("kind", workload_kinds())
def test_a_specification_survives_json_and_gives_the_same_prompts(
    kind: str, options: dict[str, dict[str, object]]
) -> None:
    spec = make_spec(kind, options.get(kind, {}), TABLE, 32_768)
    again = PromptSpec.from_json(spec.to_json())
    assert again == spec
    a, b, other = build_source(spec, 7, 1, 2), build_source(again, 7, 1, 2), build_source(spec, 8, 1, 2)
    first = [a.take() for _ in range(30)]
    assert first == [b.take() for _ in range(30)]
    assert first != [other.take() for _ in range(30)]


@pytest.mark.parametrize("kind", workload_kinds())
@pytest.mark.parametrize("context", [1024, 4096, 40_000])
def test_no_prompt_of_any_workload_outgrows_the_context(
    kind: str, context: int, options: dict[str, dict[str, object]]
) -> None:
    source = build_source(make_spec(kind, options.get(kind, {}), TABLE, context), 1)
    for _ in range(300):
        prompt = source.take()
        assert prompt.messages
        assert 0 < prompt.expected_tokens + prompt.max_tokens <= context
        assert len(prompt.tag.encode()) <= 16, "records keep 16 bytes of a tag"
        source.done(prompt, "an answer of some words " * 8)


@pytest.mark.parametrize("kind", sorted(set(workload_kinds()) - {"dataset"}))
def test_shards_never_send_the_same_prompt(kind: str) -> None:
    spec = make_spec(kind, {}, TABLE, 32_768)
    sources = [build_source(spec, 1, shard, 3) for shard in range(3)]
    texts = [tuple(m.content for m in s.take().messages) for s in sources for _ in range(20)]
    assert len(set(texts)) == len(texts)


def test_an_unknown_workload_names_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"found 'mixtur'; one of agentic, .*mixture"):
        make_spec("mixtur", {})


def test_a_wrong_option_names_its_key() -> None:
    with pytest.raises(ConfigError, match=r"mixture\.answer\.low"):
        make_spec("mixture", {"answer": {"low": 0}})
    with pytest.raises(ConfigError, match=r"mixture\.speed"):
        make_spec("mixture", {"speed": 3})


def test_a_context_without_room_is_an_error() -> None:
    with pytest.raises(ConfigError, match="leaves no room for a prompt"):
        make_spec("mixture", {}, TABLE, 150)


def test_the_notes_say_how_tokens_were_counted() -> None:
    assert "checked to within 1.0%" in make_spec("mixture", {}, TABLE).notes[-1]
    assert "assumed" in make_spec("mixture", {}, ASSUMED).notes[-1]


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"kind": "mixture"}', b'{"kind":1,"options":2,"table":[]}'])
def test_what_is_no_specification_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="not a prompt specification"):
        PromptSpec.from_json(raw)
