"""PCIe Advanced Error Reporting counters as the kernel writes them: two vocabularies, one set of names. Pure.

Source: drivers/pci/pcie/aer.c. Kernels up to 4.20 and vendor backports of it print names with spaces (``Bad TLP``),
later ones names without (``BadTLP``). Unnamed bits print as ``dev_cor_errs_bit[N]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SEVERITIES = ("correctable", "nonfatal", "fatal")

_OLD_NAMES: Mapping[str, str] = {
    "Receiver Error": "RxErr",
    "Bad TLP": "BadTLP",
    "Bad DLLP": "BadDLLP",
    "RELAY_NUM Rollover": "Rollover",
    "REPLAY_NUM Rollover": "Rollover",
    "Replay Timer Timeout": "Timeout",
    "Advisory Non-Fatal": "NonFatalErr",
    "Advisory Non-Fatal Error": "NonFatalErr",
    "Corrected Internal Error": "CorrIntErr",
    "Header Log Overflow": "HeaderOF",
    "Undefined": "Undefined",
    "Data Link Protocol": "DLP",
    "Surprise Down Error": "SDES",
    "Surprise Down": "SDES",
    "Poisoned TLP": "TLP",
    "Flow Control Protocol": "FCP",
    "Completion Timeout": "CmpltTO",
    "Completer Abort": "CmpltAbrt",
    "Unexpected Completion": "UnxCmplt",
    "Receiver Overflow": "RxOF",
    "Malformed TLP": "MalfTLP",
    "ECRC": "ECRC",
    "ECRC Error": "ECRC",
    "Unsupported Request": "UnsupReq",
    "ACS Violation": "ACSViol",
    "Uncorrectable Internal Error": "UncorrIntErr",
    "MC Blocked TLP": "BlockedTLP",
    "AtomicOp Egress Blocked": "AtomicOpBlocked",
    "TLP Prefix Blocked Error": "TLPBlockedErr",
    "TLP Prefix Blocked": "TLPBlockedErr",
    "Poisoned TLP Egress Blocked": "PoisonTLPBlocked",
}
_MAX_NAMES = 64


@dataclass(frozen=True, slots=True)
class AerCounts:
    """Counters of one file by canonical name. ``total`` is the kernel's own TOTAL line, which may differ from the sum.

    ``bad_lines`` counts lines that say nothing (shown, so that a new format is noticed).
    """

    errors: Mapping[str, int] = field(default_factory=dict)
    total: int | None = None
    bad_lines: int = 0

    @property
    def sum(self) -> int:
        return sum(self.errors.values())


def canonical(name: str) -> str:
    """The name without spaces of newer kernels; an unknown name stays as it is, blanks as underscores."""
    known = _OLD_NAMES.get(name)
    return known if known is not None else "_".join(name.split())


def parse_aer(text: str) -> AerCounts:
    """One of ``aer_dev_correctable``, ``aer_dev_nonfatal``, ``aer_dev_fatal``: ``name value`` a line, TOTAL last."""
    errors: dict[str, int] = {}
    total: int | None = None
    bad = 0
    for line in text.split("\n"):
        name, _, number = line.rstrip().rpartition(" ")
        name = name.strip()
        if not line.strip():
            continue
        if not name or not number.isascii() or not number.isdigit():
            bad += 1
        elif name.startswith("TOTAL_ERR"):
            total = int(number)
        elif len(errors) < _MAX_NAMES or canonical(name) in errors:
            errors[canonical(name)] = errors.get(canonical(name), 0) + int(number)
        else:
            bad += 1
    return AerCounts(errors, total, bad)
