"""Takes keys out of command lines and log lines before anything keeps them."""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN = "[hidden]"
_SECRET_FLAG = re.compile(r"--?(?:[\w-]*(?:api[-_]?key|token|secret|password|passwd|credential)s?)", re.IGNORECASE)
_COUNTS = re.compile(r"--?[\w-]*(?:max|num|min|batched|per|budget|chunk)[\w-]*", re.IGNORECASE)
_IN_TEXT = (
    re.compile(r"(?i)(authorization\W{1,4}(?:bearer|basic)\s+)[^\s\"',;]+"),
    re.compile(r"(?i)(\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(r"(?i)((?:api[-_]?key|secret|password|passwd|access[-_]?token|hf[-_]?token)[\"']?\s*[=:]\s*[\"']?)[^\s\"',;&]+"),
    re.compile(r"(?i)(--(?:api-key|hf-token|secret|password)\s+)\S+"),
    re.compile(r"()\b(?:sk-[A-Za-z0-9_-]{12,}|hf_[A-Za-z0-9]{12,}|gh[pousr]_[A-Za-z0-9]{20,}|xox[baprs]-[\w-]{10,})"),
    re.compile(r"(\w+://[^\s/:@]+:)[^\s/@]+(?=@)"),
)  # fmt: skip


def redact_text(text: str, secrets: Sequence[str] = ()) -> str:
    """Hide what looks like a key, and each of ``secrets`` (the ones that are known) wherever it stands."""
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, HIDDEN)
    for pattern in _IN_TEXT:
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return text


def redact_command(command: Sequence[str]) -> tuple[str, ...]:
    """Hide the values of flags that take keys; flags that count tokens are left as they are."""
    shown: list[str] = []
    hiding = False  # vLLM's --api-key takes several values: hide up to the next flag
    for part in command:
        if hiding and not part.startswith("--"):
            shown.append(HIDDEN)
            continue
        name, equals, _ = part.partition("=")
        secret = bool(_SECRET_FLAG.fullmatch(name)) and not _COUNTS.fullmatch(name)
        shown.append(f"{name}={HIDDEN}" if secret and equals else redact_text(part))
        hiding = secret and not equals
    return tuple(shown)
