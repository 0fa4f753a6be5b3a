"""Reads prompts from a file: JSON lines, or a JSON array as ShareGPT's. Every fault is named with its line.

JSON lines are not held in memory: 8 bytes a line, the text stays in the file. An array is, and must be small.
"""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import orjson

from soakd.errors import ConfigError, Problem
from soakd.load.prompts import Message

MAX_ARRAY_BYTES = 64 * 2**20
_MAX_LINE_BYTES = 16 * 2**20
_MAX_PROBLEMS = 20
_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system",
          "tool": "tool", "chatgpt": "assistant", "bing": "assistant"}  # fmt: skip
_WANTED = "a record has `prompt` (text), `messages` (role, content) or `conversations` (from, value)"


@dataclass(frozen=True, slots=True)
class DatasetRecord:
    """``answer`` is the reference answer where the file has one, ``max_tokens`` the record's own cap."""

    messages: tuple[Message, ...]
    answer: str | None = None
    max_tokens: int | None = None


class Records(Protocol):
    """Records by number; reading one may touch the page cache but nothing else."""

    def __len__(self) -> int: ...
    def __getitem__(self, at: int) -> DatasetRecord: ...


class _Lines:
    def __init__(self, path: Path, data: mmap.mmap, starts: Sequence[int]) -> None:
        self._path = path
        self._data = data
        self._starts = starts

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, at: int) -> DatasetRecord:
        start = self._starts[at]
        end = self._data.find(b"\n", start)
        return parse_record(orjson.loads(self._data[start : end if end >= 0 else len(self._data)]))


def open_dataset(path: Path) -> Records:
    """Index and validate a file. Raises ConfigError with up to twenty faults, each with its line."""
    name = str(path)
    try:
        with path.open("rb") as file:
            head = file.read(4096).lstrip()
            if not head:
                raise ConfigError([Problem(name, None, "", "the file is empty", _WANTED)])
            if head[:1] == b"[":
                return _array(path)
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ConfigError([Problem(name, None, "", error.strerror or str(error), "give a readable file")]) from None
    starts = array("Q")
    problems: list[Problem] = []
    for number, start, raw in _lines(data):
        found = _fault(raw)
        if found is None:
            starts.append(start)
        elif found:
            problems.append(Problem(name, number, "", found, _WANTED))
            if len(problems) == _MAX_PROBLEMS:
                break
    if problems:
        raise ConfigError(problems)
    if not starts:
        raise ConfigError([Problem(name, None, "", "the file holds no record", _WANTED)])
    return _Lines(path, data, starts)


def parse_record(value: object) -> DatasetRecord:
    """One record. Raises ValueError with what is wrong."""
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    if isinstance(value.get("prompt"), str):
        messages: tuple[Message, ...] = (Message("user", value["prompt"]),)
    elif "messages" in value:
        messages = _messages(value["messages"], "role", "content")
    elif "conversations" in value:
        messages = _messages(value["conversations"], "from", "value")
    else:
        raise ValueError("none of prompt, messages and conversations")
    cap = value.get("max_tokens", value.get("output_tokens"))
    if cap is not None and (not isinstance(cap, int) or isinstance(cap, bool) or cap < 1):
        raise ValueError(f"max_tokens is {cap!r}, not a whole number above 0")
    answer = value.get("answer", value.get("completion"))
    if "conversations" in value:
        # ShareGPT: the first question and, as a measure of length, its answer
        asked = next((i for i, m in enumerate(messages) if m.role == "user"), None)
        if asked is None:
            raise ValueError("conversations without a human turn")
        following = messages[asked + 1 : asked + 2]
        answer = following[0].content if following and following[0].role == "assistant" else None
        messages = messages[: asked + 1]
    if not any(m.content for m in messages):
        raise ValueError("the prompt is empty")
    return DatasetRecord(messages, answer if isinstance(answer, str) else None, cap)


def _messages(value: object, role_key: str, text_key: str) -> tuple[Message, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError("no list of messages, or an empty one")
    found = []
    for i, entry in enumerate(value):
        role = _ROLES.get(str(entry.get(role_key, ""))) if isinstance(entry, dict) else None
        text = entry.get(text_key) if isinstance(entry, dict) else None
        if role is None or not isinstance(text, str):
            raise ValueError(f"message {i + 1} has no known {role_key} or no text in {text_key}")
        found.append(Message(role, text))
    return tuple(found)


def _lines(data: mmap.mmap) -> Iterator[tuple[int, int, bytes]]:
    start = number = 0
    size = len(data)
    while start < size:
        number += 1
        end = data.find(b"\n", start)
        end = size if end < 0 else end
        yield number, start, data[start : min(end, start + _MAX_LINE_BYTES + 1)]
        start = end + 1


def _fault(raw: bytes) -> str | None:
    """None for a good line, "" for a blank one, else what is wrong."""
    if not raw.strip():
        return ""
    if len(raw) > _MAX_LINE_BYTES:
        return "a line above 16 MiB"
    try:
        parse_record(orjson.loads(raw))
    except orjson.JSONDecodeError as error:
        return f"not JSON: {str(error).split(': line')[0]}"
    except ValueError as error:
        return str(error)
    return None


def _array(path: Path) -> list[DatasetRecord]:
    name = str(path)
    size = path.stat().st_size
    if size > MAX_ARRAY_BYTES:
        found, wanted = f"a JSON array of {size // 2**20} MiB", "turn it into JSON lines: jq -c '.[]' FILE > FILE.jsonl"
        raise ConfigError([Problem(name, None, "", found, wanted)])
    raw = path.read_bytes()
    try:
        entries = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ConfigError([Problem(name, error.lineno, "", f"not JSON: {error.msg}", _WANTED)]) from None
    records: list[DatasetRecord] = []
    problems: list[Problem] = []
    for i, entry in enumerate(entries):
        try:
            records.append(parse_record(entry))
        except ValueError as error:
            problems.append(Problem(name, None, f"[{i}]", str(error), _WANTED))
    if problems or not records:
        raise ConfigError(problems[:_MAX_PROBLEMS] or [Problem(name, None, "", "the array is empty", _WANTED)])
    return records
