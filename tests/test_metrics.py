from __future__ import annotations

import re
from pathlib import Path

import pytest

import soakd
from soakd.metrics import Catalogue, catalogue, reference
from soakd.model import Kind, Metric

_PACKAGE = Path(soakd.__file__).parent
_PREFIXES = "allocator|clock|collector|gpu|host|kernel|load|pcie|server|soakd"
_SUFFIXES = "bytes|celsius|seconds|ratio|total|watts|running|waiting|files|limit|threads|up|second"
_NAME = re.compile(rf'"((?:{_PREFIXES})_[a-z0-9_]+_(?:{_SUFFIXES}))"')


def metric(name: str, kind: Kind = Kind.GAUGE, unit: str = "") -> Metric:
    return Metric(name, unit, kind, "help", "source")


def test_every_metric_has_help_source_and_a_name_that_carries_its_unit() -> None:
    suffixes = {"bytes": "_bytes", "celsius": "_celsius", "seconds": "_seconds", "watts": "_watts", "ratio": "_ratio"}
    for found in catalogue():
        assert found.help, found.name
        assert found.source, found.name
        assert re.fullmatch(r"[a-z][a-z0-9_]*", found.name)
        if found.unit in suffixes:
            assert suffixes[found.unit] in found.name, found.name
        assert (found.kind is Kind.STATE) <= bool(found.codes), found.name


@pytest.mark.parametrize("folder", ["analysis", "soak", "service"])
def test_every_metric_that_is_judged_or_shown_exists(folder: str) -> None:
    known = catalogue()
    named = {
        name for path in (_PACKAGE / folder).glob("*.py") for name in _NAME.findall(path.read_text(encoding="utf-8"))
    }
    assert named or folder == "service"
    assert sorted(n for n in named if n not in known) == []


def test_a_metric_exists_once() -> None:
    with pytest.raises(ValueError, match="declared twice"):
        Catalogue.of([metric("a_bytes"), metric("a_bytes", unit="bytes")])
    assert len(list(Catalogue.of([metric("a_bytes"), metric("a_bytes")]))) == 1


@pytest.mark.parametrize(("name", "kind"), [("a_total", Kind.GAUGE), ("a_bytes", Kind.COUNTER)])
def test_counters_and_only_they_end_in_total(name: str, kind: Kind) -> None:
    with pytest.raises(ValueError, match="_total"):
        Catalogue.of([metric(name, kind)])


def test_the_reference_is_in_step_with_the_catalogue() -> None:
    document = _PACKAGE.parent / "docs" / "metrics.md"
    assert document.read_text(encoding="utf-8") == reference(catalogue()), "run `make docs`"
