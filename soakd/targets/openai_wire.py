"""What the JSON wire protocols have in common: request fields, usage, error objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import orjson

from soakd.targets.base import MalformedPayload, Usage

_ERROR_CHARS = 300


def joined(head: Mapping[str, object], *extras: bytes) -> bytes:
    """The request body: ``head`` with the JSON objects of ``extras`` laid over it, the later the stronger.

    A field that an extra sets to null is left out, for servers that refuse one of ours.
    """
    if not any(extras):
        return orjson.dumps(head)
    body = dict(head)
    for extra in extras:
        if extra:
            body |= orjson.loads(extra)
    return orjson.dumps({name: value for name, value in body.items() if value is not None})


def json_object(payload: bytes) -> dict[str, object]:
    """Raises MalformedPayload when the payload is no JSON object."""
    try:
        document = orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise MalformedPayload(f"{error}: {payload[:80].decode(errors='replace')!r}") from None
    if not isinstance(document, dict):
        raise MalformedPayload(f"no JSON object: {payload[:80].decode(errors='replace')!r}")
    return cast(dict[str, object], document)


def usage_of(found: object) -> Usage | None:
    """OpenAI's ``usage`` object; None when there is none."""
    if not isinstance(found, dict):
        return None
    return Usage(
        number(found.get("prompt_tokens")),
        number(found.get("completion_tokens")),
        number(_inner(found, "prompt_tokens_details", "cached_tokens")),
        number(_inner(found, "completion_tokens_details", "reasoning_tokens")),
    )


def number(found: object) -> int | None:
    """A count, or None for anything that is none."""
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None


def error_text(found: object) -> str:
    """One line from an error object of any server."""
    if isinstance(found, dict):
        kind, message = found.get("type") or found.get("code"), found.get("message")
        text = f"{kind}: {message}" if kind and message else str(message or orjson.dumps(found).decode())
    else:
        text = str(found)
    return " ".join(text.split())[:_ERROR_CHARS]


def _inner(found: Mapping[str, object], outer: str, name: str) -> object:
    details = found.get(outer)
    return details.get(name) if isinstance(details, dict) else None
