"""Texts of alerts: ``{value} on {gpu}``, with known names only, so that a rule file can't run anything."""

from __future__ import annotations

import string
from collections.abc import Collection, Mapping
from dataclasses import dataclass

_LONGEST = 2000
ALWAYS = ("value", "limit", "what", "duration", "run")
"""Names every rule may use: value and limit with their unit, what the condition said, for how long it has held."""


@dataclass(frozen=True, slots=True)
class Template:
    """Parsed text: literals and names, alternating."""

    parts: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, text: str, names: Collection[str]) -> Template:
        """Raises ValueError for a name that is not among ``names``, or for anything but a plain ``{name}``."""
        parts: list[tuple[str, str]] = []
        try:
            found = list(string.Formatter().parse(text))
        except ValueError as error:
            raise ValueError(f"{error}; write a brace itself as {{{{ or }}}}") from None
        for literal, name, spec, conversion in found:
            if name is None:
                parts.append((literal, ""))
                continue
            if spec or conversion or name not in names:
                raise ValueError(f"no field {{{name}}}; there are {', '.join('{' + n + '}' for n in sorted(names))}")
            parts.append((literal, name))
        return cls(tuple(parts))

    def render(self, values: Mapping[str, str]) -> str:
        text = "".join(literal + (values.get(name, "unknown") if name else "") for literal, name in self.parts)
        return " ".join(text.split())[:_LONGEST]

    def names(self) -> tuple[str, ...]:
        return tuple(name for _, name in self.parts if name)

    def with_names(self, spelled: Mapping[str, str]) -> str:
        """The text with each name spelled as given (for another system's templates)."""
        return "".join(literal + (spelled.get(name, name) if name else "") for literal, name in self.parts)
