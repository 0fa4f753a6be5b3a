"""YAML with places: reads a file and remembers the line of every key, so that an error can name it.

Duplicate keys are refused (PyYAML keeps the last one silently), as are anchors that expand without bound.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from soakd.errors import ConfigError, Problem

KeyPath = tuple[str | int, ...]
_MAX_BYTES = 4 * 2**20
_MAX_NODES = 200_000
_PLAIN_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed document: plain data plus the line of every path in it."""

    name: str
    data: object
    lines: Mapping[KeyPath, int]

    def line_of(self, path: Sequence[str | int]) -> int | None:
        """The line of the path, or of its nearest ancestor that has one."""
        wanted = tuple(path)
        while wanted:
            if wanted in self.lines:
                return self.lines[wanted]
            wanted = wanted[:-1]
        return self.lines.get(())

    def problem(self, path: Sequence[str | int], found: str, wanted: str) -> Problem:
        return Problem(self.name, self.line_of(path), dotted(path), found, wanted)

    def error(self, path: Sequence[str | int], found: str, wanted: str) -> ConfigError:
        return ConfigError([self.problem(path, found, wanted)])

    def validation_error(self, error: ValidationError, prefix: Sequence[str | int] = ()) -> ConfigError:
        """Each pydantic error with its line; values of keys that look secret are never repeated."""
        return ConfigError([self._from_pydantic(fault, prefix) for fault in _faults(error)])

    def _from_pydantic(self, fault: ErrorDetails, prefix: Sequence[str | int]) -> Problem:
        path = (*prefix, *fault["loc"])
        while path and path not in self.lines and len(path) > len(prefix) + 1 and fault["type"] not in _EXACT:
            path = path[:-1]  # pydantic appends union branches and validator names that are not keys
        return self.problem(path, *_spoken(fault, path))


def option_problems(error: ValidationError, file: str, prefix: Sequence[str | int]) -> list[Problem]:
    """The same for options whose lines are not known."""
    paths = [(fault, (*prefix, *fault["loc"])) for fault in _faults(error)]
    return [Problem(file, None, dotted(path), *_spoken(fault, path)) for fault, path in paths]


def _faults(error: ValidationError) -> list[ErrorDetails]:
    found = error.errors()
    # pydantic counts the items that were good: a list with a wrong one is "too short" as well
    wrong = {e["loc"][:i] for e in found for i in range(len(e["loc"]))}
    return [e for e in found if e["type"] != "too_short" or e["loc"] not in wrong]


def _spoken(fault: ErrorDetails, path: Sequence[str | int]) -> tuple[str, str]:
    """What was found and what would be right."""
    kind, value = fault["type"], fault.get("input")
    if kind == "extra_forbidden":
        return "unknown key", "see `soakd init` for every key there is"
    if kind == "missing":
        return "missing", "it has no default"
    if kind == "too_short" and not value:
        return "empty", "give at least one"
    shown = "a value" if _secret(path) or isinstance(value, dict | list) else repr(value)
    return f"found {shown}", fault["msg"].removeprefix("Value error, ")


_EXACT = ("missing", "extra_forbidden")
"""Faults of a key that stands in no line: left out, or given on the command line."""


def dotted(path: Sequence[str | int]) -> str:
    """``rules[2].for``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def undotted(text: str) -> KeyPath:
    """The path of a dotted key: ``rules[2].for`` is rules, 2, for."""
    return tuple(int(index) if index else name for index, name in re.findall(r"\[(\d+)\]|([^.\[\]]+)", text))


def load_yaml(path: Path) -> Source:
    """Read a YAML file. Raises ConfigError for a missing file, bad syntax, a duplicate key or an oversized file."""
    name = str(path)
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError([Problem(name, None, "", error.strerror or str(error), "give a readable file")]) from None
    if len(raw) > _MAX_BYTES:
        raise ConfigError([Problem(name, None, "", "larger than 4 MiB", "split it")])
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ConfigError([Problem(name, line, "", "not UTF-8 text", "save it as UTF-8")]) from None
    return parse_yaml(text, name)


def parse_yaml(text: str, name: str) -> Source:
    """Parse a document. Raises ConfigError with the line of the first fault."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        raise ConfigError([Problem(name, line, "", error.problem or "not YAML", error.context or "")]) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError([Problem(name, None, "", f"not YAML: {str(error).splitlines()[0]}", "")]) from None
    if root is None:
        return Source(name, {}, {(): 1})
    reader = _Reader(name)
    data = reader.read(root, ())
    return Source(name, data, reader.lines)


class _Reader:
    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes = 0
        self.lines: dict[KeyPath, int] = {}

    def read(self, node: yaml.Node, path: KeyPath) -> object:
        self._nodes += 1
        if self._nodes > _MAX_NODES or len(path) > 60:
            raise ConfigError([Problem(self._name, node.start_mark.line + 1, "", "too large or too deep", "")])
        self.lines.setdefault(path, node.start_mark.line + 1)
        if not isinstance(node, yaml.ScalarNode) and node.tag not in _PLAIN_TAGS:
            found = f"could not determine a constructor for the tag {node.tag!r}"
            raise ConfigError([Problem(self._name, node.start_mark.line + 1, dotted(path), found, "leave the tag out")])
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(child, (*path, i)) for i, child in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, object]:
        data: dict[str, object] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self._scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else None
            if isinstance(key, bool) or key is None:
                key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                raise ConfigError([Problem(self._name, line, dotted(path), "a key that is not text", "quote it")])
            if key in data:
                raise ConfigError([Problem(self._name, line, dotted((*path, key)), "the key stands twice",
                                           f"first on line {self.lines[(*path, key)]}; keep one")])  # fmt: skip
            self.lines[(*path, key)] = line
            data[key] = self.read(value_node, (*path, key))
        return data

    def _scalar(self, node: yaml.Node) -> object:
        loader = yaml.SafeLoader("")
        try:
            value: object = loader.construct_object(node, deep=True)
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            text = str(error).splitlines()[0]
            raise ConfigError([Problem(self._name, node.start_mark.line + 1, "", text, "")]) from None
        finally:
            loader.dispose()
        # YAML 1.1 reads a bare date as a date object and 1:30 as 90; both are text to a person
        return value if isinstance(value, str | int | float | bool | None) else str(getattr(node, "value", value))


def _secret(path: Sequence[str | int]) -> bool:
    words = ("key", "token", "password", "secret", "webhook", "authorization")
    return any(isinstance(p, str) and any(w in p.lower() for w in words) for p in path)
