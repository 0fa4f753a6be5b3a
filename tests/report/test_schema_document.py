"""The document names every key there is."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from soakd.report import compare, facts, figures, model

TEXT = (Path(__file__).parents[2] / "docs/report-schema.md").read_text(encoding="utf-8")
TYPES = [
    *(model.Report, model.LimitLine, model.FindingLine, model.EventLine, model.Outage),
    *(facts.Target, facts.Host, facts.Span, facts.Gpu, facts.Stage, facts.PromptBand, facts.PromptMix),
    *(facts.AgreementCheck, facts.Canary, facts.SelfCheck, facts.SafetyStop, facts.SeriesVerdict, facts.ServerRatio),
    *(facts.Thermal, facts.WorkRate),
    *(facts.CollectorCoverage, facts.ClockStep, facts.LogTail, facts.Journal),
    *(figures.Latency, figures.ReplicaLoad, figures.DecodeRetention, figures.Load, figures.Measure),
    *(compare.Comparison, compare.Row),
]


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
def test_every_key_is_documented(kind: type) -> None:
    named = set(re.findall(r"[`\"]([a-z_0-9]+)[`\"]", TEXT))
    assert {f.name for f in fields(kind)} <= named
