"""Takes out of a text what tells who and where: hosts, users, paths, addresses, ids and keys.

Pure and idempotent. What stays: loopback addresses with their port, kernel trees that name nobody (``/proc``,
``/sys``), well-known API paths, PCI addresses, times and versions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from soakd.report.model import Report

_LOOPBACK = r"(?:localhost|127(?:\.\d{1,3}){3}|\[::1\]|0\.0\.0\.0)"
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,15}://[^\s\"'<>|]+", re.IGNORECASE)
_LOOPBACK_URL = re.compile(rf"[a-z][a-z0-9+.-]*://({_LOOPBACK}(?::\d{{1,5}})?)(/[^\s?#]*)?(?=[/?#]|$)", re.IGNORECASE)
_EMAIL = re.compile(r"[\w.+%-]+@[\w-]+(?:\.[\w-]+)*")
_UUID = re.compile(
    r"(?:\b(?:GPU|MIG)-)?(?<![0-9a-f])[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}(?![0-9a-f])", re.IGNORECASE
)
_NVIDIA_ID = re.compile(r"\b(?:GPU|MIG)-[0-9a-f][0-9a-f-]{3,}", re.IGNORECASE)
_MAC = re.compile(r"(?<![0-9a-f:])(?:[0-9a-f]{2}:){5}[0-9a-f]{2}(?![0-9a-f:])", re.IGNORECASE)
_KNOWN_KEY = re.compile(
    r"\b(?:sk|pk|rk|hf|ghp|gho|ghs|github_pat|glpat|xox[abprs]|AKIA|ASIA|AIza|nvapi|eyJ)[-_]?[\w.-]{8,}|"
    r"\b(?:bearer|basic)\s+(?!\[)[\w.~+/=-]{4,}",
    re.IGNORECASE,
)
_NAMED_KEY = re.compile(
    r"((?:api|access|secret|private|auth)[_-]?(?:key|token)|password|passwd|passphrase|secret|authorization|credential|"
    r"webhook|(?<![a-z_-])token)(\"?'?\s*[=:]\s*\"?'?|\s+(?=\S*[0-9]))(?!\[)[^\s,;\"'|]+",
    re.IGNORECASE,
)
_BLOB = re.compile(r"(?<![\w/+=-])(?=[\w/+=-]*\d)(?=[\w/+=-]*[a-z])[a-z0-9_+/=-]{32,}(?![\w/+=-])", re.IGNORECASE)
_SERIAL = re.compile(r"\b(serial(?:[_ ]?(?:number|no))?)(\s*[=:]\s*|\s+)(?!\[)(?=\S*\d)[\w-]{5,}", re.IGNORECASE)
_TAIL = r"(?:/[^\s,;\"'|<>]*)?"  # what follows an address belongs to it
_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_IPV4 = re.compile(rf"(?<![\d.])(?<!\bv)({_OCTET}(?:\.{_OCTET}){{3}})(?![\d.]*\d)((?::\d{{1,5}})?)({_TAIL})")
_IPV6 = re.compile(
    rf"(?<![\w:.])\[?((?:[0-9a-f]{{0,4}}:){{2,7}}[0-9a-f]{{0,4}})(%\w+)?\]?((?<=\]):\d{{1,5}})?(?![\w:.]*\w){_TAIL}",
    re.IGNORECASE,
)
_PATH = re.compile(
    r"(?<![\w/.~-])(?:~[\w.-]*|\.{1,2}|[a-z]:)?[/\\](?![\s/\\]|$)"
    r"(?:[^\s\"'`|<>:;,()=\[\]]|\\ |\[(?:id|key|ip|host|user|path)\])+",
    re.IGNORECASE,
)
_RELATIVE = re.compile(r"(?<![\w/.\]-])(?:[\w.@+-]+/){2,}[\w.@+-]+\.[a-z]\w{0,11}\b", re.IGNORECASE)
_KEPT_PATH = re.compile(
    r"/(?:proc|sys|dev/(?:shm|nvidia\w*|null)|v1|v2|health|healthz|metrics|tokenize|slots|props|generate|ping|"
    r"load|version|completions|chat/completions|h|s|min|hour)(?=/|$|[^\w-])[\w./:\[\]-]*"
)
_TLD = (
    r"(?:com|net|org|io|ai|dev|local|localdomain|internal|intranet|lan|corp|home|cloud|svc|cluster|edu|gov|cn|de|uk|fr|"
    r"jp|eu|ru|in|us|nl|ch|se|kr|tw|app|co|info|tech)"
)
_FQDN = re.compile(
    rf"(?<![\w.@/-])(?:[a-z0-9](?:[\w-]*[a-z0-9])?\.)+{_TLD}\.?(?![\w-])(?::\d{{1,5}})?{_TAIL}", re.IGNORECASE
)
_USER = re.compile(r"\b(user(?:name)?|login|uid)(\s*[=:]\s*)(?!\[)[\w.-]+", re.IGNORECASE)
_PASSES = 8
# names that a machine may bear and that tell nothing; taking them out would only spoil the sentence
_DULL = frozenset({"localhost", "host", "gpu", "server", "llama", "vllm", "model", "node", "linux", "default", "root"})


@dataclass(frozen=True, slots=True)
class Redactor:
    """Redacts with the names known to belong to this machine (host, user, serials), beside the general patterns."""

    hosts: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()

    @classmethod
    def of(cls, *reports: Report) -> Redactor:
        hosts: list[str] = []
        ids: list[str] = []
        for report in reports:
            hosts += [
                report.host.name if report.host else "",
                *map(_host_of, (report.target.url, *report.target.replicas)),
            ]
            ids += [x for gpu in report.gpus for x in (gpu.uuid, gpu.serial, gpu.mig)]
            ids += [report.boot_id, report.host.boot_id_end if report.host else ""]
        return cls(_worth([*hosts, *(h.split(".")[0] for h in hosts)]), _worth(ids))

    def __call__(self, text: str) -> str:
        return redact(text, hosts=self.hosts, ids=self.ids)


def redact(text: str, *, hosts: Iterable[str] = (), ids: Iterable[str] = ()) -> str:
    """``text`` without what identifies. ``hosts`` and ``ids`` are exact names to take out as well."""
    text = _words(_words(text, ids, "[id]"), hosts, "[host]", r"(?:\.[\w-]+)*")
    for _ in range(_PASSES):  # what one step takes out may lay bare what another looks for
        before = text
        text = _URL.sub(_url, text)
        for pattern, into in _STEPS:
            text = pattern.sub(into, text)
        if text == before:
            break
    return text


def _url(match: re.Match[str]) -> str:
    found = _LOOPBACK_URL.match(match[0])
    if not found:
        return "[url]"
    path = found[2] or ""
    return f"http://{found[1]}" + (path if _KEPT_PATH.fullmatch(path) else "")


def _ipv4(match: re.Match[str]) -> str:
    if not re.fullmatch(_LOOPBACK, match[1]):
        return "[ip]" + match[2]
    return match[1] + match[2] + (match[3] if _KEPT_PATH.fullmatch(match[3]) else "")


def _ipv6(match: re.Match[str]) -> str:
    address = match[1]
    if address == "::1" or not re.search(r"[0-9a-f]", address, re.IGNORECASE):
        return match[0]
    if "::" not in address and address.count(":") < 7:  # times of day and PCI addresses
        return match[0]
    return "[ip]"


def _path(match: re.Match[str]) -> str:
    return match[0] if _KEPT_PATH.fullmatch(match[0]) else "[path]"


_STEPS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (_KNOWN_KEY, "[key]"),  # before the next: of "Authorization: Bearer X" the key is X
    (_NAMED_KEY, lambda m: f"{m[1]}{m[2]}[key]"),
    (_EMAIL, "[user]"),
    (_UUID, "[id]"),
    (_NVIDIA_ID, "[id]"),
    (_SERIAL, lambda m: f"{m[1]}{m[2]}[id]"),
    (_MAC, "[id]"),
    (_PATH, _path),
    (_RELATIVE, "[path]"),
    (_BLOB, "[key]"),
    (_IPV4, _ipv4),
    (_IPV6, _ipv6),
    (_FQDN, "[host]"),
    (_USER, lambda m: f"{m[1]}{m[2]}[user]"),
)


def _words(text: str, words: Iterable[str], into: str, tail: str = "") -> str:
    for word in sorted(words, key=len, reverse=True):
        text = re.sub(rf"(?<![\w-]){re.escape(word)}{tail}(?![\w-])", into, text, flags=re.IGNORECASE)
    return text


def _worth(words: Iterable[str]) -> tuple[str, ...]:
    named = {w for w in words if 2 < len(w) <= 255 and w.lower() not in _DULL}
    return tuple(sorted(w for w in named if not w.isdigit() or len(w) > 6))


def _host_of(url: str) -> str:
    try:
        host = urlsplit(url if "//" in url else f"//{url}").hostname or ""
    except ValueError:
        return ""
    return "" if re.fullmatch(_LOOPBACK, host) or host == "::1" or re.fullmatch(r"[\d.]+", host) else host
