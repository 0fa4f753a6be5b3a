"""Cards recorded by one command and shown by another: the same answers, nothing that identifies the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from soakd.nvml.replay import load_recording
from tests.support.daemons import outcome, replayed, soakd
from tests.support.gpus import FIXTURES

pytestmark = pytest.mark.integration


def of_cards(raw: bytes) -> dict[tuple[str, str], Any]:
    found = {}
    for collector in json.loads(raw)["collectors"]:
        for sample in collector["samples"]:
            labels = dict(sample["labels"])
            if labels.pop("gpu", None) and sample["metric"].startswith("gpu_ecc"):
                found[(sample["metric"], json.dumps(labels))] = (sample["value"], sample["status"])
    return found


@pytest.mark.parametrize("family", ["v100", "a100", "h200", "consumer"])
async def test_what_was_recorded_is_seen_again(family: str, tmp_path: Path) -> None:
    code, out, err = await outcome(
        await soakd("collect", "--record", str(tmp_path / "made"), environment=replayed(family, copies=2))
    )
    assert code == 0, err
    paths = out.decode().split()
    assert paths == [str(tmp_path / "made/gpu-0"), str(tmp_path / "made/gpu-1")]
    secret = load_recording(FIXTURES / family).card
    for path in paths:
        text = (Path(path) / "recording.json").read_text()
        assert secret.uuid not in text
        assert not secret.serial or secret.serial not in text
    _, direct, _ = await outcome(await soakd("collect", "--replay", str(FIXTURES / family), "--json"))
    code, again, err = await outcome(await soakd("collect", "--replay", paths[0], "--json"))
    assert code == 0
    assert "REPLAYED" in err
    assert of_cards(direct)
    assert of_cards(again) == of_cards(direct)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--record", "x"), "nothing to record"),
        (("--replay", "/nonexistent"), "is not a recording"),
        (("--record", "x", "--replay", "y"), "do not go together"),
    ],
)
async def test_what_can_not_be_done_is_said(arguments: tuple[str, ...], says: str) -> None:
    none = {"SOAKD_NVML_COMMAND": "/nonexistent/program"}
    code, out, err = await outcome(await soakd("collect", *arguments, environment=none))
    assert (code, out) == (2, b"")
    assert says in err
    assert "Traceback" not in err
